package faults

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fault"
)

// The time that all has to come to rest once nothing goes wrong any more: delays
// between tries have grown to a minute by then, and a pod of the provider is
// listed three times, a minute apart, before it counts as an orphan.
const (
	restWithin = 15 * time.Minute
	restStep   = 20 * time.Second
)

// foreign is the UID of a pod of another node, which the provider shows too.
const foreign types.UID = "foreign"

// run runs a history in virtual time, and returns what it has broken.
func run(t *testing.T, h history) (broken []string) {
	defer func() {
		if r := recover(); r != nil { // goroutines that do not end, say
			broken = append(broken, fmt.Sprint("invariant 10: ", r))
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t.Context(), h)
		server := newAPIServer(w)
		w.admin = clientOver(server.transport(false))
		w.compact = server.compact
		server.behind = func() time.Duration { return time.Duration(w.behind.Load()) }
		w.api = fault.NewTransport(server.transport(true), h.seed)
		w.host, w.way, w.settle = "http://api", w.api, synctest.Wait
		w.most, w.restWithin, w.restStep = time.Hour, restWithin, restStep
		w.live(h)
		broken = w.broken
	})
	return broken
}

// live goes through a history, and to rest.
func (w *world) live(h history) {
	w.addSettings()
	w.model.addForeign()
	defer w.model.close()
	defer w.stop(false)
	w.start()
	for _, step := range h.steps {
		w.settle()
		w.do(step)
		if w.isBroken() {
			break
		}
	}
	w.heal()
	w.start()
	w.rest("at rest")
	list, err := w.admin.CoreV1().Pods(w.ns).List(w.ctx, metav1.ListOptions{})
	w.must(err)
	for _, pod := range list.Items {
		w.unfinalize(pod.Name)
		w.delete(pod.Name, nil)
	}
	w.rest("after all pods were deleted")
}

func (w *world) isBroken() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.broken) > 0
}

// rest waits until all is at rest, and records what is not.
func (w *world) rest(when string) {
	var left []string
	for deadline := time.Now().Add(w.restWithin); time.Now().Before(deadline) && !w.isBroken(); {
		time.Sleep(w.restStep)
		w.settle()
		if left = w.unrest(); len(left) == 0 {
			return
		}
	}
	for _, problem := range left {
		w.breaks("%s: %s", when, problem)
	}
}

func (m *model) addForeign() {
	m.mu.Lock()
	defer m.mu.Unlock()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "elsewhere", UID: foreign},
		Spec:       corev1.PodSpec{NodeName: "another", Containers: []corev1.Container{{Name: "main"}}},
	}
	pod.Status = statusOf(pod, corev1.PodRunning)
	m.pods[foreign] = &held{pod: pod, timer: time.AfterFunc(0, func() {})}
}

// silent drops events.
type silent struct{}

func (silent) Event(runtime.Object, string, string, string)                                      {}
func (silent) Eventf(runtime.Object, string, string, string, ...any)                             {}
func (silent) AnnotatedEventf(runtime.Object, map[string]string, string, string, string, ...any) {}

// shorten drops steps from a history that breaks something while it still does.
func shorten(t *testing.T, h history, budget int) history {
	fails := func(h history) bool {
		for range 3 { // jitter may need another chance
			if budget--; len(run(t, h)) > 0 {
				return true
			}
		}
		return false
	}
	for size := max(len(h.steps)/2, 1); budget > 0; {
		dropped := false
		for begin := 0; begin < len(h.steps) && budget > 0; {
			shorter := h
			end := min(begin+size, len(h.steps))
			shorter.steps = append(append([]string{}, h.steps[:begin]...), h.steps[end:]...)
			if fails(shorter) {
				h, dropped = shorter, true
			} else {
				begin = end
			}
		}
		if size == 1 && !dropped {
			break
		}
		size = max(size/2, 1)
	}
	return h
}

// report says what a history breaks, and how to make a test of it.
func report(t *testing.T, h history) {
	short := shorten(t, h, 400)
	broken := run(t, short)
	if len(broken) == 0 {
		broken = []string{"(not this time)"}
	}
	t.Errorf("seed %d breaks:\n%s\nas shortened, for testdata:\n%s", h.seed, strings.Join(broken, "\n"), short)
}
