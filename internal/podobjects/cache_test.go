package podobjects_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podobjects"
)

func TestMain(m *testing.M) {
	// One of them waits on the real clock, which stands still in a bubble.
	utilruntime.ErrorHandlers = nil
	goleak.VerifyTestMain(m)
}

// rig is a cache that runs on a fake API server.
type rig struct {
	*podobjects.Cache
	t        *testing.T
	client   *fake.Clientset
	mu       sync.Mutex
	notified []string
	stop     context.CancelFunc
}

func bubble(t *testing.T, f func(r *rig), objects ...runtime.Object) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, client: fake.NewClientset(objects...)}
		r.Cache = podobjects.New(r.client)
		unsubscribe := r.Subscribe(func(kind, namespace, name string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.notified = append(r.notified, kind+" "+namespace+"/"+name)
		})
		defer unsubscribe()
		var ctx context.Context
		ctx, r.stop = context.WithCancel(t.Context())
		var group wait.Group
		group.StartWithContext(ctx, r.Run)
		synctest.Wait()
		f(r)
		r.stop()
		group.Wait()
	})
}

// requests returns what was asked of the API server since the last call.
func (r *rig) requests() (all []string) {
	synctest.Wait()
	for _, action := range r.client.Actions() {
		switch action.GetVerb() {
		case "create", "update", "delete":
			continue // the test itself
		}
		text := action.GetVerb() + " " + action.GetResource().Resource + " " + action.GetNamespace()
		switch action := action.(type) {
		case clienttesting.GetAction:
			text += "/" + action.GetName()
		case clienttesting.ListAction:
			text += " " + action.GetListRestrictions().Fields.String()
		case clienttesting.WatchAction:
			text += " " + action.GetWatchRestrictions().Fields.String()
		}
		all = append(all, text)
	}
	r.client.ClearActions()
	return all
}

func (r *rig) wantRequests(want ...string) {
	r.t.Helper()
	if got := r.requests(); !slices.Equal(got, want) {
		r.t.Errorf("requests: %q, want %q", got, want)
	}
}

func (r *rig) wantNotified(want ...string) {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.notified, want) {
		r.t.Errorf("notified of %q, want %q", r.notified, want)
	}
	r.notified = nil
}

// discard forgets the notifications so far.
func (r *rig) discard() {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notified = nil
}

// color reads a key of ConfigMap default/NAME; "none" stands for no ConfigMap.
func (r *rig) color(name string) string {
	r.t.Helper()
	cm, err := r.ConfigMap(r.t.Context(), "default", name)
	if apierrors.IsNotFound(err) {
		return "none"
	}
	if err != nil {
		r.t.Errorf("reading ConfigMap %s: %v", name, err)
		return ""
	}
	return cm.Data["color"]
}

func (r *rig) wantColor(name, want string) {
	r.t.Helper()
	if got := r.color(name); got != want {
		r.t.Errorf("ConfigMap %s has %q, want %q", name, got, want)
	}
}

func configMap(name, color string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"color": color}},
		Data:       map[string]string{"color": color},
	}
}

func secret(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

// podWith names ConfigMaps by its environment, and one Secret of its own name.
func podWith(name string, configMaps ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
	var from []corev1.EnvFromSource
	for _, cm := range configMaps {
		from = append(from, corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: cm}}})
	}
	p.Spec.Containers = []corev1.Container{{Name: "c", EnvFrom: from}}
	p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: name}}
	return p
}

const (
	listPaint  = "list configmaps default metadata.name=paint"
	watchPaint = "watch configmaps default metadata.name=paint"
)

func TestEachObjectIsWatchedOnceAndOnlyIfItIsRead(t *testing.T) {
	bubble(t, func(r *rig) {
		r.Follow(podWith("a", "paint"))
		r.Follow(podWith("b", "paint"))
		r.wantRequests()
		for range 3 {
			r.wantColor("paint", "red")
		}
		r.wantRequests(listPaint, watchPaint)
		if _, err := r.Secret(r.t.Context(), "default", "a"); err != nil {
			r.t.Error(err)
		}
		r.wantRequests("list secrets default metadata.name=a", "watch secrets default metadata.name=a")
	}, configMap("paint", "red"), configMap("other", "blue"), secret("a"), secret("b"))
}

func TestChangesAreSeenAndNotified(t *testing.T) {
	bubble(t, func(r *rig) {
		r.Follow(podWith("a", "paint"))
		r.wantColor("paint", "none")
		r.wantNotified()
		configMaps := r.client.CoreV1().ConfigMaps("default")
		if _, err := configMaps.Create(r.t.Context(), configMap("paint", "red"), metav1.CreateOptions{}); err != nil {
			r.t.Fatal(err)
		}
		r.wantNotified("ConfigMap default/paint")
		r.wantColor("paint", "red")
		if _, err := configMaps.Update(r.t.Context(), configMap("paint", "blue"), metav1.UpdateOptions{}); err != nil {
			r.t.Fatal(err)
		}
		if _, err := configMaps.Create(r.t.Context(), configMap("other", "red"), metav1.CreateOptions{}); err != nil {
			r.t.Fatal(err)
		}
		r.wantNotified("ConfigMap default/paint")
		r.wantColor("paint", "blue")
		if err := configMaps.Delete(r.t.Context(), "paint", metav1.DeleteOptions{}); err != nil {
			r.t.Fatal(err)
		}
		synctest.Wait()
		r.wantColor("paint", "none")
	})
}

