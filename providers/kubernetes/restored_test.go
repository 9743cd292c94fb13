package kubernetes

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// A remote cluster that was restored from a backup has outdated copies: they are
// updated within minutes, and those that are up to date are not written.
func TestRemoteIsRestoredFromABackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "", newRemote())
		r.create(named("web"))
		time.Sleep(6 * time.Minute)
		r.requests()
		time.Sleep(6 * time.Minute)
		r.wantRequests("copies that are as they were written")

		secrets := r.remote.CoreV1().Secrets("shop")
		name := r.translate.ObjectName(translate.KindSecret, "shop", "keys")
		old, err := secrets.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		old.ResourceVersion, old.Data = "old", map[string][]byte{"name": []byte("old")}
		if _, err := secrets.Update(t.Context(), old, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Minute)
		found, err := secrets.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || string(found.Data["name"]) != "keys" {
			t.Errorf("the copy has %q: %v", found.Data, err)
		}
	})
}
