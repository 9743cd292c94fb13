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

// listWatchTimeout is how long listing and watching the remote pods may fail before the
// cache counts as outdated.
const listWatchTimeout = 2 * time.Minute

// relistInterval is the minimum interval between relists because the cache is wrong.
const relistInterval = time.Minute

// podListWatch lists and watches the remote pods of this node for an informer. Unlike
// listwatch.Of it records whether that works, and can force a relist. It is safe for concurrent use.
type podListWatch struct {
	pods     corev1client.PodInterface
	selector func() string               // known by the first request
	confirm  func(context.Context) error // called after each request: the error counts as that of the request
	run      func(func())                // runs a function in the background

	mu            sync.Mutex
	watches       int       // that are open
	answered      time.Time // when the last request succeeded, or watch ended; initially when the first request was sent
	err           error     // of the last request
	restart       chan struct{}
	ignoreVersion bool      // the next list must be the current state, not that of a resource version
	relisted      time.Time // when relist last ended the watch
}

func (p *Provider) newPodListWatch() *podListWatch {
	return &podListWatch{
		pods: p.remote.CoreV1().Pods(p.namespace), selector: func() string { return p.translate.Home.Selector() }, confirm: p.checkRemoteCluster,
		run: p.running.Go, restart: make(chan struct{}),
	}
}

// list is a cache.ListWithContextFunc.
func (f *podListWatch) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	options.LabelSelector = f.selector()
	if f.beforeRequest() {
		options.ResourceVersion, options.ResourceVersionMatch = "", ""
	}
	list, err := f.pods.List(ctx, options)
	if err == nil {
		err = f.confirm(ctx)
	}
	f.afterRequest(ctx, err, true)
	if err != nil {
		return nil, err
	}
	return list, nil
}

// watch is a cache.WatchFuncWithContext.
func (f *podListWatch) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.LabelSelector = f.selector()
	lists := options.SendInitialEvents != nil && *options.SendInitialEvents
	if f.beforeRequest() && lists {
		options.ResourceVersion = ""
	}
	source, err := f.pods.Watch(ctx, options)
	if err == nil {
		if err = f.confirm(ctx); err != nil {
			source.Stop()
		}
	}
	f.afterRequest(ctx, err, lists)
	if err != nil {
		return nil, err
	}
	events := make(chan watch.Event)
	proxy := watch.NewProxyWatcher(events)
	f.mu.Lock()
	f.watches++
	restart := f.restart
	f.mu.Unlock()
	f.run(func() {
		forward(proxy, events, source, restart)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.watches--
		f.answered = time.Now()
	})
	return proxy, nil
}

// beforeRequest is called before each request. It reports whether the request must not
// name a resource version.
func (f *podListWatch) beforeRequest() (fresh bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answered.IsZero() {
		f.answered = time.Now()
	}
	return f.ignoreVersion
}

// afterRequest records the result of a request.
func (f *podListWatch) afterRequest(ctx context.Context, err error, listed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil:
		f.answered, f.err = time.Now(), nil
		f.ignoreVersion = f.ignoreVersion && !listed
	case ctx.Err() == nil:
		f.err = err
	}
}

// check returns an error if the remote pods could not be listed or watched for
// listWatchTimeout.
func (f *podListWatch) check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.watches > 0 || f.answered.IsZero() || time.Since(f.answered) < listWatchTimeout:
		return nil
	case f.err != nil:
		return f.err
	}
	return errors.New("no response")
}

// relist ends the watch, so that the informer lists the current state of all pods, at
// most once in relistInterval.
func (f *podListWatch) relist() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.relisted.IsZero() && time.Since(f.relisted) < relistInterval {
		return
	}
	f.ignoreVersion, f.relisted = true, time.Now()
	close(f.restart)
	f.restart = make(chan struct{})
}

// forward forwards the events of source until it ends, proxy is stopped, or the watch is
// restarted.
func forward(proxy *watch.ProxyWatcher, events chan<- watch.Event, source watch.Interface, restart <-chan struct{}) {
	defer close(events)
	defer func() {
		source.Stop()
		for range source.ResultChan() { // the producer may be blocked on sending one
		}
	}()
	for {
		var event watch.Event
		ok := true
		select {
		case event, ok = <-source.ResultChan():
		case <-restart: // the error with which an API server asks for a relist
			expired := apierrors.NewResourceExpired("the remote pods are listed again").ErrStatus
			event, restart = watch.Event{Type: watch.Error, Object: &expired}, nil
		case <-proxy.StopChan():
			return
		}
		if !ok {
			return
		}
		select {
		case events <- event:
		case <-proxy.StopChan():
			return
		}
		if restart == nil {
			return
		}
	}
}

// version identifies a version of a pod; the zero value means that the pod does not
// exist.
type version struct{ uid, resource string }

func versionOf(pod metav1.Object) version {
	return version{string(pod.GetUID()), pod.GetResourceVersion()}
}

// podVersions returns the versions of the remote pods in the cache.
func (p *Provider) podVersions() map[string]version {
	versions := map[string]version{}
	for _, obj := range p.informer.GetStore().List() {
		if remote, ok := obj.(*corev1.Pod); ok {
			versions[remote.Namespace+"/"+remote.Name] = versionOf(remote)
		}
	}
	return versions
}
