package interlink

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink/internal/wire"
)

// The Slurm plugin reports what it knows as the exit code of a job that was killed: it may be 0.
func TestAJobThatIsKilled(t *testing.T) {
	pod := newPod("killed")
	for _, test := range []struct {
		reason     string
		code, want int32
		phase      podgroup.Phase
	}{
		{"SlurmJobTimeout", 0, 137, podgroup.Failed}, {"OOMKilled", 0, 137, podgroup.Failed},
		{"SlurmJobTimeout", 15, 15, podgroup.Failed}, {"OOMKilled", 9, 9, podgroup.Failed},
		{"Completed", 0, 0, podgroup.Succeeded}, {"", 0, 0, podgroup.Succeeded},
	} {
		s := wire.Status{UID: string(pod.UID), Containers: []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Reason: test.reason, ExitCode: test.code, StartedAt: metav1.NewTime(time.Unix(90, 0)), FinishedAt: metav1.NewTime(time.Unix(100, 0)),
		}}}}}
		u := (&backend{config: &Config{}}).unit(pod, &s)
		if c := u.Container("main"); u.Phase != test.phase || c.Now.ExitCode != test.want || c.Now.Reason != test.reason {
			t.Errorf("%s %d: the phase is %v, the container %+v", test.reason, test.code, u.Phase, c)
		}
	}
}
