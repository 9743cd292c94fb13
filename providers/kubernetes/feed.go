package kubernetes

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// feedTimeout is for how long the remote pods may neither be listed nor watched before
// what is known of them counts as old.
const feedTimeout = 2 * time.Minute

// relistInterval is how often all remote pods may be listed again because what is known
// of them is not true.
const relistInterval = time.Minute

// feed lists and watches the remote pods of this node for an informer. It knows whether
// that works, and can have it begun again. It is safe for concurrent use.
type feed struct {
	pods     corev1client.PodInterface
	selector func() string // known by the first request
	run      func(func())  // runs a function in the background

	mu       sync.Mutex
	watches  int       // that are open
	answered time.Time // when the last request succeeded, or watch ended; at first, when the first request began
	err      error     // of the last request
	restart  chan struct{}
	fresh    bool      // nothing is to be asked for by an old version
	began    time.Time // when the watch was last ended by again
}

func (p *Provider) newFeed() *feed {
	return &feed{
		pods: p.remote.CoreV1().Pods(p.namespace), selector: func() string { return p.translate.Home.Selector() },
		run: p.running.Go, restart: make(chan struct{}),
	}
}

// list is a cache.ListWithContextFunc.
func (f *feed) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	options.LabelSelector = f.selector()
	if f.begin() {
		options.ResourceVersion, options.ResourceVersionMatch = "", ""
	}
	list, err := f.pods.List(ctx, options)
	f.end(ctx, err, true)
	return list, err
}

// watch is a cache.WatchFuncWithContext.
func (f *feed) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.LabelSelector = f.selector()
	lists := options.SendInitialEvents != nil && *options.SendInitialEvents
	if f.begin() && lists {
		options.ResourceVersion = ""
	}
	events, err := f.pods.Watch(ctx, options)
	f.end(ctx, err, lists)
	if err != nil {
		return nil, err
	}
	w := &feedWatch{Interface: events, out: make(chan watch.Event), done: make(chan struct{})}
	f.mu.Lock()
	f.watches++
	restart := f.restart
	f.mu.Unlock()
	f.run(func() {
		w.forward(restart)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.watches--
		f.answered = time.Now()
	})
	return w, nil
}

// begin is called before a request. It reports whether that is not to be by an old
// version.
func (f *feed) begin() (fresh bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answered.IsZero() {
		f.answered = time.Now()
	}
	return f.fresh
}

// end records what has come of a request.
func (f *feed) end(ctx context.Context, err error, listed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil:
		f.answered, f.err = time.Now(), nil
		f.fresh = f.fresh && !listed
	case ctx.Err() == nil:
		f.err = err
	}
}

// check returns why the remote pods have not been listed or watched for feedTimeout.
func (f *feed) check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.watches > 0 || f.answered.IsZero() || time.Since(f.answered) < feedTimeout:
		return nil
	case f.err != nil:
		return f.err
	}
	return errors.New("it does not answer")
}

// again ends the watch, so that all pods are listed again, as they are now: once in
// relistInterval at most.
func (f *feed) again() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.began.IsZero() && time.Since(f.began) < relistInterval {
		return
	}
	f.fresh, f.began = true, time.Now()
	close(f.restart)
	f.restart = make(chan struct{})
}

// feedWatch is a watch that a feed can end.
type feedWatch struct {
	watch.Interface
	out  chan watch.Event
	once sync.Once
	done chan struct{}
}

// ResultChan implements watch.Interface.
func (w *feedWatch) ResultChan() <-chan watch.Event { return w.out }

// Stop implements watch.Interface.
func (w *feedWatch) Stop() { w.once.Do(func() { close(w.done) }) }

// forward hands on the events until the watch ends, is stopped, or is to begin again.
func (w *feedWatch) forward(restart <-chan struct{}) {
	defer close(w.out)
	defer func() {
		w.Interface.Stop()
		for range w.Interface.ResultChan() { // its producer may be about to send one
		}
	}()
	for {
		var event watch.Event
		ok := true
		select {
		case event, ok = <-w.Interface.ResultChan():
		case <-restart: // as an API server says that it is to be listed again
			expired := apierrors.NewResourceExpired("the remote pods are listed again").ErrStatus
			event, restart = watch.Event{Type: watch.Error, Object: &expired}, nil
		case <-w.done:
			return
		}
		if !ok {
			return
		}
		select {
		case w.out <- event:
		case <-w.done:
			return
		}
		if restart == nil {
			return
		}
	}
}

var _ watch.Interface = (*feedWatch)(nil)

// version is that of a pod that is known; its zero value is of one that is not.
type version struct{ uid, resource string }

func versionOf(pod metav1.Object) version {
	return version{string(pod.GetUID()), pod.GetResourceVersion()}
}

// podVersions returns the versions of the remote pods that a list and a watch have shown.
func (p *Provider) podVersions() map[string]version {
	versions := map[string]version{}
	for _, obj := range p.informer.GetStore().List() {
		if remote, ok := obj.(*corev1.Pod); ok {
			versions[remote.Namespace+"/"+remote.Name] = versionOf(remote)
		}
	}
	return versions
}