func TestObjectsAreDroppedWithTheLastPod(t *testing.T) {
	bubble(t, func(r *rig) {
		r.Follow(podWith("a", "paint"))
		r.Follow(podWith("b", "paint"))
		r.Follow(podWith("b", "paint")) // again, since it has changed
		r.wantColor("paint", "red")
		r.requests()

		r.Forget("uid-a")
		r.Forget("uid-a")
		r.Forget("uid-unknown")
		r.wantColor("paint", "red")
		r.wantRequests()

		r.discard()
		r.Follow(podWith("b")) // names it no more
		if list, err := r.ConfigMaps().List(labels.Everything()); err != nil || len(list) != 0 {
			r.t.Errorf("still held: %v, %v", list, err)
		}
		if _, err := r.client.CoreV1().ConfigMaps("default").Update(r.t.Context(), configMap("paint", "blue"), metav1.UpdateOptions{}); err != nil {
			r.t.Fatal(err)
		}
		r.wantNotified()
		r.requests()
		r.wantColor("paint", "blue")
		r.wantRequests("get configmaps default/paint")
	}, configMap("paint", "red"))
}

// A watch that nobody has use for any more costs nothing; a caller that comes back to it
// sees the present.
func TestUnreadObjectsAreNotWatched(t *testing.T) {
	bubble(t, func(r *rig) {
		r.Follow(podWith("a", "paint", "wall"))
		r.wantColor("paint", "red")
		r.wantColor("wall", "red")
		for range 10 {
			time.Sleep(time.Minute)
			r.wantColor("wall", "red")
		}
		r.requests()
		r.discard()
		for _, name := range []string{"paint", "wall"} {
			if _, err := r.client.CoreV1().ConfigMaps("default").Update(r.t.Context(), configMap(name, "blue"), metav1.UpdateOptions{}); err != nil {
				r.t.Fatal(err)
			}
		}
		r.wantNotified("ConfigMap default/wall")
		r.requests()
		r.wantColor("paint", "blue")
		r.wantRequests(listPaint, watchPaint)
	}, configMap("paint", "red"), configMap("wall", "red"))
}

// The Node authorizer may not know yet that a pod needs an object, and the API
// server may be away: the reader gets an error at once, and callers that wait for the
// object are notified as soon as it can be read.
func TestFailuresAreReportedAndPass(t *testing.T) {
	for name, failure := range map[string]error{
		"forbidden": apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "paint", errors.New("no relationship found")),
		"away":      errors.New("connection refused"),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				var failing atomic.Bool
				failing.Store(true)
				fakeapi.React(&r.client.Fake, "list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
					return failing.Load(), nil, failure
				})
				r.Follow(podWith("a", "paint"))
				for range 2 {
					began := time.Now()
					if _, err := r.ConfigMap(r.t.Context(), "default", "paint"); !errors.Is(err, failure) {
						r.t.Errorf("got %v, want %v", err, failure)
					}
					if waited := time.Since(began); waited > time.Second {
						r.t.Errorf("waited %v for an error", waited)
					}
				}
				failing.Store(false)
				r.discard()
				time.Sleep(2 * time.Second)
				r.wantNotified("ConfigMap default/paint")
				r.wantColor("paint", "red")

				failing.Store(true) // what is known stays
				r.wantColor("paint", "red")
			}, configMap("paint", "red"))
		})
	}
}

// A caller that waits to learn whether an optional object exists learns that it does not as
// soon as that is known, too.
func TestAbsenceIsReportedAfterFailures(t *testing.T) {
	bubble(t, func(r *rig) {
		var failing atomic.Bool
		failing.Store(true)
		fakeapi.React(&r.client.Fake, "list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return failing.Load(), nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "paint", nil)
		})
		r.Follow(podWith("a", "paint"))
		if _, err := r.ConfigMap(r.t.Context(), "default", "paint"); !apierrors.IsForbidden(err) {
			r.t.Errorf("got %v", err)
		}
		r.wantNotified()
		failing.Store(false)
		time.Sleep(2 * time.Second)
		r.wantNotified("ConfigMap default/paint")
		r.wantColor("paint", "none")
	})
}

// A proxy, or an API server that does not serve the path yet, says of the list that
// it was not found. That is nothing about the object.
func TestListThatIsNotFoundIsNoMissingObject(t *testing.T) {
	bubble(t, func(r *rig) {
		fakeapi.React(&r.client.Fake, "list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewGenericServerResponse(404, "list", schema.GroupResource{Resource: "configmaps"}, "", "404 page not found", 0, true)
		})
		r.Follow(podWith("a", "paint"))
		if _, err := r.ConfigMap(r.t.Context(), "default", "paint"); err == nil || errdefs.IsNotFound(err) || !errdefs.IsUnavailable(err) {
			r.t.Errorf("got %v, want an error of class unavailable", err)
		}
	}, configMap("paint", "red"))
}

