package claims

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// A claim with volumeBindingMode Immediate gets its volume on the node that its class
// names, or an event says that this is unknown.
func TestClaimOfAnImmediateClass(t *testing.T) {
	named := func(nodes ...string) []corev1.TopologySelectorTerm {
		return []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: corev1.LabelHostname, Values: nodes}}}}
	}
	for _, c := range []struct {
		what   string
		change func(*storagev1.StorageClass)
		volume bool
		says   string
	}{
		{"no nodes", func(*storagev1.StorageClass) {}, false, "volumeBindingMode Immediate"},
		{"this node", func(c *storagev1.StorageClass) { c.AllowedTopologies = named("far") }, true, "ProvisioningSucceeded"},
		{"another node", func(c *storagev1.StorageClass) { c.AllowedTopologies = named("near") }, false, ""},
		{"this node and another", func(c *storagev1.StorageClass) { c.AllowedTopologies = named("far", "near") }, false, "volumeBindingMode Immediate"},
		{"it does wait", func(c *storagev1.StorageClass) {
			c.VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
		}, false, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t, claim("u", func(c *corev1.PersistentVolumeClaim) {
					c.Annotations = map[string]string{storageProvisioner: Provisioner}
				}))
				remote, err := g.home.StorageV1().StorageClasses().Get(t.Context(), "remote", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				c.change(remote)
				if _, err := g.home.StorageV1().StorageClasses().Update(t.Context(), remote, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				g.run()
				time.Sleep(time.Hour)
				if got := g.volume("u") != nil; got != c.volume || len(g.remoteClaims()) > 0 != c.volume {
					t.Errorf("there is a volume: %v, and remote claims %+v", got, g.remoteClaims())
				}
				if len(g.recorded) > 1 || c.says == "" && len(g.recorded) > 0 || !strings.Contains(g.recordedLines(), c.says) {
					t.Errorf("reported %q", g.recorded)
				}
			})
		})
	}
}
