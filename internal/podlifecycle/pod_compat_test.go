package podlifecycle

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

// Programs that start their factory before the controller has asked it for its informers, or some informers by
// hand, ran with the original library.
func TestInformersThatNobodyStarts(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		never := informers.NewSharedInformerFactory(r.api, 0).Core().V1()
		r.start(func(cfg *Config) {
			cfg.ServiceInformer, cfg.ConfigMapInformer, cfg.SecretInformer = never.Services(), never.ConfigMaps(), never.Secrets()
		})
		r.api.AddPod(aPod("web"))
		r.api.AddPod(aPod("linked", func(p *corev1.Pod) { p.Spec.EnableServiceLinks = ptr.To(true) }))
		r.api.AddPod(aPod("named", func(p *corev1.Pod) {
			p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}
		}))
		pass(time.Minute)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
		want(t, "phase of one with service links", r.phase("linked"), corev1.PodRunning)
		want(t, "phase of one that needs what cannot be read", r.phase("named"), corev1.PodPending)
	})
}

// One that is started is waited for, however long its first list takes: pods would lack variables.
func TestInformersThatTakeLong(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.api.Fail("list services", fmt.Errorf("the API server is short of memory"))
		r.launch()
		r.api.AddPod(aPod("web"))
		pass(time.Hour)
		wantList(t, "calls", r.provider.TakeCalls("create"))
		r.api.Fail("list services", nil)
		pass(5 * time.Minute)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
	})
}

// Providers that take pods to another cluster may show them as that cluster has them: with the name of its own node.
func TestPodThatIsShownOnANodeOfTheBackend(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		first := true
		r.provider.Script(func(s *nodetest.Script) {
			s.Lingers = true
			s.Show = func(p *corev1.Pod) *corev1.Pod { p.UID, p.Spec.NodeName = "", "elsewhere"; return p }
			s.OnGet = func(string) error {
				if first { // it shows pods late
					first = false
					return errdefs.NotFound("not yet")
				}
				return nil
			}
			s.List = func() []*corev1.Pod { return nil }
		})
		r.start(func(cfg *Config) {
			cfg.PodEventFilter = func(_ context.Context, p *corev1.Pod) bool { return p.Spec.NodeName == "vk" }
		})
		r.api.AddPod(aPod("web"))
		pass(5 * time.Minute)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
		r.api.DeletePod("web")
		pass(5 * time.Minute)
		if r.api.Pod("web") == nil {
			t.Fatal("the pod has left the API, and runs")
		}
		r.provider.Forget("web")
		pass(time.Minute)
		want(t, "pod", r.api.Pod("web"), nil)
	})
}

// Providers that accept the pods of DaemonSets and ignore them do not look sick for it: others that they lose are lost.
func TestIgnoredPodsOfDaemonSets(t *testing.T) {
	for name, missing := range map[string]error{"NotFound": nil, "an error of no class": errors.New("no such pod")} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.handler = ignoring{r.provider.Polled()}
				r.provider.Script(func(s *nodetest.Script) {
					s.OnGet = func(name string) error {
						if r.provider.Pod(name) == nil {
							return missing
						}
						return nil
					}
				})
				r.start()
				r.addPods(1)
				for i := range 4 {
					r.api.AddPod(aPod(fmt.Sprint("agent-", i), func(p *corev1.Pod) {
						p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "1", Controller: ptr.To(true)}}
					}))
				}
				pass(10 * time.Second)
				r.provider.Forget("web-0")
				pass(2 * time.Minute)
				want(t, "phase of a pod that is lost", r.phase("web-0"), corev1.PodFailed)
			})
		})
	}
}

// A pod that an earlier process has had created is not taken for one that is ignored: after a start no pod was shown yet.
func TestPodsOfDaemonSetsOfAnEarlierProcess(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		began := metav1.Now()
		for i := range 4 {
			r.api.AddPod(aPod(fmt.Sprint("agent-", i), func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "1", Controller: ptr.To(true)}}
				p.Status = corev1.PodStatus{Phase: corev1.PodPending, StartTime: &began}
			}))
		}
		back := r.provider.Empty()
		r.start()
		pass(5 * time.Minute)
		back()
		wantList(t, "calls", r.provider.TakeCalls("create"))
	})
}

// ignoring is a provider that has nothing of the pods of DaemonSets.
type ignoring struct{ nodetest.Polled }

func (p ignoring) CreatePod(ctx context.Context, pod *corev1.Pod) error {
	if len(pod.OwnerReferences) > 0 {
		return nil
	}
	return p.Polled.CreatePod(ctx, pod)
}
