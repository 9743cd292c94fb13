package podlifecycle

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/internal/queue"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

// rig is a pod controller between an API and a provider, in a bubble.
type rig struct {
	t        *testing.T
	api      *fakeapi.API
	provider *nodetest.Backend
	handler  Provider
	events   *recorder
	resync   time.Duration // of the pods in the cache; 0: never

	pc   *Controller
	stop func() error
}

// condition returns the status of a condition that the controller adds to the Node's.
func (r *rig) condition(kind corev1.NodeConditionType) corev1.ConditionStatus {
	for _, c := range r.pc.NodeConditions() {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// bubble runs a test in virtual time, with a provider that notifies.
func bubble(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, api: fakeapi.New(t), provider: nodetest.New(), events: &recorder{}}
		r.handler = r.provider.Notifying()
		t.Cleanup(func() {
			if r.stop != nil {
				r.end()
			}
			wantList(t, "calls for one pod at once", r.provider.Overlaps())
		})
		test(t, r)
	})
}

// bothKinds runs a test in bubbles, with a provider that is polled and with one that
// notifies.
func bothKinds(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	for name, handler := range map[string]func(*nodetest.Backend) Provider{
		"polled":   func(b *nodetest.Backend) Provider { return b.Polled() },
		"notified": func(b *nodetest.Backend) Provider { return b.Notifying() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.handler = handler(r.provider)
				test(t, r)
			})
		})
	}
}

// start runs a new controller, until the first one has nothing more to do.
func (r *rig) start(config ...func(*Config)) {
	r.t.Helper()
	r.launch(config...)
	select {
	case <-r.pc.Ready():
	case <-r.pc.Done():
		r.t.Fatalf("the controller ended with %v", r.pc.Err())
	}
	synctest.Wait()
}

// startWith is start, and then adds a pod, until there is nothing more to do. It returns
// the pod as the API had it first.
func (r *rig) startWith(pod *corev1.Pod) *corev1.Pod {
	r.t.Helper()
	r.start()
	added := r.api.AddPod(pod)
	synctest.Wait()
	return added
}

// launch runs a new controller, without waiting for it.
func (r *rig) launch(config ...func(*Config)) {
	r.t.Helper()
	factory := informers.NewSharedInformerFactory(r.api, r.resync)
	core := factory.Core().V1()
	cfg := Config{
		PodClient:         r.api.CoreV1(),
		Pods:              InformedPods(core.Pods()),
		EventRecorder:     r.events,
		Provider:          r.handler,
		ConfigMapInformer: core.ConfigMaps(),
		SecretInformer:    core.Secrets(),
		ServiceInformer:   core.Services(),
		DefaultRetry:      retryForEver,
		CallWorkers:       queue.NewPool(0, nil),
		WriteWorkers:      queue.NewPool(0, nil),
		Claim:             always{},
	}
	for _, set := range config {
		set(&cfg)
	}
	pc := New(cfg)
	r.pc = pc
	ctx, cancel := context.WithCancel(r.t.Context())
	factory.Start(ctx.Done())
	result := make(chan error, 1)
	go func() { result <- pc.Run(ctx, 3) }()
	r.stop = func() error {
		cancel()
		err := <-result
		factory.Shutdown()
		return err
	}
}

func (r *rig) end() {
	r.t.Helper()
	err := r.stop()
	r.stop = nil
	if err != nil {
		r.t.Errorf("the controller ended with %v", err)
	}
}

func (r *rig) phase(name string) corev1.PodPhase {
	r.t.Helper()
	pod := r.api.Pod(name)
	if pod == nil {
		return ""
	}
	return pod.Status.Phase
}

// record returns that of the API's pod of a name.
func (r *rig) record(name string) *podRecord {
	r.t.Helper()
	return r.pc.records.get(r.api.Pod(name).UID)
}

func retryForEver(_ context.Context, _ string, timesTried int, _ time.Time, err error) (*time.Duration, error) {
	return DefaultRetry(timesTried, 20, err), nil
}

// always is a claim that nobody disputes.
type always struct{}

func (always) MayBegin() bool { return true }
func (always) MayGoOn() bool  { return true }

// pass lets time pass, and all that is due by then happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// aPod is a pod of this node.
func aPod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PodSpec{
			NodeName:                      "vk",
			Containers:                    []corev1.Container{{Name: "main", Image: "nginx"}},
			TerminationGracePeriodSeconds: ptr.To[int64](30),
			EnableServiceLinks:            ptr.To(false),
		},
	}
	for _, f := range change {
		f(pod)
	}
	return pod
}

// recorder keeps events as "type reason: message".
type recorder struct {
	mu     sync.Mutex
	events []string
	uids   []string // of the pods that they are about
}

func (r *recorder) Event(o runtime.Object, kind, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if pod, ok := o.(*corev1.Pod); ok {
		r.uids = append(r.uids, string(pod.UID))
	}
	r.events = append(r.events, kind+" "+reason+": "+message)
}

func (r *recorder) Eventf(o runtime.Object, kind, reason, format string, args ...any) {
	r.Event(o, kind, reason, fmt.Sprintf(format, args...))
}

func (r *recorder) AnnotatedEventf(o runtime.Object, _ map[string]string, kind, reason, format string, args ...any) {
	r.Event(o, kind, reason, fmt.Sprintf(format, args...))
}

func (r *recorder) recorded() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events, r.uids = nil, nil
	return events
}

// about returns the UIDs of the pods that what is recorded is about.
func (r *recorder) about() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.uids)
}

var _ record.EventRecorder = (*recorder)(nil)

// want fails unless got is want.
func want[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// wantList fails unless got is these, in order.
func wantList(t *testing.T, what string, got []string, wanted ...string) {
	t.Helper()
	if !slices.Equal(got, wanted) {
		t.Errorf("%s: got %q, want %q", what, got, wanted)
	}
}
