package podengine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/convert"
)

func TestMain(m *testing.M) {
	// The streaming server of these tests, k8s.io/cri-streaming's, keeps a goroutine
	// for a stream that it ended before it had answered it.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/cri-streaming/pkg/streaming/portforward.(*httpStreamHandler).portForward"))
}

// rig is an engine over a fake runtime, in a bubble where time is virtual, unless
// the test needs real connections or files that change.
type rig struct {
	*Engine
	t       *testing.T
	ctx     context.Context
	cfg     Config
	runtime *fakeRuntime
	images  *fakeImages
	objects *fakeObjects
	events  *fakeEvents

	services cache.Indexer

	mu       sync.Mutex
	notified []*corev1.Pod
}

// inBubble runs a test with an engine, which leaves no goroutine behind.
func inBubble(t *testing.T, test func(r *rig)) { inBubbleWith(t, func(*rig) {}, test) }

func inBubbleWith(t *testing.T, prepare, test func(r *rig)) {
	t.Helper()
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, root)
		prepare(r)
		r.begin()
		defer r.end() // also if the test gives up
		test(r)
	})
}

// inRealTime runs a test with an engine that runs a pod.
func inRealTime(t *testing.T, pod *corev1.Pod, test func(r *rig)) {
	t.Helper()
	r := newRig(t, t.TempDir())
	r.begin()
	defer r.end()
	running := make(chan struct{}, 1)
	r.NotifyPods(r.ctx, func(pod *corev1.Pod) {
		if pod.Status.Phase == corev1.PodRunning {
			select {
			case running <- struct{}{}:
			default:
			}
		}
	})
	if err := r.CreatePod(r.ctx, pod); err != nil {
		t.Fatal(err)
	}
	<-running
	test(r)
}

func newRig(t *testing.T, root string) *rig {
	r := &rig{
		t: t, ctx: t.Context(), runtime: newFakeRuntime(),
		images:  &fakeImages{present: map[string]*runtimeapi.Image{}},
		objects: &fakeObjects{configMaps: map[string]*corev1.ConfigMap{}},
		events:  &fakeEvents{},

		services: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
	}
	r.cfg = Config{
		Node:     convert.Node{Name: "vk", LogRoot: filepath.Join(root, "logs")},
		Runtime:  r.runtime,
		Images:   r.images,
		Root:     filepath.Join(root, "state"),
		Objects:  r.objects,
		Services: corev1listers.NewServiceLister(r.services),
		Tokens:   noTokens{},
		Events:   r.events,
		HostIPs:  func() []string { return []string{"192.0.2.1"} },
		ImageGC:  ImageGC{Off: true},
	}
	return r
}

// begin makes an engine, and listens to it.
func (r *rig) begin() {
	r.t.Helper()
	r.beginUnheard()
	r.listen()
}

// beginUnheard makes an engine.
func (r *rig) beginUnheard() {
	r.t.Helper()
	var err error
	if r.Engine, err = New(context.Background(), r.cfg); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) listen() {
	r.NotifyPods(r.ctx, func(pod *corev1.Pod) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.notified = append(r.notified, pod)
	})
}

// end closes the engine, as far as there is one.
func (r *rig) end() {
	r.t.Helper()
	if r.Engine != nil {
		if err := r.Close(); err != nil {
			r.t.Error(err)
		}
	}
	r.Engine = nil
}

// restart ends the engine, lets time pass, and begins another.
func (r *rig) restart(downtime time.Duration) {
	r.t.Helper()
	r.end()
	time.Sleep(downtime)
	r.begin()
	r.after(0)
}

// after lets time pass.
func (r *rig) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// create hands a pod over, and has it started as far as that takes no time.
func (r *rig) create(pod *corev1.Pod) {
	r.t.Helper()
	if err := r.CreatePod(r.ctx, pod); err != nil {
		r.t.Fatal(err)
	}
	r.after(0)
}

func (r *rig) update(pod *corev1.Pod) {
	r.t.Helper()
	if err := r.UpdatePod(r.ctx, pod); err != nil {
		r.t.Fatal(err)
	}
	r.after(0)
}

// delete asks for the end of a pod within so many seconds.
func (r *rig) delete(pod *corev1.Pod, seconds int64) {
	r.t.Helper()
	pod = pod.DeepCopy()
	pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	pod.DeletionGracePeriodSeconds = &seconds
	if err := r.DeletePod(r.ctx, pod); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

// status is the status of a pod in its last notification.
func (r *rig) status(pod *corev1.Pod) corev1.PodStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range slices.Backward(r.notified) {
		if p.UID == pod.UID {
			return p.Status
		}
	}
	return corev1.PodStatus{}
}

// state sums up a pod: its phase, then what its containers are at.
func (r *rig) state(pod *corev1.Pod) string {
	s := r.status(pod)
	words := []string{string(s.Phase)}
	for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses) {
		words = append(words, c.Name+"="+stateOf(c))
	}
	return strings.Join(words, " ")
}

