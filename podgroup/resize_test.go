package podgroup_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// No unit is resized: the pod says so, as with a kubelet that cannot, also after a restart of the agent, until it
// requests again what its unit has.
func TestResizeIsInfeasible(t *testing.T) {
	withAgents(t, func(t *testing.T, a *agent) {
		resize := func(requests corev1.ResourceList) {
			t.Helper()
			a.api.ChangePod("web", func(pod *corev1.Pod) { pod.Spec.Containers[0].Resources.Requests = requests })
			a.wait(30*time.Second, "after a resize", "[Running:1]")
		}
		larger := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		pending := func(when, want string) {
			t.Helper()
			conditions, got := a.api.Pod("web").Status.Conditions, ""
			if i := slices.IndexFunc(conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodResizePending }); i >= 0 {
				got = conditions[i].Reason
			}
			if got != want {
				t.Errorf("%s PodResizePending has the reason %q, want %q", when, got, want)
			}
		}
		a.add(grouptest.NewPod("web"))
		a.wait(time.Minute, "after the creation", "[Running:1]")
		resize(larger)
		pending("after a resize", corev1.PodReasonInfeasible)
		resize(nil)
		pending("once it is taken back", "")
		resize(larger)
		pending("after another resize", corev1.PodReasonInfeasible)
		a.stop()
		a.start()
		a.wait(time.Minute, "after a restart", "[Running:1]")
		pending("after a restart", corev1.PodReasonInfeasible)
		resize(nil)
		pending("once it is taken back after a restart", "")
	})
}
