package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// record is what the server knows of a pod. It does not change: it is replaced.
type record struct {
	// Pod is the pod for the provider: its volumes refer to the objects.
	Pod        *corev1.Pod        `json:"pod"`
	ConfigMaps []corev1.ConfigMap `json:"configMaps"`
	Secrets    []corev1.Secret    `json:"secrets"`
	// Created means that the provider has accepted the pod, Deleting that its deletion was
	// asked for.
	Created  bool `json:"created"`
	Deleting bool `json:"deleting"`
}

// deadline is the end of the grace period of a pod whose deletion was asked for.
func (r *record) deadline() time.Time {
	return r.Pod.DeletionTimestamp.Add(time.Duration(*r.Pod.DeletionGracePeriodSeconds) * time.Second)
}

// cluster is what the provider has instead of a cluster: the pods and their objects. It is
// safe for concurrent use.
type cluster struct {
	opts       Options
	pods       cache.Indexer
	configMaps cache.Indexer
	secrets    cache.Indexer

	mu    sync.Mutex
	known map[types.UID]*record
	node  *corev1.Node
}

// newCluster loads the pods.
func newCluster(o Options) (*cluster, error) {
	indexer := func() cache.Indexer {
		return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	}
	c := &cluster{opts: o, pods: indexer(), configMaps: indexer(), secrets: indexer(), known: map[types.UID]*record{}}
	if o.Store == nil {
		return c, nil
	}
	texts, err := o.Store.Load()
	if err != nil {
		return nil, fmt.Errorf("cannot load the pods: %w", err)
	}
	for uid, text := range texts {
		var found record
		if err := json.Unmarshal(text, &found); err != nil || found.Pod == nil || string(found.Pod.UID) != uid {
			return nil, fmt.Errorf("cannot load pod %s: its text is damaged", uid)
		}
		c.put(&found)
	}
	return c, nil
}

// config returns what a provider is made with.
func (c *cluster) config(ctx context.Context) (nodeutil.ProviderConfig, error) {
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://no-cluster", Transport: noCluster{c.opts.ClusterUID}, QPS: -1})
	if err != nil {
		return nodeutil.ProviderConfig{}, err
	}
	c.node = &corev1.Node{}
	c.node.Name, c.node.Labels, c.node.Annotations = c.opts.NodeName, map[string]string{}, map[string]string{}
	services := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	return nodeutil.ProviderConfig{
		Pods: corev1listers.NewPodLister(c.pods), ConfigMaps: corev1listers.NewConfigMapLister(c.configMaps), Secrets: corev1listers.NewSecretLister(c.secrets),
		Services: corev1listers.NewServiceLister(services), Objects: objects{c}, Client: client, Events: loggedEvents{ctx},
		HostIPs: func() []string { return c.opts.HostIPs }, NodeAllocatable: func() corev1.ResourceList { return c.currentNode().Status.Allocatable },
		Metrics: prometheus.NewRegistry(), Node: c.node,
	}, nil
}

func (c *cluster) setNode(n *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.node = n.DeepCopy()
}

// currentNode returns the node as the provider has made or reported it last.
func (c *cluster) currentNode() *corev1.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.node.DeepCopy()
}

func (c *cluster) records() []*record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.known))
}

// record returns what is known of a pod, or nil.
func (c *cluster) record(uid types.UID) *record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[uid]
}

// named returns the pod of a name, or nil.
func (c *cluster) named(namespace, name string) *record {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.known {
		if r.Pod.Namespace == namespace && r.Pod.Name == name {
			return r
		}
	}
	return nil
}

// set stores a record, which may be new.
func (c *cluster) set(r *record) error {
	if c.opts.Store != nil {
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if err := c.opts.Store.Save(string(r.Pod.UID), text); err != nil {
			return errdefs.AsUnavailable(fmt.Errorf("cannot store the pod: %w", err))
		}
	}
	c.put(r)
	return nil
}

