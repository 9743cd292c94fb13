package podlifecycle

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

// Invariant 4: a pod whose containers had all ended before its deletion leaves the API with how they ended, also if the
// provider has no word on it any more after that.
func TestLastStatusOfContainersThatEndedBeforeTheDeletion(t *testing.T) {
	for name, script := range map[string]func(*nodetest.Script){
		"DeletePod removes it": func(s *nodetest.Script) {
			s.Lingers = true // so that nobody is notified
			s.OnGet = func(string) error { return errdefs.NotFound("what pod?") }
		},
		"DeletePod says NotFound": func(s *nodetest.Script) {
			s.OnDelete = func(context.Context, *corev1.Pod) error { return errdefs.NotFound("what pod?") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			bothKinds(t, func(t *testing.T, r *rig) {
				r.startWith(aPod("web"))
				r.provider.ChangePod("web", endContainers)
				pass(10 * time.Second)
				want(t, "phase", r.phase("web"), corev1.PodRunning)
				r.provider.Script(script)
				r.api.Fail("delete pods", apierrors.NewInternalError(errors.New("to see what is there before")))
				r.api.Written()
				r.api.DeletePod("web")
				synctest.Wait()
				last := r.api.Pod("web").Status
				want(t, "last phase", last.Phase, corev1.PodSucceeded)
				want(t, "exit code", last.ContainerStatuses[0].State.Terminated.ExitCode, 0)
				r.provider.Forget("web")
				r.api.Fail("delete pods", nil)
				pass(time.Minute)
				want(t, "pod", r.api.Pod("web"), nil)
				writes := r.api.Written()
				want(t, "first write", writes[0], "patch pods/status web")
			})
		})
	}
}
