package services

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil // they sleep, in the bubble of the first test
	os.Exit(m.Run())
}

// rig is Services between two clusters. Pods are in the namespace shop.
type rig struct {
	*Services
	t            *testing.T
	home, remote *fake.Clientset
	mu           sync.Mutex
	used         bool
	reported     []string
}

func newRig(t *testing.T, remote []runtime.Object, atHome ...runtime.Object) *rig {
	g := &rig{t: t, home: fake.NewClientset(atHome...), remote: fake.NewClientset(remote...), used: true}
	g.Services = New(Options{
		Translate: &translate.Options{
			Home: translate.Home{Cluster: "home", Node: "far", UID: "home-uid"}, Namespaces: translate.Namespaces{Mapping: translate.Same},
			PodIPs: []translate.Range{{Remote: netip.MustParsePrefix("10.1.0.0/16"), Home: netip.MustParsePrefix("10.99.0.0/16")}},
		},
		Home: g.home, Remote: g.remote,
		IsUsed: func(namespace string) bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return namespace == "shop" && g.used
		},
		ReportFailure: func(service *corev1.Service, err error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.reported = append(g.reported, fmt.Sprint(service.Name, ": ", err))
		},
	})
	return g
}

// run runs the Services for the rest of the test.
func (g *rig) run() {
	ctx, cancel := context.WithCancel(g.t.Context())
	var running sync.WaitGroup
	running.Go(func() { g.Run(ctx) })
	g.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	time.Sleep(time.Second) // until the caches are seen to have synced
	synctest.Wait()
}

// remotes are the remote Services, and the addresses of their EndpointSlices.
func (g *rig) remotes() (services, addresses []string) {
	g.t.Helper()
	list, err := g.remote.CoreV1().Services("").List(g.t.Context(), metav1.ListOptions{})
	if err != nil {
		g.t.Fatal(err)
	}
	for i := range list.Items {
		services = append(services, list.Items[i].Namespace+"/"+list.Items[i].Name)
	}
	all, err := g.remote.DiscoveryV1().EndpointSlices("").List(g.t.Context(), metav1.ListOptions{})
	if err != nil {
		g.t.Fatal(err)
	}
	for i := range all.Items {
		for _, e := range all.Items[i].Endpoints {
			addresses = append(addresses, e.Addresses...)
		}
	}
	slices.Sort(services)
	slices.Sort(addresses)
	return services, addresses
}

func (g *rig) want(services, addresses []string) {
	g.t.Helper()
	synctest.Wait()
	if s, a := g.remotes(); !slices.Equal(s, services) || !slices.Equal(a, addresses) {
		g.t.Errorf("there are %q with %q, want %q with %q", s, a, services, addresses)
	}
}

func service(namespace, name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.7", Selector: map[string]string{"app": name},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, NodePort: 30080, Protocol: corev1.ProtocolTCP}},
		},
	}
}

func slice(namespace, of, name string, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: of}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Port: ptr.To[int32](8080)}},
	}
	for _, address := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}, NodeName: ptr.To("near"), Zone: ptr.To("a")})
	}
	return s
}

// A Service can stay at home, also one that was copied before.
func TestServicesThatStayAtHome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		private := service("shop", "private")
		private.Annotations = map[string]string{AnnotationReflect: "false"}
		g := newRig(t, nil, service("shop", "db"), private, slice("shop", "private", "private-1", "10.5.0.1"))
		g.run()
		g.want([]string{"shop/db"}, nil)
		db := service("shop", "db")
		db.Annotations = private.Annotations
		if _, err := g.opts.Home.CoreV1().Services("shop").Update(t.Context(), db, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		g.want(nil, nil)
	})
}

func TestServiceFollowsAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil, service("shop", "db"), slice("shop", "db", "db-1", "10.99.3.4", "10.5.0.1"),
			service("other", "db"), slice("other", "db", "db-1", "10.5.0.2"), service("default", "kubernetes"))
		g.run()
		// The first is of a pod in the remote cluster, the second is not.
		g.want([]string{"shop/db"}, []string{"10.1.3.4", "10.5.0.1"})
		db, err := g.remote.CoreV1().Services("shop").Get(t.Context(), "db", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if s := db.Spec; s.Type != corev1.ServiceTypeClusterIP || s.ClusterIP != "" || s.Selector != nil || s.Ports[0].NodePort != 0 || s.Ports[0].Port != 80 {
			t.Errorf("the remote Service is %+v", s)
		}
		if !g.opts.Translate.Home.Owns(db) || translate.NameOf(db).String() != "shop/db" {
			t.Errorf("it does not say where it comes from: %+v", db.ObjectMeta)
		}

		home := g.home.DiscoveryV1().EndpointSlices("shop")
		if _, err := home.Create(t.Context(), slice("shop", "db", "db-2", "10.99.3.5"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := home.Delete(t.Context(), "db-1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		g.want([]string{"shop/db"}, []string{"10.1.3.5"})
		if err := g.home.CoreV1().Services("shop").Delete(t.Context(), "db", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		g.want(nil, nil)
	})
}

// A Service that becomes headless is another one in the remote cluster.
func TestServiceOfAnotherKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil, service("shop", "db"))
		g.run()
		headless := service("shop", "db")
		headless.Spec.ClusterIP = corev1.ClusterIPNone
		if _, err := g.home.CoreV1().Services("shop").Update(t.Context(), headless, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if db, err := g.remote.CoreV1().Services("shop").Get(t.Context(), "db", metav1.GetOptions{}); err != nil || db.Spec.ClusterIP != corev1.ClusterIPNone {
			t.Errorf("the remote Service is %+v, %v", db, err)
		}
	})
}

