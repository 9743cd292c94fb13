package podobjects

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
)

// maxIdle is how long a watch lives without a read. It is longer than the
// longest delay between two attempts to create a pod, so that what a pod waits
// for stays watched.
const maxIdle = 5 * time.Minute

// Cache holds the objects. It is safe for concurrent use; what it returns is
// read only.
type Cache struct {
	client kubernetes.Interface

	mu          sync.Mutex
	running     context.Context // nil unless Run runs
	watches     sync.WaitGroup
	entries     map[podenv.Object]*entry
	pods        map[types.UID][]podenv.Object // what each names; a map of it would take much more memory
	subscribers map[*func(kind, namespace, name string)]struct{}
}

// entry is an object that pods name.
type entry struct {
	pods  int    // that name it
	watch *watch // nil while nobody reads it
}

// New makes a Cache. Until Run it reads from the API server at each call.
func New(client kubernetes.Interface) *Cache {
	return &Cache{
		client:      client,
		entries:     map[podenv.Object]*entry{},
		pods:        map[types.UID][]podenv.Object{},
		subscribers: map[*func(kind, namespace, name string)]struct{}{},
	}
}

// Run lets reads be answered from watches, until ctx ends. It returns when all
// watches have ended. It can be called once.
func (c *Cache) Run(ctx context.Context) {
	c.mu.Lock()
	c.running = ctx
	c.mu.Unlock()
	tick := time.NewTicker(maxIdle / 5)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			c.stopIdle(now)
		case <-ctx.Done():
			c.mu.Lock()
			c.running = nil
			for _, e := range c.entries {
				e.stop()
			}
			c.mu.Unlock()
			c.watches.Wait()
			return
		}
	}
}

func (c *Cache) stopIdle(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		if e.watch != nil && now.Sub(e.watch.read) > maxIdle {
			e.stop()
		}
	}
}

func (e *entry) stop() {
	if e.watch != nil {
		e.watch.cancel()
		e.watch = nil
	}
}

// Follow lets what pod names be watched, from the first read until Forget. It is
// to be called again when the pod's containers have changed.
func (c *Cache) Follow(pod *corev1.Pod) {
	added := References(pod)
	named := slices.AppendSeq(make([]podenv.Object, 0, len(added)), maps.Keys(added))
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, object := range c.pods[pod.UID] {
		if _, still := added[object]; !still {
			c.release(object)
		}
		delete(added, object)
	}
	for object := range added {
		if c.entries[object] == nil {
			c.entries[object] = &entry{}
		}
		c.entries[object].pods++
	}
	c.pods[pod.UID] = named
}

// Forget undoes Follow. It does nothing about a pod that is not followed.
func (c *Cache) Forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, object := range c.pods[uid] {
		c.release(object)
	}
	delete(c.pods, uid)
}

// Followed is the number of pods that are followed.
func (c *Cache) Followed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pods)
}

// release takes back one pod's interest in an object. c.mu is held.
func (c *Cache) release(object podenv.Object) {
	e := c.entries[object]
	e.pods--
	if e.pods == 0 {
		e.stop()
		delete(c.entries, object)
	}
}

// Subscribe has changed called when an object that is watched appears or
// changes. The calls must not block. unsubscribe ends them.
func (c *Cache) Subscribe(changed func(kind, namespace, name string)) (unsubscribe func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscribers[&changed] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.subscribers, &changed)
	}
}

func (c *Cache) notify(object podenv.Object) {
	c.mu.Lock()
	subscribers := make([]func(kind, namespace, name string), 0, len(c.subscribers))
	for changed := range c.subscribers {
		subscribers = append(subscribers, *changed)
	}
	c.mu.Unlock()
	for _, changed := range subscribers {
		changed(object.Kind, object.Namespace, object.Name)
	}
}

// ConfigMap returns a ConfigMap. One that a followed pod names is watched from
// now on; it waits for the first answer. Any other is read from the API server.
// An object that does not exist is a NotFound error of the Kubernetes API.
func (c *Cache) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return read[*corev1.ConfigMap](ctx, c, podenv.Object{Kind: kindConfigMap, Namespace: namespace, Name: name})
}

// Secret is ConfigMap for Secrets.
func (c *Cache) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return read[*corev1.Secret](ctx, c, podenv.Object{Kind: kindSecret, Namespace: namespace, Name: name})
}

func read[T metav1.Object](ctx context.Context, c *Cache, object podenv.Object) (none T, _ error) {
	found, err := c.read(ctx, object)
	if err != nil {
		return none, err
	}
	return found.(T), nil
}

func (c *Cache) read(ctx context.Context, object podenv.Object) (metav1.Object, error) {
	w := c.watchOf(object)
	if w == nil {
		return kinds[object.Kind].get(ctx, c.client, object.Namespace, object.Name)
	}
	select {
	case <-w.answered:
	case <-w.ended:
		return nil, fmt.Errorf("stopped while waiting for %s %s/%s", object.Kind, object.Namespace, object.Name)
	case <-ctx.Done():
		return nil, fmt.Errorf("no answer yet about %s %s/%s: %w", object.Kind, object.Namespace, object.Name, context.Cause(ctx))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !w.synced:
		return nil, w.err
	case w.object == nil:
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: kinds[object.Kind].resource}, object.Name)
	}
	return w.object, nil
}

// watchOf returns the watch of an object, which it begins where there is none
// yet, or nil if the object is not to be watched.
func (c *Cache) watchOf(object podenv.Object) *watch {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[object]
	if e == nil || c.running == nil {
		return nil
	}
	if e.watch == nil {
		e.watch = c.begin(object)
	}
	e.watch.read = time.Now()
	return e.watch
}