func stateOf(c corev1.ContainerStatus) string {
	text := ""
	switch {
	case c.State.Waiting != nil:
		text = c.State.Waiting.Reason
	case c.State.Running != nil:
		text = "running"
		if c.Ready {
			text = "ready"
		}
	case c.State.Terminated != nil:
		text = fmt.Sprintf("%s/%d", c.State.Terminated.Reason, c.State.Terminated.ExitCode)
	}
	if c.RestartCount > 0 {
		text += fmt.Sprintf("#%d", c.RestartCount)
	}
	return text
}

func (r *rig) wantState(pod *corev1.Pod, want string) {
	r.t.Helper()
	if got := r.state(pod); got != want {
		r.t.Errorf("after %v: the state is %q, want %q", time.Since(epoch), got, want)
	}
}

// epoch is when the time of bubbles begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (r *rig) wantCalls(want ...string) {
	r.t.Helper()
	if got := r.runtime.did(); !slices.Equal(got, want) {
		r.t.Errorf("the runtime was asked to\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func (r *rig) wantEvents(want ...string) {
	r.t.Helper()
	if got := r.events.drain(); !slices.Equal(got, want) {
		r.t.Errorf("events are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// wantGone checks that nothing is left of a pod.
func (r *rig) wantGone(pod *corev1.Pod) {
	r.t.Helper()
	if _, err := r.GetPodByUID(r.ctx, pod.Namespace, pod.Name, pod.UID); !errdefs.IsNotFound(err) {
		r.t.Errorf("the pod is %q, want it gone (%v)", r.state(pod), err)
	}
	if n := r.runtime.left(); n > 0 {
		r.t.Errorf("%d sandboxes and containers are left", n)
	}
	for _, dir := range []string{r.podDir(pod.UID), r.cfg.Node.LogDirectory(pod)} {
		if entries, err := os.ReadDir(dir); !errors.Is(err, os.ErrNotExist) {
			r.t.Errorf("%s is left, with %v (%v)", dir, entries, err)
		}
	}
}

// makePod makes a pod named p of containers, whose names show
// their kind: i are init containers, s sidecars, the others the pod's own.
func makePod(names string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: types.UID("uid-of-" + strings.ReplaceAll(names, " ", "-"))},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSDefault},
	}
	for _, name := range strings.Fields(names) {
		c := corev1.Container{Name: name, Image: "image:1"}
		switch {
		case strings.HasPrefix(name, "i"):
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		case strings.HasPrefix(name, "s"):
			always := corev1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		default:
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func never(pod *corev1.Pod)     { pod.Spec.RestartPolicy = corev1.RestartPolicyNever }
func onFailure(pod *corev1.Pod) { pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }

// first changes the first container of a pod.
func first(change func(*corev1.Container)) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { change(&pod.Spec.Containers[0]) }
}

// command is a hook, or a probe, that runs a command.
func command(words ...string) *corev1.ExecAction { return &corev1.ExecAction{Command: words} }

// fakeEvents keeps events as "Type Reason {field}: message", fields without
// their path; pods have none.
type fakeEvents struct {
	mu   sync.Mutex
	list []string
}

func (f *fakeEvents) Event(object runtime.Object, kind, reason, message string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	where := ""
	if ref, ok := object.(*corev1.ObjectReference); ok {
		_, where, _ = strings.Cut(ref.FieldPath, "{")
		where = " {" + where
	}
	f.list = append(f.list, kind+" "+reason+where+": "+message)
}

func (f *fakeEvents) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	f.Event(object, kind, reason, fmt.Sprintf(format, args...))
}

func (f *fakeEvents) AnnotatedEventf(object runtime.Object, _ map[string]string, kind, reason, format string, args ...any) {
	f.Event(object, kind, reason, fmt.Sprintf(format, args...))
}

func (f *fakeEvents) drain() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.list
	f.list = nil
	return list
}

// count counts the events that have a text in them.
func (f *fakeEvents) count(text string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.list {
		if strings.Contains(e, text) {
			n++
		}
	}
	return n
}

// fakeObjects has ConfigMaps, and no Secret.
type fakeObjects struct {
	mu         sync.Mutex
	configMaps map[string]*corev1.ConfigMap
	tell       func(kind, namespace, name string)
}

func (*fakeObjects) Follow(*corev1.Pod) {}
func (*fakeObjects) Forget(types.UID)   {}

func (f *fakeObjects) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if cm := f.configMaps[name]; cm != nil {
		return cm, nil
	}
	return nil, errdefs.NotFoundf("configmap %q not found", name)
}

func (f *fakeObjects) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	return nil, errdefs.NotFoundf("secret %q not found", name)
}

func (f *fakeObjects) Subscribe(changed func(kind, namespace, name string)) func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tell = changed
	return func() {}
}

// put makes a ConfigMap appear.
func (f *fakeObjects) put(name string, data map[string]string) {
	f.mu.Lock()
	f.configMaps[name] = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: data}
	f.mu.Unlock()
	f.tell("ConfigMap", "ns", name)
}

type noTokens struct{}

func (noTokens) RequestToken(context.Context, string, string, *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	return nil, errors.New("no tokens here")
}
