package podobjects

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/listwatch"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
)

// watch is what a reflector knows of one object: it is the reflector's store.
// The cache's lock guards its fields.
type watch struct {
	cache  *Cache
	of     podenv.Object
	cancel context.CancelFunc
	ended  <-chan struct{}

	answered   chan struct{} // closed with the first answer, be it an error
	isAnswered bool
	synced     bool          // object is what the API server has
	object     metav1.Object // nil: it does not exist
	err        error         // why it is not synced
	read       time.Time     // last
}

// begin begins to watch an object. c.mu is held.
func (c *Cache) begin(object podenv.Object) *watch {
	ctx, cancel := context.WithCancel(c.running)
	w := &watch{cache: c, of: object, cancel: cancel, ended: ctx.Done(), answered: make(chan struct{})}
	kind := kinds[object.Kind]
	// A request that was refused is repeated soon at first: the Node authorizer learns of a
	// pod's references a moment after the node learns of the pod.
	what := object.Kind + " " + object.Namespace + "/" + object.Name
	lw := listwatch.PatientOfMany(what, kind.listWatch(c.client, w))
	c.watches.Go(func() { listwatch.Reflect(ctx, what, c.client, lw, kind.example, w, 0) })
	return w
}

// fail records that the object cannot be read, unless err is nil. A list or watch
// that is answered with "not found" (by a proxy, or an API server that does not serve
// the path yet) does not mean that the object does not exist: a list says that by
// being empty.
func (w *watch) fail(err error) {
	if err == nil {
		return
	}
	if errdefs.IsNotFound(err) {
		err = errdefs.AsUnavailable(fmt.Errorf("cannot list or watch %s %s/%s: %v", w.of.Kind, w.of.Namespace, w.of.Name, err))
	}
	w.cache.mu.Lock()
	defer w.cache.mu.Unlock()
	w.err = err
	w.answer()
}

// set records what the API server has; nil stands for nothing. Subscribers are
// called for nothing, too, where a read has failed before: a pod may wait to learn
// that an optional object does not exist.
func (w *watch) set(object metav1.Object) {
	w.cache.mu.Lock()
	if object != nil {
		listwatch.Trim(object)
	}
	awaited := object != nil || !w.synced && w.err != nil
	w.object, w.synced, w.err = object, true, nil
	w.answer()
	w.cache.mu.Unlock()
	if awaited {
		w.cache.notify(w.of)
	}
}

func (w *watch) answer() {
	if !w.isAnswered {
		w.isAnswered = true
		close(w.answered)
	}
}

// is reports whether obj is the object, which the selector has seen to where the
// server knows selectors; the fake clientset does not.
func (w *watch) is(obj any) (metav1.Object, bool) {
	object, ok := obj.(metav1.Object)
	return object, ok && object.GetName() == w.of.Name
}

// Add implements cache.ReflectorStore.
func (w *watch) Add(obj any) error {
	if object, ok := w.is(obj); ok {
		w.set(object)
	}
	return nil
}

// Update implements cache.ReflectorStore.
func (w *watch) Update(obj any) error { return w.Add(obj) }

// Delete implements cache.ReflectorStore.
func (w *watch) Delete(obj any) error {
	if _, ok := w.is(obj); ok {
		w.set(nil)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (w *watch) Replace(all []any, _ string) error {
	for _, obj := range all {
		if object, ok := w.is(obj); ok {
			w.set(object)
			return nil
		}
	}
	w.set(nil)
	return nil
}

// Resync implements cache.ReflectorStore.
func (w *watch) Resync() error { return nil }

// kind is how objects of a kind are read.
type kind struct {
	resource  string
	example   runtime.Object
	get       func(ctx context.Context, client kubernetes.Interface, namespace, name string) (metav1.Object, error)
	listWatch func(client kubernetes.Interface, w *watch) *cache.ListWatch
}

var kinds = map[string]kind{
	kindConfigMap: {
		resource: "configmaps",
		example:  &corev1.ConfigMap{},
		get: func(ctx context.Context, client kubernetes.Interface, namespace, name string) (metav1.Object, error) {
			return client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
		},
		listWatch: func(client kubernetes.Interface, w *watch) *cache.ListWatch {
			return listWatch(w, client.CoreV1().ConfigMaps(w.of.Namespace))
		},
	},
	kindSecret: {
		resource: "secrets",
		example:  &corev1.Secret{},
		get: func(ctx context.Context, client kubernetes.Interface, namespace, name string) (metav1.Object, error) {
			return client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		},
		listWatch: func(client kubernetes.Interface, w *watch) *cache.ListWatch {
			return listWatch(w, client.CoreV1().Secrets(w.of.Namespace))
		},
	},
}

func listWatch[L runtime.Object](w *watch, objects listwatch.Objects[L]) *cache.ListWatch {
	return listwatch.Of(recorded[L]{objects, w}, func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, w.of.Name).String()
	})
}

// recorded are objects whose errors a watch records.
type recorded[L runtime.Object] struct {
	listwatch.Objects[L]
	by *watch
}

// List implements listwatch.Objects.
func (r recorded[L]) List(ctx context.Context, options metav1.ListOptions) (L, error) {
	list, err := r.Objects.List(ctx, options)
	r.by.fail(err)
	return list, err
}

// Watch implements listwatch.Objects.
func (r recorded[L]) Watch(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error) {
	events, err := r.Objects.Watch(ctx, options)
	r.by.fail(err)
	return events, err
}