func TestServiceOfOthersStays(t *testing.T) {
	for what, c := range map[string]struct {
		labels  map[string]string
		reports int
	}{
		"somebody else's": {nil, 1},
		"another node's":  {translate.Home{Cluster: "home", Node: "near", UID: "home-uid"}.LabelsOf("shop", ""), 0}, // which serves as well
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				foreign := service("shop", "db")
				foreign.Labels = c.labels
				g := newRig(t, []runtime.Object{foreign}, service("shop", "db"), slice("shop", "db", "db-1", "10.5.0.1"))
				g.run()
				if err := g.home.CoreV1().Services("shop").Delete(t.Context(), "db", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				g.want([]string{"shop/db"}, nil)
				if len(g.reported) != c.reports {
					t.Errorf("reported %q", g.reported)
				}
			})
		})
	}
}

// Services are copied with the first pod of their namespace, and deleted after the
// last. Those that somebody deleted are written again.
func TestNamespaceIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil, service("shop", "db"), slice("shop", "db", "db-1", "10.5.0.1"))
		use := func(used bool) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.used = used
		}
		collect := func() {
			t.Helper()
			if err := g.CollectGarbage(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
		}
		use(false)
		g.run()
		g.want(nil, nil)
		use(true)
		g.EnqueueNamespace("shop")
		g.want([]string{"shop/db"}, []string{"10.5.0.1"})
		if err := g.remote.CoreV1().Services("shop").Delete(t.Context(), "db", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		collect()
		g.want([]string{"shop/db"}, []string{"10.5.0.1"})
		use(false)
		if _, err := g.home.CoreV1().Services("shop").Create(t.Context(), service("shop", "web"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		g.want([]string{"shop/db"}, []string{"10.5.0.1"})
		use(true)
		g.EnqueueNamespace("shop")
		g.want([]string{"shop/db", "shop/web"}, []string{"10.5.0.1"})
		use(false)
		collect()
		g.want(nil, nil)
		use(true)
		g.EnqueueNamespace("shop")
		g.want([]string{"shop/db", "shop/web"}, []string{"10.5.0.1"})
	})
}

// A Service that has not changed is not written, and one that somebody else has changed
// is.
func TestUnchangedServicesAreNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil, service("shop", "web"), slice("shop", "web", "web-1", "10.0.0.1"), slice("shop", "web", "web-2", "10.0.0.2"))
		g.run()
		g.want([]string{"shop/web"}, []string{"10.0.0.1", "10.0.0.2"})
		writes := func() (all []string) {
			synctest.Wait()
			for _, action := range g.remote.Actions() {
				if verb := action.GetVerb(); verb != "get" && verb != "list" {
					all = append(all, verb+" "+action.GetResource().Resource)
				}
			}
			g.remote.ClearActions()
			return all
		}
		writes()
		if err := g.CollectGarbage(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		if all := writes(); len(all) > 0 {
			t.Errorf("nothing has changed, and there were %q", all)
		}
		if _, err := g.home.DiscoveryV1().EndpointSlices("shop").Update(t.Context(), slice("shop", "web", "web-2", "10.0.0.3"), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if all := writes(); len(all) != 1 {
			t.Errorf("one EndpointSlice has changed, and there were %q", all)
		}
		g.want([]string{"shop/web"}, []string{"10.0.0.1", "10.0.0.3"})

		remote, err := g.remote.CoreV1().Services("shop").Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		remote.Spec.Ports[0].Port = 81
		if _, err := g.remote.CoreV1().Services("shop").Update(t.Context(), remote, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		writes()
		if err := g.CollectGarbage(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		if all := writes(); !slices.Equal(all, []string{"patch services"}) {
			t.Errorf("the Service was changed there, and there were %q", all)
		}
	})
}
