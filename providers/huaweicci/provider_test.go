package huaweicci

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pods of the older provider are known by their annotations; one without the name of a pod at
// home is not: to ask for that pod would fail at each start.
func TestOlderPod(t *testing.T) {
	for what, c := range map[string]struct{ namespace, name, want string }{
		"older":         {"shop", "web.1", "uid"},
		"no namespace":  {"", "web", ""},
		"no name":       {"shop", "", ""},
		"a path":        {"shop", "../web", ""},
		"upper case":    {"Shop", "web", ""},
		"somebody else": {"", "", ""},
	} {
		pod := &metav1.ObjectMeta{Name: "shop-web", Annotations: map[string]string{olderNamespace: c.namespace, olderName: c.name, olderUID: "uid", olderNode: "cci"}}
		home, uid, node := olderPod(pod)
		if string(uid) != c.want || c.want != "" && (home.Name != c.name || home.Namespace != c.namespace || node != "cci") {
			t.Errorf("%s: %v, %q, %q", what, home, uid, node)
		}
	}
}
