package interlink

import (
	"testing"
	"testing/synctest"
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
		{"SlurmJobTimeout", 0, 137, podgroup.Failed}, {"OOMKilled", 0, 0, podgroup.Succeeded},
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

// The Slurm plugin reports a job whose machines are being configured as one that has ended.
func TestAnEndWithoutAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := metav1.NewTime(time.Now())
		state := func(started, finished metav1.Time, code int32) corev1.ContainerState {
			return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: started, FinishedAt: finished, ExitCode: code}}
		}
		never := metav1.Time{}
		b, _, err := newBackend(Config{InterlinkURL: "http://interlink:3000"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		pod, ran := newPod("queued"), newPod("ran")
		ran.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		phase := func(pod *corev1.Pod, state corev1.ContainerState) podgroup.Phase {
			return b.unit(pod, &wire.Status{UID: string(pod.UID), Containers: []corev1.ContainerStatus{{Name: "main", State: state}}}).Phase
		}
		configuring := state(never, at, 0)
		for i, step := range []struct {
			pod   *corev1.Pod
			state corev1.ContainerState
			after time.Duration
			want  podgroup.Phase
		}{
			{pod, configuring, 0, podgroup.Pending},
			{pod, configuring, unstartedFor - time.Second, podgroup.Pending},
			{pod, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}, 0, podgroup.Pending}, // requeued
			{pod, configuring, time.Minute, podgroup.Pending},
			{pod, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}, 0, podgroup.Running},
			{pod, configuring, 0, podgroup.Pending},
			{pod, configuring, unstartedFor, podgroup.Succeeded},
			{pod, configuring, 0, podgroup.Succeeded},
			{newPod("failed"), state(never, at, 1), 0, podgroup.Failed},
			{newPod("forgotten"), state(never, never, 0), 0, podgroup.Succeeded},
			{newPod("ended"), state(at, at, 0), 0, podgroup.Succeeded},
			{ran, configuring, 0, podgroup.Succeeded},
		} {
			time.Sleep(step.after)
			if got := phase(step.pod, step.state); got != step.want {
				t.Errorf("step %d, of pod %s: the phase is %v, want %v", i, step.pod.Name, got, step.want)
			}
		}
	})
}
