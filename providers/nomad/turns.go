package nomad

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// Nomad starts all init containers of a pod at the same time. Those after the first one so
// have a template that cannot be written before a variable says that it is their turn, and
// without its templates no task is started.

const (
	// metaTurns has the init containers in their order, each sidecar with sidecarMark.
	metaTurns   = "VK_TURNS"
	sidecarMark = ":"
	// turnKey and the number of an init container make the key in the group's variable.
	turnKey = "turn"
)

// turnsOf returns the value of metaTurns; empty if the order is Nomad's own.
func turnsOf(pod *corev1.Pod) string {
	var names []string
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if podspec.IsSidecar(c) {
			names = append(names, c.Name+sidecarMark)
		} else {
			names = append(names, c.Name)
		}
	}
	if len(names) < 2 {
		return ""
	}
	return strings.Join(names, ",")
}

// turnTemplate is the template of the init container with a number. A variable that does
// not exist holds up a template: the job's never does.
func turnTemplate(jobID string, number int) *api.Template {
	return &api.Template{
		DestPath: new("local/vk-turn"), ChangeMode: new("noop"),
		EmbeddedTmpl: new(fmt.Sprintf(`{{ with nomadVar "%s" }}{{ if not .%s%d }}{{ with nomadVar "%s" }}{{ end }}{{ end }}{{ end }}`,
			turnsPath(jobID), turnKey, number, jobsPath+jobID)),
	}
}

// turnsPath returns the path of the group's variable, which its tasks may read.
func turnsPath(jobID string) string { return jobsPath + jobID + "/" + groupName }

// turn returns how many init containers after the first one may start.
func (r *record) turn() (number int) {
	if r.alloc == nil || r.stopped || r.meta[metaTurns] == "" {
		return 0
	}
	names := strings.Split(r.meta[metaTurns], ",")
	for i, name := range names[:len(names)-1] {
		name, isSidecar := strings.CutSuffix(name, sidecarMark)
		state := r.alloc.TaskStates[name]
		if state == nil || isSidecar && state.StartedAt.IsZero() || !isSidecar && (state.State != taskDead || state.Failed) {
			break
		}
		number = i + 1
	}
	return number
}

// openTurns lets the init containers start whose turn it is. It is called with each change
// of the record, and after a failure with the next heartbeat.
func (b *backend) openTurns(ctx context.Context, r *record) error {
	number := r.turn()
	b.mu.Lock()
	s := b.state(r.id)
	done := s.turn >= number || s.leaves
	if !done {
		s.turn = number // before the write: a creation that deletes it resets this
	}
	b.mu.Unlock()
	if done {
		return nil
	}
	v := &api.Variable{Namespace: b.cfg.Namespace, Path: turnsPath(r.id), Items: api.VariableItems{}}
	for i := range number {
		v.Items[turnKey+strconv.Itoa(i+1)] = "open"
	}
	err := b.putVariables(ctx, podgroup.ActionUpdate, r.id, []*api.Variable{v})
	if err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		s.turn = 0
	}
	return err
}
