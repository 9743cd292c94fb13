package services

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A list of home Services of an older state that lacks one does not delete the remote
// Service, whose address would be another then.
func TestListWithoutTheService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil, service("shop", "web"), slice("shop", "web", "web-1", "10.99.0.1"))
		g.run()
		g.want([]string{"shop/web"}, []string{"10.1.0.1"})
		if err := g.services.GetStore().Delete(service("shop", "web")); err != nil {
			t.Fatal(err)
		}
		g.queue.Add(types.NamespacedName{Namespace: "shop", Name: "web"})
		g.want([]string{"shop/web"}, []string{"10.1.0.1"})
		if err := g.CollectGarbage(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		g.want([]string{"shop/web"}, []string{"10.1.0.1"})
		if err := g.home.CoreV1().Services("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := g.CollectGarbage(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		g.want(nil, nil)
	})
}
