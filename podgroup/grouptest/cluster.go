package grouptest

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	corev1listers "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// Cluster is what a provider gets of a cluster: pods, ConfigMaps and Secrets, tokens, and a
// recorder of events. It is safe for concurrent use.
type Cluster struct {
	// Events has the events that were recorded, as the text of a record.FakeRecorder.
	Events *record.FakeRecorder
	// Node is the Node of the last provider.
	Node *corev1.Node

	pods   cache.Indexer
	client *fake.Clientset

	mu          sync.Mutex
	configMaps  map[string]*corev1.ConfigMap
	secrets     map[string]*corev1.Secret
	failing     map[string]error
	subscribers map[*func(kind, namespace, name string)]bool
	tokens      int
	tokenLife   time.Duration
	noTokens    error
}

// NewCluster returns a cluster whose kube-system has a UID.
func NewCluster(uid types.UID) *Cluster {
	c := &Cluster{
		Events:     record.NewFakeRecorder(1000),
		pods:       cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		client:     fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: uid}}),
		configMaps: map[string]*corev1.ConfigMap{}, secrets: map[string]*corev1.Secret{}, failing: map[string]error{},
		subscribers: map[*func(kind, namespace, name string)]bool{}, tokenLife: time.Hour,
	}
	c.client.PrependReactor("create", "serviceaccounts", func(action clienttesting.Action) (bool, runtime.Object, error) {
		token, err := c.giveToken(action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenRequest))
		return true, token, err
	})
	c.client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		pod, err := c.patchStatus(action.(clienttesting.PatchAction))
		return true, pod, err
	})
	return c
}

// patchStatus changes the annotations of a pod as a node may do it: through the status, and
// of the pod with the UID that the patch names.
func (c *Cluster) patchStatus(action clienttesting.PatchAction) (*corev1.Pod, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if action.GetSubresource() != "status" {
		return nil, apierrors.NewForbidden(corev1.Resource("pods"), action.GetName(), errors.New("a node may patch the status only"))
	}
	if err := c.failing[action.GetName()]; err != nil {
		return nil, err
	}
	var patch corev1.Pod
	if err := json.Unmarshal(action.GetPatch(), &patch); err != nil {
		return nil, err
	}
	found, ok, err := c.pods.GetByKey(action.GetNamespace() + "/" + action.GetName())
	if err != nil || !ok {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), action.GetName())
	}
	pod := found.(*corev1.Pod).DeepCopy()
	if patch.UID != pod.UID {
		return nil, apierrors.NewConflict(corev1.Resource("pods"), action.GetName(), errors.New("the UID is another one"))
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	maps.Copy(pod.Annotations, patch.Annotations)
	return pod, c.pods.Update(pod)
}

// Pod returns a pod as the API server has it, or nil.
func (c *Cluster) Pod(namespace, name string) *corev1.Pod {
	found, ok, err := c.pods.GetByKey(namespace + "/" + name)
	if err != nil || !ok {
		return nil
	}
	return found.(*corev1.Pod)
}

// giveToken returns another token each time, as an API server does. It lives as long as it
// was asked for, and at least for the cluster's time.
func (c *Cluster) giveToken(asked *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.noTokens != nil {
		return nil, c.noTokens
	}
	c.tokens++
	life := int64(c.tokenLife.Seconds())
	if seconds := asked.Spec.ExpirationSeconds; seconds != nil {
		life = max(life, *seconds)
	}
	now := time.Now()
	expires := now.Add(time.Duration(life) * time.Second)
	claims := fmt.Sprintf(`{"iat":%d,"exp":%d,"jti":"%d"}`, now.Unix(), expires.Unix(), c.tokens)
	return &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &life},
		Status: authenticationv1.TokenRequestStatus{
			Token: "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln", ExpirationTimestamp: metav1.NewTime(expires),
		},
	}, nil
}

// FailTokens has requests for tokens fail; nil undoes that.
func (c *Cluster) FailTokens(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noTokens = err
}

// Tokens is how many tokens were given.
func (c *Cluster) Tokens() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tokens
}

