package podlifecycle

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

// withoutUID is what some providers show of a pod, in a phase.
func withoutUID(pod *corev1.Pod, phase corev1.PodPhase) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.UID, pod.CreationTimestamp, pod.Status = "", metav1.Time{}, nodetest.StatusOf(pod, phase)
	return pod
}

// pullingWithoutUID is pulling, of a provider that shows its pods without UIDs.
func (r *rig) pullingWithoutUID(name string) *atomic.Bool {
	pulls := r.pulling(name)
	r.provider.Script(func(s *nodetest.Script) {
		list := s.List
		s.List = func() (pods []*corev1.Pod) {
			for _, pod := range list() {
				pods = append(pods, withoutUID(pod, pod.Status.Phase))
			}
			return pods
		}
	})
	return pulls
}

// startWithoutUIDs has web run in a provider that is polled and shows its pods without UIDs.
func (r *rig) startWithoutUIDs() *corev1.Pod {
	r.handler = r.provider.Polled()
	r.provider.Script(func(s *nodetest.Script) {
		s.Show = func(p *corev1.Pod) *corev1.Pod { return withoutUID(p, p.Status.Phase) }
	})
	pod := r.startWith(aPod("web"))
	r.addPods(1) // so that the list is one
	pass(10 * time.Second)
	return pod
}

// A list that was asked for before a pod was created says nothing of it, though it shows the one before under its name.
func TestListFromBeforeTheCreation(t *testing.T) {
	for _, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodSucceeded} {
		t.Run(string(phase), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				answer := r.oldList(r.startWithoutUIDs(), func(p *corev1.Pod) { *p = *withoutUID(p, phase) })
				r.api.DeletePod("web")
				pass(10 * time.Second)
				want(t, "pod", r.api.Pod("web"), nil)
				pulls := r.pullingWithoutUID("web")
				r.provider.TakeCalls()
				uid := string(r.api.AddPod(aPod("web")).UID)
				pass(2 * time.Minute)
				answer()
				pass(10 * time.Minute)
				want(t, "phase while the image is pulled", r.phase("web"), corev1.PodPending)
				pulls.Store(false)
				pass(10 * time.Second)
				want(t, "phase", r.phase("web"), corev1.PodRunning)
				wantList(t, "calls", r.provider.TakeCalls("create", "delete"), "create web "+uid)
			})
		})
	}
}

// Nor if the provider holds the pod by then, and has no word on its status yet.
func TestListFromBeforeTheCreationOfAPodWithoutAStatus(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		answer := r.oldList(r.startWithoutUIDs(), func(p *corev1.Pod) { *p = *withoutUID(p, corev1.PodSucceeded) })
		r.api.DeletePod("web")
		pass(10 * time.Second)
		r.provider.Script(func(s *nodetest.Script) {
			s.Show = func(p *corev1.Pod) *corev1.Pod { p.UID, p.Status = "", corev1.PodStatus{}; return p }
		})
		r.api.AddPod(aPod("web"))
		pass(time.Second)
		answer()
		want(t, "phase", r.phase("web"), corev1.PodPending)
		r.provider.Script(func(s *nodetest.Script) { s.Show = nil })
		pass(10 * time.Second)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
	})
}

// Nor does one that is behind, whether it shows the pod before under no UID or one of the provider's, and however long it
// takes.
func TestListThatIsBehindTheCreation(t *testing.T) {
	for name, uid := range map[string]types.UID{"without UID": "", "under a UID of its own": "sandbox-1"} {
		for _, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodSucceeded} {
			for _, takes := range []time.Duration{0, 2 * time.Minute} {
				t.Run(fmt.Sprintf("%s, %s, in %v", name, phase, takes), func(t *testing.T) {
					bubble(t, func(t *testing.T, r *rig) {
						old := withoutUID(r.startWithoutUIDs(), phase)
						old.UID = uid
						r.api.DeletePod("web")
						pass(10 * time.Second)
						pulls := r.pullingWithoutUID("web")
						behind := time.Now().Add(20 * time.Second)
						r.provider.Script(func(s *nodetest.Script) {
							list := s.List
							s.List = func() []*corev1.Pod {
								if time.Now().Before(behind) {
									time.Sleep(takes)
									return append(list(), old)
								}
								return list()
							}
						})
						r.provider.TakeCalls()
						created := string(r.api.AddPod(aPod("web")).UID)
						pass(10 * time.Minute)
						want(t, "phase while the image is pulled", r.phase("web"), corev1.PodPending)
						pulls.Store(false)
						pass(10 * time.Second)
						want(t, "phase", r.phase("web"), corev1.PodRunning)
						wantList(t, "calls", r.provider.TakeCalls("create", "delete"), "create web "+created)
					})
				})
			}
		}
	}
}

// A pod that its provider shows soon, and in its list alone, is seen after a minute, unless it is shown under its UID.
func TestPodThatIsListedSoonAndCannotBeRead(t *testing.T) {
	for name, after := range map[string]time.Duration{"without UID": 70 * time.Second, "under its UID": 10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.handler = r.provider.Polled()
				r.provider.Script(func(s *nodetest.Script) {
					s.OnGet = func(string) error { return errors.New("the group has no address") }
					s.Show = func(p *corev1.Pod) *corev1.Pod {
						if name == "without UID" {
							p.UID = ""
						}
						return p
					}
				})
				r.startWith(aPod("web"))
				pass(after)
				want(t, "phase", r.phase("web"), corev1.PodRunning)
			})
		})
	}
}
