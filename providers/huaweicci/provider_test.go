package huaweicci

import (
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/ccigateway"
)

// A namespace shows whose it is, in the form of the API reference.
func TestTenantOfANamespace(t *testing.T) {
	_, client := behind(t, ccigateway.Options{}, nil, func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, http.StatusOK, `{"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "guests", "annotations": {"namespace.kubernetes.io/flavor": "gpu-accelerated",
			"tenant.kubernetes.io/domain-id": "aadb43c0b14c4cafbccfff483d075987", "tenant.kubernetes.io/project-id": "51bf52609f2a49c68bfda3398817b376"}}}`)
	})
	namespace, err := client.CoreV1().Namespaces().Get(t.Context(), "guests", metav1.GetOptions{})
	if err != nil || tenantOf(namespace) != "51bf52609f2a49c68bfda3398817b376" {
		t.Errorf("%v, %v", namespace, err)
	}
}

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
