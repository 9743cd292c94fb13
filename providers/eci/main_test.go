package eci

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	corev1listers "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/eci/ecitest"
)

func TestMain(m *testing.M) {
	// One of them waits on the real clock, which stands still in a bubble.
	utilruntime.ErrorHandlers = nil
	goleak.VerifyTestMain(m)
}

// rig is a provider on a fake of the API.
type rig struct {
	*podgroup.Provider
	backend *backend
	cfg     Config
	api     *ecitest.Server
	pods    cache.Indexer
	objects objects
	events  *record.FakeRecorder
	tokens  *tokenGiver
	cluster types.UID // of kube-system; defaults to "here"
	node    *corev1.Node
	client  kubernetes.Interface // defaults to that of tokens
	// transport connects with the fake without sockets, in virtual time; nil is a socket.
	transport http.RoundTripper
}

func testConfig(endpoint string) Config {
	return Config{
		ClusterName: "home", Region: ecitest.Region, AccessKey: ecitest.AccessKey, SecretKey: ecitest.SecretKey,
		SecurityGroup: "sg-1", VSwitch: "vsw-1", Endpoint: endpoint, UpdateFiles: true,
	}
}

// newRig returns a rig whose groups take step for each stage. Nothing is cached, so
// that changes are visible at once.
func newRig(t *testing.T, step time.Duration, change ...func(*Config)) *rig {
	t.Helper()
	api := ecitest.New(step)
	t.Cleanup(api.Close)
	return newRigOn(t, api, change...)
}

// inVirtualTime runs a test in a bubble of synctest.
func inVirtualTime(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newVirtualRig(t, 0)) })
}

// newVirtualRig returns a rig for a bubble of synctest, whose groups take step for each stage.
func newVirtualRig(t *testing.T, step time.Duration) *rig {
	t.Helper()
	api := ecitest.On(grouptest.New(step))
	r := newRig0(api)
	r.transport = grouptest.Serve(t, api).Transport(t)
	r.Provider = r.newProvider(t, testConfig("http://eci.test"))
	return r
}

func newRig0(api *ecitest.Server) *rig {
	return &rig{
		api:     api,
		pods:    cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		objects: newObjects(),
		events:  record.NewFakeRecorder(1000),
		tokens:  &tokenGiver{life: time.Hour},
	}
}

func newRigOn(t *testing.T, api *ecitest.Server, change ...func(*Config)) *rig {
	t.Helper()
	r := newRig0(api)
	config := testConfig(api.URL)
	config.CacheFor.Duration = time.Nanosecond
	for _, f := range change {
		f(&config)
	}
	r.Provider = r.newProvider(t, config)
	return r
}

// newProvider returns a provider on the fake, and sets the rig's backend and node.
func (r *rig) newProvider(t *testing.T, config Config) *podgroup.Provider {
	t.Helper()
	if r.transport != nil {
		config.CacheFor.Duration = time.Nanosecond
	}
	r.cfg = config
	b, err := newBackend(config)
	if err != nil {
		t.Fatal(err)
	}
	if r.transport != nil {
		b.client.transport = r.transport
	}
	if r.client == nil {
		r.client = r.tokens.client(cmp.Or(r.cluster, "here"))
	}
	r.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vk"}}
	p, err := b.provider(nodeutil.ProviderConfig{
		Pods: corev1listers.NewPodLister(r.pods), Objects: r.objects, Client: r.client, Events: r.events,
		HostIPs: func() []string { return []string{"192.0.2.1"} }, NodeAllocatable: func() corev1.ResourceList { return nil },
		Node: r.node,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	r.backend = b
	return p
}

// refuse has the fake refuse the next calls of an action.
func (r *rig) refuse(action string, count, status int, code, message string) {
	r.api.Refuse(action, count, &grouptest.Refusal{Status: status, Code: code, Message: message})
}

// key has the provider use other credentials.
func (r *rig) key(id, secret, token Secret) {
	keys, err := newKeys(&Config{AccessKey: id, SecretKey: secret, SecurityToken: token})
	if err != nil {
		panic(err)
	}
	r.backend.client.keys = keys
}

// lists is how often groups were listed: how many pages of statuses were read.
func (r *rig) lists() int { return r.api.Calls("DescribeContainerGroupStatus") }

// tokenGiver returns another token each time, as an API server does.
type tokenGiver struct {
	mu    sync.Mutex
	life  time.Duration
	age   time.Duration // of a token when it is returned
	given int
}

func (g *tokenGiver) client(cluster types.UID) kubernetes.Interface {
	client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: cluster}})
	client.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.given++
		now := time.Now()
		claims := fmt.Sprintf(`{"iat":%d,"exp":%d,"jti":"%d"}`, now.Add(-g.age).Unix(), now.Add(g.life-g.age).Unix(), g.given)
		return true, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(g.life.Seconds()))},
			Status: authenticationv1.TokenRequestStatus{
				Token: "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln", ExpirationTimestamp: metav1.NewTime(now.Add(g.life)),
			},
		}, nil
	})
	return client
}

func (g *tokenGiver) setAge(age time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.age = age
}

// create creates a pod in the cache and in the provider.
func (r *rig) create(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	if err := r.pods.Add(pod); err != nil {
		t.Fatal(err)
	}
	if err := r.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if r.transport != nil {
		time.Sleep(time.Millisecond) // beyond CacheFor, in virtual time
	}
	return pod
}

func (r *rig) status(t *testing.T, pod *corev1.Pod) *corev1.PodStatus {
	t.Helper()
	status, err := r.GetPodStatusByUID(t.Context(), pod.Namespace, pod.Name, pod.UID)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

func newPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name),
			CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
		},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyAlways,
			Containers:    []corev1.Container{{Name: "main", Image: "busybox:1"}},
		},
	}
}

// objects is a node.ObjectSource.
type objects struct {
	configMaps map[string]*corev1.ConfigMap
	secrets    map[string]*corev1.Secret

	failing map[string]error // reads, by the name of the object

	mu      *sync.Mutex
	changed map[*func(kind, namespace, name string)]bool // subscribers
}

func newObjects() objects {
	return objects{
		configMaps: map[string]*corev1.ConfigMap{}, secrets: map[string]*corev1.Secret{},
		failing: map[string]error{},
		mu:      &sync.Mutex{}, changed: map[*func(kind, namespace, name string)]bool{},
	}
}

func (objects) Follow(*corev1.Pod) {}
func (objects) Forget(types.UID)   {}

func (o objects) Subscribe(changed func(kind, namespace, name string)) func() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changed[&changed] = true
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.changed, &changed)
	}
}

// change changes objects, and notifies the subscribers.
func (o objects) change(kind, name string, change func()) {
	o.mu.Lock()
	change()
	subscribers := slices.Collect(maps.Keys(o.changed))
	o.mu.Unlock()
	for _, changed := range subscribers {
		(*changed)(kind, "default", name)
	}
}

func (o objects) ConfigMap(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.failing[name]; err != nil {
		return nil, err
	}
	if found := o.configMaps[name]; found != nil {
		return found, nil
	}
	return nil, errdefs.NotFoundf("configmap %s/%s does not exist", namespace, name)
}

func (o objects) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if found := o.secrets[name]; found != nil {
		return found, nil
	}
	return nil, errdefs.NotFoundf("secret %s/%s does not exist", namespace, name)
}
