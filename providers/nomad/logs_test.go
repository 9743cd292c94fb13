package nomad

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	corev1 "k8s.io/api/core/v1"

	vkapi "github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/nomad/nomadtest"
)

// A log that is followed goes on, with each line once, when Nomad writes to another file, and
// removes those from which offsets have counted so far. Lines that are written faster than
// they are read may be lost, but then whole ones.
func TestFollowedLogOfManyFiles(t *testing.T) {
	const size = 20 // bytes of a line, of which ten are in a file
	for name, test := range map[string]struct {
		lines, burst int // a second
		want         int // the number of lines
	}{
		"line by line":           {200, 1, 200},
		"file by file":           {200, 10, 200},
		"as much as is kept":     {400, 40, 400},
		"more than what is kept": {1000, 100, 400}, // four whole files a second
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(pod *corev1.Pod) { pod.Spec.RestartPolicy = corev1.RestartPolicyNever }, func(t *testing.T, r *rig, pod *corev1.Pod) {
				r.api.LogFileSize = 10 * size
				log, err := r.GetContainerLogs(t.Context(), pod.Namespace, pod.Name, "main", vkapi.ContainerLogOpts{Follow: true})
				if err != nil {
					t.Fatal(err)
				}
				defer log.Close()
				go func() {
					time.Sleep(followInterval / 2) // not at the time of a read
					for i := range test.lines {
						if err := r.world.Print(pod.Name, "main", fmt.Sprintf("line %0*d", size-6, i)); err != nil {
							t.Error(err)
						}
						if (i+1)%test.burst == 0 {
							time.Sleep(time.Second)
						}
					}
					if err := r.world.Exit(pod.Name, "main", 0); err != nil {
						t.Error(err)
					}
				}()
				text, err := io.ReadAll(log)
				if err != nil {
					t.Error(err)
				}
				count, last := 0, -1
				for line := range strings.Lines(string(text)) {
					var n int
					if _, err := fmt.Sscanf(line, "line %d\n", &n); err != nil {
						continue // it is the World's
					}
					if len(line) != size || n <= last {
						t.Fatalf("%q comes after line %d", line, last)
					}
					count, last = count+1, n
				}
				if count < test.want || last != test.lines-1 {
					t.Errorf("there are %d lines, want %d, the last one is %d", count, test.want, last)
				}
			})
		})
	}
}

// A log that is followed goes on after its machine was not connected for a moment, but not once
// Nomad has given up the allocation, whose tasks it shows as running.
func TestFollowedLogOfAMachineThatIsAway(t *testing.T) {
	inVirtualTime(t, func(pod *corev1.Pod) { pod.Spec.RestartPolicy = corev1.RestartPolicyNever }, func(t *testing.T, r *rig, pod *corev1.Pod) {
		log, err := r.GetContainerLogs(t.Context(), pod.Namespace, pod.Name, "main", vkapi.ContainerLogOpts{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		go func() {
			time.Sleep(followInterval * 5 / 2)
			r.world.Refuse(nomadtest.ActionLogs, 3, &grouptest.Refusal{Status: 404, Message: "No path to node"})
			time.Sleep(5 * followInterval)
			if err := errors.Join(r.world.Print(pod.Name, "main", "it is back"), r.world.Exit(pod.Name, "main", 0)); err != nil {
				t.Error(err)
			}
		}()
		if text, err := io.ReadAll(log); err != nil || !strings.HasSuffix(string(text), "it is back\n") {
			t.Errorf("the log is %q, error %v", text, err)
		}
	})
	b := newTestBackend(t, nil)
	l := &taskLog{b: b, alloc: "a", job: "web", task: "main"}
	for status, want := range map[string]int64{api.AllocClientStatusRunning: 0, api.AllocClientStatusUnknown: 0, api.AllocClientStatusLost: -1} {
		b.records["web"] = &record{alloc: &api.Allocation{ID: "a", ClientStatus: status, TaskStates: map[string]*api.TaskState{"main": {State: taskRunning}}}}
		if got := l.run(); got != want {
			t.Errorf("of an allocation that is %s run %d executes, want %d", status, got, want)
		}
	}
}

// The last lines of a log that is followed are the last ones also if its first read breaks off.
func TestLastLinesOfAFollowedLog(t *testing.T) {
	inVirtualTime(t, func(pod *corev1.Pod) { pod.Spec.RestartPolicy = corev1.RestartPolicyNever }, func(t *testing.T, r *rig, pod *corev1.Pod) {
		r.api.LogFileSize, r.api.LogBreaks = 100, 2
		var want strings.Builder
		for i := range 40 {
			line := fmt.Sprintf("line %d", i)
			if err := r.world.Print(pod.Name, "main", line); err != nil {
				t.Fatal(err)
			}
			if i >= 37 {
				want.WriteString(line + "\n")
			}
		}
		log, err := r.GetContainerLogs(t.Context(), pod.Namespace, pod.Name, "main", vkapi.ContainerLogOpts{Follow: true, Tail: 3})
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		go func() {
			time.Sleep(followInterval * 9 / 2)
			if err := errors.Join(r.world.Print(pod.Name, "main", "more"), r.world.Exit(pod.Name, "main", 0)); err != nil {
				t.Error(err)
			}
		}()
		if text, err := io.ReadAll(log); err != nil || string(text) != want.String()+"more\n" {
			t.Errorf("the log is %q, error %v", text, err)
		}
	})
}

// For the last lines of a log only its end is read.
func TestLastLines(t *testing.T) {
	inVirtualTime(t, nil, func(t *testing.T, r *rig, pod *corev1.Pod) {
		const size = 100
		r.api.LogFileSize = 1000 * size
		for i := range 4500 {
			if err := r.world.Print(pod.Name, "main", fmt.Sprintf("line %0*d", size-6, i)); err != nil {
				t.Fatal(err)
			}
		}
		read := func(tail int) string {
			log, err := r.GetContainerLogs(t.Context(), pod.Namespace, pod.Name, "main", vkapi.ContainerLogOpts{Tail: tail})
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			text, err := io.ReadAll(log)
			if err != nil {
				t.Error(err)
			}
			return string(text)
		}
		all := read(0)
		for tail, most := range map[int]int{1: 100_000, 600: 100_000, 655: 100_000, 656: 900_000, 4000: 900_000, 4500: 900_000} {
			before := r.api.LogBytes()
			if got, want := read(tail), all[len(all)-tail*size:]; got != want {
				t.Errorf("the last %d lines are %d bytes, want %d", tail, len(got), len(want))
			}
			if sent := r.api.LogBytes() - before; sent > most {
				t.Errorf("for the last %d lines %d bytes were read, want %d at most", tail, sent, most)
			}
		}
		if got := read(5000); got != all {
			t.Errorf("with more lines than there are the log is %d bytes, want %d", len(got), len(all))
		}
	})
}