func (c *cluster) put(r *record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[r.Pod.UID] = r
	// An indexer fails only for what is no object.
	_ = c.pods.Update(r.Pod)
	for i := range r.ConfigMaps {
		_ = c.configMaps.Update(&r.ConfigMaps[i])
	}
	for i := range r.Secrets {
		_ = c.secrets.Update(&r.Secrets[i])
	}
}

// drop forgets a pod. The provider goes on to see another one that has its name.
func (c *cluster) drop(r *record) error {
	if c.opts.Store != nil {
		if err := c.opts.Store.Delete(string(r.Pod.UID)); err != nil {
			return errdefs.AsUnavailable(fmt.Errorf("cannot remove the pod from the store: %w", err))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, r.Pod.UID)
	if found, ok, _ := c.pods.Get(r.Pod); ok && found.(*corev1.Pod).UID == r.Pod.UID {
		_ = c.pods.Delete(r.Pod)
	}
	for i := range r.ConfigMaps {
		_ = c.configMaps.Delete(&r.ConfigMaps[i])
	}
	for i := range r.Secrets {
		_ = c.secrets.Delete(&r.Secrets[i])
	}
	return nil
}

// objects is the node.ObjectSource of a cluster. Objects never change.
type objects struct{ c *cluster }

// Follow implements node.ObjectSource.
func (objects) Follow(*corev1.Pod) {}

// Forget implements node.ObjectSource.
func (objects) Forget(types.UID) {}

// Subscribe implements node.ObjectSource.
func (objects) Subscribe(func(kind, namespace, name string)) func() { return func() {} }

// ConfigMap implements node.ObjectSource.
func (o objects) ConfigMap(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return object[*corev1.ConfigMap](o.c.configMaps, "ConfigMap", namespace, name)
}

// Secret implements node.ObjectSource.
func (o objects) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	return object[*corev1.Secret](o.c.secrets, "Secret", namespace, name)
}

func object[T any](from cache.Indexer, kind, namespace, name string) (none T, err error) {
	found, ok, err := from.GetByKey(namespace + "/" + name)
	if err != nil || !ok {
		return none, errdefs.NotFoundf("%s %s/%s has not come with a pod", kind, namespace, name)
	}
	return found.(T), nil
}

// noCluster answers requests to an API server: there is the namespace kube-system, with the
// UID that stands for the cluster, and nothing else.
type noCluster struct{ uid types.UID }

// RoundTrip implements http.RoundTripper.
func (c noCluster) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	var value any = metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound,
		Message: "a plugin of interLink has no cluster", Code: http.StatusNotFound,
	}
	code := http.StatusNotFound
	if r.Method == http.MethodGet && r.URL.Path == "/api/v1/namespaces/"+metav1.NamespaceSystem {
		value, code = corev1.Namespace{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: c.uid},
		}, http.StatusOK
	}
	text, err := json.Marshal(value)
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)), ContentLength: int64(len(text)),
	}, err
}

// loggedEvents is a record.EventRecorder that logs.
type loggedEvents struct{ ctx context.Context }

// Event implements record.EventRecorder.
func (e loggedEvents) Event(about runtime.Object, kind, reason, message string) {
	fields := log.Fields{"reason": reason}
	if pod, ok := about.(*corev1.Pod); ok {
		fields["namespace"], fields["pod"], fields["uid"] = pod.Namespace, pod.Name, string(pod.UID)
	}
	logger := log.G(e.ctx).WithFields(fields).WithField("message", message)
	if kind == corev1.EventTypeWarning {
		logger.Warn("Event")
		return
	}
	logger.Info("Event")
}

// Eventf implements record.EventRecorder.
func (e loggedEvents) Eventf(about runtime.Object, kind, reason, format string, args ...any) {
	e.Event(about, kind, reason, fmt.Sprintf(format, args...))
}

// AnnotatedEventf implements record.EventRecorder.
func (e loggedEvents) AnnotatedEventf(about runtime.Object, _ map[string]string, kind, reason, format string, args ...any) {
	e.Eventf(about, kind, reason, format, args...)
}
