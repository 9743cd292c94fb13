package fargate

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// A log is read from its end: what is cut is its beginning.
func TestLogs(t *testing.T) {
	onNode(t, nil, func(n *pods) {
		pod := grouptest.NewPod("chatty")
		n.run(pod)
		const lines = 16
		for i := range lines { // of a MiB each, nearly
			if err := n.world.Print(pod.Name, "main", fmt.Sprintf("line %d %s", i, strings.Repeat("x", 1_000_000))); err != nil {
				n.Fatal(err)
			}
		}
		u := &podgroup.Unit{ID: "task/home/" + n.id(pod)}
		for name, test := range map[string]struct {
			query       podgroup.LogQuery
			first, last int
		}{
			"all":  {podgroup.LogQuery{}, lines - 11, lines - 1},
			"tail": {podgroup.LogQuery{Tail: 3}, lines - 3, lines - 1},
		} {
			text, err := n.backend.ReadLog(n.Context(), u, "main", test.query)
			if err != nil {
				n.Fatal(err)
			}
			var got []string
			for line := range strings.Lines(text) {
				got = append(got, strings.Join(strings.Fields(line)[:2], " "))
			}
			if len(got) != test.last-test.first+1 || got[0] != fmt.Sprintf("line %d", test.first) || got[len(got)-1] != fmt.Sprintf("line %d", test.last) {
				n.Errorf("%s: %v", name, got)
			}
		}
	})
}

// Tasks that have stopped are described once, while ECS lists them for an hour.
func TestTasksThatHaveStopped(t *testing.T) {
	onNode(t, nil, func(n *pods) {
		for i := range 3 {
			pod := grouptest.NewPod(fmt.Sprintf("done-%d", i))
			pod.Spec.RestartPolicy = corev1.RestartPolicyNever
			n.run(pod)
			if err := n.world.Exit(pod.Name, "main", 0); err != nil {
				n.Fatal(err)
			}
		}
		pod := grouptest.NewPod("done-0")
		n.phase(pod)
		before := n.world.Calls("DescribeTasks")
		for range 10 {
			if status := n.phase(pod); status.Phase != corev1.PodSucceeded {
				n.Fatalf("%+v", status)
			}
		}
		if calls := n.world.Calls("DescribeTasks") - before; calls != 0 {
			n.Errorf("%d calls for tasks that had stopped", calls)
		}
	})
}