// Client is a client of the cluster. It knows the namespace kube-system and what tests add.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// Config returns what a provider is made with, and makes a new Node for it.
func (c *Cluster) Config() nodeutil.ProviderConfig {
	c.Node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vk"}}
	return nodeutil.ProviderConfig{
		Pods: corev1listers.NewPodLister(c.pods), Objects: objects{c}, Client: c.client, Events: c.Events,
		HostIPs: func() []string { return []string{"192.0.2.1"} }, NodeAllocatable: func() corev1.ResourceList { return nil }, Node: c.Node,
	}
}

// Start makes a provider, and closes it when the test ends.
func (c *Cluster) Start(t *testing.T, b podgroup.Backend, o podgroup.Options) (p nodeutil.Provider, n node.NodeProvider) {
	t.Helper()
	p, n, err := podgroup.New(c.Config(), b, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Close(t, p) })
	return p, n
}

// Close closes a provider.
func Close(t *testing.T, p nodeutil.Provider) {
	t.Helper()
	if closer, ok := p.(interface{ Close() error }); ok {
		if err := closer.Close(); err != nil {
			t.Error(err)
		}
	}
}

// SetPod adds or changes a pod. The cluster has a copy, so that a test may change its own while a provider reads.
func (c *Cluster) SetPod(pod *corev1.Pod) {
	_ = c.pods.Update(pod.DeepCopy()) // fails only for what is no object
}

// RemovePod removes a pod.
func (c *Cluster) RemovePod(pod *corev1.Pod) { _ = c.pods.Delete(pod) }

// SetConfigMap adds or changes a ConfigMap of the namespace default.
func (c *Cluster) SetConfigMap(name string, data map[string]string) {
	c.mu.Lock()
	c.configMaps[name] = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: data}
	c.mu.Unlock()
	c.notify("ConfigMap", name)
}

// RemoveConfigMap removes a ConfigMap of the namespace default.
func (c *Cluster) RemoveConfigMap(name string) {
	c.mu.Lock()
	delete(c.configMaps, name)
	c.mu.Unlock()
	c.notify("ConfigMap", name)
}

// SetSecret adds or changes a Secret of the namespace default.
func (c *Cluster) SetSecret(name string, kind corev1.SecretType, data map[string][]byte) {
	c.mu.Lock()
	c.secrets[name] = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Type: kind, Data: data}
	c.mu.Unlock()
	c.notify("Secret", name)
}

// FailObject has reads of the ConfigMap or Secret of a name fail, and patches of the pod of
// that name; nil undoes that.
func (c *Cluster) FailObject(name string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failing[name] = err
}

func (c *Cluster) notify(kind, name string) {
	c.mu.Lock()
	subscribers := slices.Collect(maps.Keys(c.subscribers))
	c.mu.Unlock()
	for _, changed := range subscribers {
		(*changed)(kind, metav1.NamespaceDefault, name)
	}
}

// objects is the node.ObjectSource of a Cluster.
type objects struct{ c *Cluster }

// Follow implements node.ObjectSource.
func (objects) Follow(*corev1.Pod) {}

// Forget implements node.ObjectSource.
func (objects) Forget(types.UID) {}

// Subscribe implements node.ObjectSource.
func (o objects) Subscribe(changed func(kind, namespace, name string)) func() {
	o.c.mu.Lock()
	defer o.c.mu.Unlock()
	o.c.subscribers[&changed] = true
	return func() {
		o.c.mu.Lock()
		defer o.c.mu.Unlock()
		delete(o.c.subscribers, &changed)
	}
}

// ConfigMap implements node.ObjectSource.
func (o objects) ConfigMap(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return read(o.c, o.c.configMaps, namespace, name)
}

// Secret implements node.ObjectSource.
func (o objects) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	return read(o.c, o.c.secrets, namespace, name)
}

func read[T any](c *Cluster, from map[string]*T, namespace, name string) (*T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.failing[name]; err != nil {
		return nil, err
	}
	if found := from[name]; found != nil {
		return found, nil
	}
	return nil, errdefs.NotFoundf("%s/%s does not exist", namespace, name)
}

// NewPod returns a pod of the namespace default with one container, main, that is started
// again whenever it ends. Its UID is made of the name, in the form of those of API servers.
func NewPod(name string) *corev1.Pod {
	sum := sha256.Sum256([]byte(name))
	uid := types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16]))
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: name, UID: uid, Generation: 1,
			CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
		},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyAlways,
			Containers:    []corev1.Container{{Name: "main", Image: "busybox:1"}},
		},
	}
}
