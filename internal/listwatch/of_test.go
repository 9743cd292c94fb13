package listwatch_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/internal/listwatch"
)

// The Services of a factory of client-go's are there seconds after an outage, too.
func TestServicesOfAFactorySitOutAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}})
		var away atomic.Bool
		fakeapi.React(&client.Fake, "list", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
			return away.Load(), nil, errors.New("connection refused")
		})
		away.Store(true)
		factory := informers.NewSharedInformerFactory(client, 0)
		factory.InformerFor(&corev1.Service{}, listwatch.Services)
		factory.StartWithContext(t.Context())
		time.Sleep(10 * time.Minute)
		away.Store(false)
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if _, err := factory.Core().V1().Services().Lister().Services("shop").Get("db"); err != nil {
			t.Error(err)
		}
	})
}