// An object that may not be read is asked for with growing delays, however long the
// pod waits for it: many such objects are no load on the API server.
func TestForbiddenObjectsAreAskedForLessAndLess(t *testing.T) {
	bubble(t, func(r *rig) {
		var requests atomic.Int32
		fakeapi.React(&r.client.Fake, "list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			requests.Add(1)
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "paint", nil)
		})
		r.Follow(podWith("a", "paint"))
		for range 60 { // as a pod that is retried
			if _, err := r.ConfigMap(r.t.Context(), "default", "paint"); !apierrors.IsForbidden(err) {
				r.t.Errorf("got %v", err)
			}
			time.Sleep(time.Minute)
		}
		if n := requests.Load(); n > 40 || n < 20 {
			r.t.Errorf("%d requests in an hour, want about 30", n)
		}
	}, configMap("paint", "red"))
}

func TestReaderNeedNotWaitLongerThanItWants(t *testing.T) {
	bubble(t, func(r *rig) {
		release := make(chan struct{})
		fakeapi.React(&r.client.Fake, "list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			<-release
			return false, nil, nil
		})
		r.Follow(podWith("a", "paint"))
		ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
		defer cancel()
		if _, err := r.ConfigMap(ctx, "default", "paint"); !errors.Is(err, context.DeadlineExceeded) {
			r.t.Errorf("got %v", err)
		}
		if _, err := r.ConfigMaps().ConfigMaps("default").Get("paint"); err == nil {
			r.t.Error("the lister got an answer that was not given")
		}
		go func() {
			time.Sleep(time.Second)
			r.Forget("uid-a")
			close(release)
		}()
		if _, err := r.ConfigMap(r.t.Context(), "default", "paint"); err == nil {
			r.t.Error("no error, although the pod has gone")
		}
	}, configMap("paint", "red"))
}

func TestListers(t *testing.T) {
	bubble(t, func(r *rig) {
		p := podWith("a", "paint", "wall", "missing")
		r.Follow(p)
		get := r.ConfigMaps().ConfigMaps("default").Get
		if cm, err := get("paint"); err != nil || cm.Data["color"] != "red" {
			r.t.Errorf("got %v, %v", cm, err)
		}
		if _, err := get("missing"); !apierrors.IsNotFound(err) {
			r.t.Errorf("missing: %v", err)
		}
		if _, err := get("wall"); err != nil {
			r.t.Error(err)
		}
		if s, err := r.Secrets().Secrets("default").Get("a"); err != nil || s.Name != "a" {
			r.t.Errorf("got %v, %v", s, err)
		}
		for _, c := range []struct {
			selector labels.Selector
			in       string
			want     int
		}{
			{labels.Everything(), "default", 2},
			{labels.SelectorFromSet(labels.Set{"color": "blue"}), "default", 1},
			{labels.Everything(), "elsewhere", 0},
		} {
			if list, err := r.ConfigMaps().ConfigMaps(c.in).List(c.selector); err != nil || len(list) != c.want {
				r.t.Errorf("%v in %s: %v, %v", c.selector, c.in, list, err)
			}
		}
		if list, err := r.Secrets().List(labels.Everything()); err != nil || len(list) != 1 {
			r.t.Errorf("secrets: %v, %v", list, err)
		}
	}, configMap("paint", "red"), configMap("wall", "blue"), configMap("other", "blue"), secret("a"))
}

// Before Run, as after it, there are no watches; reads still work.
func TestReadsWithoutRun(t *testing.T) {
	bubble(t, func(r *rig) {
		r.Follow(podWith("a", "paint"))
		r.wantColor("paint", "red")
		r.stop()
		r.requests()
		r.wantColor("paint", "red")
		r.wantColor("missing", "none")
		r.wantRequests("get configmaps default/paint", "get configmaps default/missing")
	}, configMap("paint", "red"))
}

// Many pods that come, read and go at once leave nothing behind.
func TestManyPodsAtOnce(t *testing.T) {
	client := fake.NewClientset(configMap("paint", "red"), configMap("wall", "blue"))
	cache := podobjects.New(client)
	ctx, cancel := context.WithCancel(t.Context())
	var runs, pods wait.Group
	runs.StartWithContext(ctx, cache.Run)
	for i := range 50 {
		pods.Start(func() {
			p := podWith(fmt.Sprint("pod-", i), "paint", "wall")
			for range 20 {
				cache.Follow(p)
				for _, name := range []string{"paint", "wall"} {
					if cm, err := cache.ConfigMap(t.Context(), "default", name); err != nil || cm.Name != name {
						t.Errorf("got %v, %v", cm, err)
					}
				}
				cache.Forget(p.UID)
			}
		})
	}
	pods.Wait()
	if list, _ := cache.ConfigMaps().List(labels.Everything()); len(list) != 0 {
		t.Errorf("%d objects are still held", len(list))
	}
	cancel()
	runs.Wait()
}
