package vkubelet

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// start runs run until the test ends, and then expects no error. It must be
// called in a bubble.
func start(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

// notifying is a holder that notifies of its pods.
type notifying struct {
	holder
	asked chan struct{}
}

func (p *notifying) NotifyPods(context.Context, func(*corev1.Pod)) { close(p.asked) }

// nodeutil.AsProvider does not hide that a provider notifies.
func TestServerOfAsProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider := &notifying{asked: make(chan struct{})}
		server := New(Config{Client: fake.NewClientset(), NodeName: "node", Provider: nodeutil.AsProvider(provider)})
		start(t, server.Run)
		<-server.Ready()
		select {
		case <-provider.asked:
		default:
			t.Error("NotifyPods was not called")
		}
	})
}

func TestServerRunsThePodsOfItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine := newPod("default", "mine", "node")
		mine.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "COLOUR", ValueFrom: &corev1.EnvVarSource{
			ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "paint"}, Key: "colour"},
		}}}
		client := fake.NewClientset(mine, newPod("default", "foreign", "other"),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "paint"}, Data: map[string]string{"colour": "blue"}})
		provider := &holder{}
		server := New(Config{Client: client, NodeName: "node", Provider: provider, PodSyncWorkers: 2})
		select {
		case <-server.Ready():
			t.Fatal("ready before it runs")
		default:
		}
		start(t, server.Run)
		<-server.Ready()
		time.Sleep(10 * time.Second) // two polls
		synctest.Wait()

		if got := provider.names(); !slices.Equal(got, []string{"default/mine"}) {
			t.Fatalf("the provider holds %v", got)
		}
		held, _ := provider.GetPod(t.Context(), "default", "mine")
		if env := held.Spec.Containers[0].Env; !slices.ContainsFunc(env, func(e corev1.EnvVar) bool { return e.Name == "COLOUR" && e.Value == "blue" }) {
			t.Errorf("the environment is not resolved: %v", env)
		}
		pod, err := client.CoreV1().Pods("default").Get(t.Context(), "mine", metav1.GetOptions{})
		if err != nil || pod.Status.Phase != corev1.PodRunning {
			t.Errorf("status: %v, %v", pod.Status.Phase, err)
		}
		events, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.Reason == ReasonProviderCreateSuccess && e.InvolvedObject.Name == "mine" && e.Source.Host == "node"
		}) {
			t.Errorf("no event %s among %v", ReasonProviderCreateSuccess, events.Items)
		}
	})
}

func TestServerWatchesOnlyWhatItNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		server := New(Config{Client: client, Namespace: "team", NodeName: "node", Provider: &holder{}})
		start(t, server.Run)
		<-server.Ready()
		lists := map[string]bool{}
		for _, action := range client.Actions() {
			list, ok := action.(clienttesting.ListAction)
			if !ok {
				continue
			}
			resource := action.GetResource().Resource
			lists[resource] = true
			namespace := "team"
			if resource == "services" {
				namespace = ""
			}
			if action.GetNamespace() != namespace {
				t.Errorf("%s are listed in namespace %q, not %q", resource, action.GetNamespace(), namespace)
			}
			if fields := list.GetListRestrictions().Fields.String(); resource == "pods" && fields != "spec.nodeName=node" {
				t.Errorf("pods are listed with the field selector %q", fields)
			}
		}
		if want := map[string]bool{"pods": true, "services": true}; !maps.Equal(lists, want) {
			t.Errorf("lists: %v, want %v: ConfigMaps and Secrets only once a pod names them", lists, want)
		}
	})
}

func TestServerUsesTheInformersItIsGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(newPod("default", "mine", "node"), newPod("default", "foreign", "other"))
		factory := informers.NewSharedInformerFactory(client, 0)
		core := factory.Core().V1()
		rm, err := NewResourceManagerFromInformers(core.Pods(), core.Secrets(), core.ConfigMaps(), core.Services())
		if err != nil {
			t.Fatal(err)
		}
		provider := &holder{}
		server := New(Config{Client: client, NodeName: "node", Provider: provider, ResourceManager: rm, PodInformer: core.Pods()})
		start(t, server.Run)

		synctest.Wait()
		for _, action := range client.Actions() {
			t.Errorf("the server has an informer of its own: %s %s", action.GetVerb(), action.GetResource().Resource)
		}
		select {
		case <-server.Ready():
			t.Fatal("ready before the caches have synced")
		default:
		}
		ctx, cancel := context.WithCancel(t.Context())
		factory.StartWithContext(ctx)
		t.Cleanup(func() { cancel(); factory.Shutdown() })
		<-server.Ready()
		synctest.Wait()
		if got := provider.names(); !slices.Equal(got, []string{"default/mine"}) {
			t.Errorf("the provider holds %v", got)
		}
		if pods := rm.GetPods(); len(pods) != 2 {
			t.Errorf("the resource manager has %d pods", len(pods))
		}
	})
}

func TestServerNoticesAConfigMapThatAppears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := newPod("default", "mine", "node")
		pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "paint"},
		}}}
		client := fake.NewClientset(pod)
		factory := informers.NewSharedInformerFactory(client, 0)
		core := factory.Core().V1()
		rm, err := NewResourceManager(core.Pods().Lister(), core.Secrets().Lister(), core.ConfigMaps().Lister(), core.Services().Lister())
		if err != nil {
			t.Fatal(err)
		}
		provider := &holder{}
		server := New(Config{Client: client, NodeName: "node", Provider: provider, ResourceManager: rm})
		start(t, server.Run)
		<-server.Ready()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := provider.names(); len(got) != 0 {
			t.Fatalf("the provider holds %v though the ConfigMap is missing", got)
		}
		paint := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "paint"}, Data: map[string]string{"COLOUR": "blue"}}
		if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), paint, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := provider.names(); len(got) != 1 {
			t.Errorf("the provider holds %v a second after the ConfigMap appeared", got)
		}
	})
}

func TestServerRefusesAnIncompleteConfig(t *testing.T) {
	client := fake.NewClientset()
	for field, cfg := range map[string]Config{
		"Client":   {NodeName: "node", Provider: &holder{}},
		"Provider": {Client: client, NodeName: "node"},
		"NodeName": {Client: client, Provider: &holder{}},
	} {
		err := New(cfg).Run(t.Context())
		if !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), "lacks a "+field) {
			t.Errorf("without %s: %v", field, err)
		}
	}
	if err := NewPodController(nil).Run(t.Context(), 1); !errdefs.IsInvalidInput(err) {
		t.Errorf("without a server: %v", err)
	}
}

func TestServerRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := New(Config{Client: fake.NewClientset(), NodeName: "node", Provider: &holder{}})
		start(t, server.Run)
		<-server.Ready()
		if err := server.Run(t.Context()); err == nil {
			t.Error("it can be run twice")
		}
	})
}

func TestServerStopsBeforeItsCachesHaveSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		unstarted := informers.NewSharedInformerFactory(client, 0).Core().V1().Pods()
		start(t, New(Config{Client: client, Provider: &holder{}, PodInformer: unstarted}).Run)
		synctest.Wait()
	})
}

func TestNewPodControllerMakesItsServerReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := New(Config{Client: fake.NewClientset(), NodeName: "node", Provider: &holder{}})
		controller := NewPodController(server)
		start(t, func(ctx context.Context) error { return controller.Run(ctx, 3) })
		<-controller.Ready()
		<-server.Ready()
	})
}
