package fargate

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// A task that could not be started is run again after firstAttempt, and twice as long after each
// further one, up to lastAttempt; attemptsAtOnce is how many a list runs at most.
const (
	firstAttempt, lastAttempt = time.Minute, 10 * time.Minute
	attemptsAtOnce            = 10
)

// attempts are the tasks of pods that could not be started: an image that cannot be pulled, a
// subnet without addresses, a role without a right. As with a kubelet their pods wait, and are
// not replaced by others that fail in the same way. The next attempt is another task of the same
// definition; its token is made of the one that failed, so that it is one also if this process
// ends meanwhile.
type attempts struct {
	newest  map[string]*types.Task   // of the list that is being read, by the UID of the pod
	failed  map[string][]*types.Task // the same, and all
	waiting map[string]*attempt      // by the UID of the pod
}

// attempt is the last task of a pod that could not be started.
type attempt struct {
	failed *types.Task
	tried  time.Time   // when it was run again, or could not be
	next   *types.Task // which has taken its place, and may not be in lists yet
}

// isUnstarted reports whether a task of this node has ended before any container ran.
func (b *backend) isUnstarted(t *types.Task) bool {
	return aws.ToString(t.LastStatus) == statusStopped && t.StopCode == types.TaskStopCodeTaskFailedToStart &&
		slices.ContainsFunc(t.Tags, func(tag types.Tag) bool {
			return aws.ToString(tag.Key) == podgroup.TagNodeName && aws.ToString(tag.Value) == b.node
		}) && !slices.ContainsFunc(t.Containers, func(c types.Container) bool { return c.ExitCode != nil })
}

// startFailure returns why a task could not be started: the reason of its containers, and ECS's
// text. own reports whether that is the fault of what the containers run.
func startFailure(t *types.Task) (reason, text string, own bool) {
	text = aws.ToString(t.StoppedReason)
	for i := range t.Containers {
		if why := aws.ToString(t.Containers[i].Reason); !strings.Contains(text, why) {
			text += "; " + why
		}
	}
	switch {
	case strings.Contains(text, "CannotPullContainer"):
		return "ImagePullBackOff", text, false
	case containsAny(text, "CannotStartContainer", "CannotCreateContainer"):
		return "CreateContainerError", text, true
	}
	return string(types.TaskStopCodeTaskFailedToStart), text, false
}

// seeAttempt notes a task of the list that is being read.
func (b *backend) seeAttempt(t *types.Task) {
	b.mu.Lock()
	defer b.mu.Unlock()
	uid := aws.ToString(t.StartedBy)
	if known := b.attempts.newest[uid]; known == nil || aws.ToTime(t.CreatedAt).After(aws.ToTime(known.CreatedAt)) {
		b.attempts.newest[uid] = t
	}
	if b.isUnstarted(t) {
		b.attempts.failed[uid] = append(b.attempts.failed[uid], t)
	}
}

// settle returns the units of the pods whose last task could not be started, once a list is
// complete: ECS shows the tasks before that one, too, and forgets all after an hour.
func (b *backend) settle(ctx context.Context) (units []podgroup.Unit) {
	b.mu.Lock()
	all := b.attempts
	for uid, a := range all.waiting {
		if all.newest[uid] == nil {
			all.newest[uid], all.failed[uid] = a.failed, []*types.Task{a.failed}
		}
	}
	due := map[string]*attempt{}
	for uid, failed := range all.failed {
		t, a := all.newest[uid], all.waiting[uid]
		for _, old := range failed {
			if *old.TaskArn != *t.TaskArn {
				b.deleted[*old.TaskArn] = time.Now()
			}
		}
		known := a != nil && *a.failed.TaskArn == *t.TaskArn
		switch {
		case b.isUnstarted(t) && known && a.next != nil && time.Since(a.tried) < doubt && !b.deletedBefore(a.next):
			units = append(units, b.unit(a.next))
		case !b.isUnstarted(t) || b.deletedBefore(t):
			delete(all.waiting, uid)
		case known:
			due[uid] = a
		default:
			due[uid] = &attempt{failed: t}
			all.waiting[uid] = due[uid]
		}
	}
	b.mu.Unlock()
	left := attemptsAtOnce
	for _, uid := range slices.Sorted(maps.Keys(due)) {
		units = append(units, b.again(ctx, uid, due[uid], len(all.failed[uid]), &left))
	}
	return units
}

// again returns the unit of a pod whose last task, the number-th, could not be started: that
// task, for which the pod waits, or the next one.
func (b *backend) again(ctx context.Context, uid string, a *attempt, number int, left *int) podgroup.Unit {
	u := b.unit(a.failed)
	pod := b.podOf(u.Tags)
	reason, text, own := startFailure(a.failed)
	if over := pod != nil && own && pod.Spec.RestartPolicy == corev1.RestartPolicyNever; over || pod == nil {
		b.mu.Lock()
		delete(b.attempts.waiting, uid)
		b.mu.Unlock()
		if over {
			return u
		}
	}
	delay := min(firstAttempt<<min(number-1, 10), lastAttempt)
	since := aws.ToTime(a.failed.StoppedAt)
	if a.tried.After(since) {
		since = a.tried
	}
	if mayBegin := b.mayBegin; *left > 0 && time.Since(since) >= delay && pod != nil && pod.DeletionTimestamp == nil && (mayBegin == nil || mayBegin()) {
		*left--
		next, err := b.runAgain(ctx, pod, u.Tags, a.failed)
		b.mu.Lock()
		defer b.mu.Unlock()
		a.tried = time.Now()
		switch {
		case err == nil:
			a.next, b.deleted[u.ID] = next, time.Now()
			return b.unit(next)
		case errdefs.IsNotFound(err): // its definition was deleted
			delete(b.attempts.waiting, uid)
			return u
		}
		text += "; " + err.Error()
	}
	u.Phase, u.Failure, u.Ended = podgroup.Pending, nil, time.Time{}
	u.Events = []podgroup.Event{{Type: corev1.EventTypeWarning, Reason: string(types.TaskStopCodeTaskFailedToStart), Message: text, At: aws.ToTime(a.failed.StoppedAt)}}
	for i := range u.Containers {
		u.Containers[i].Now = podgroup.Run{Reason: reason, Message: text}
	}
	return u
}

// runAgain runs another task like one that could not be started.
func (b *backend) runAgain(ctx context.Context, pod *corev1.Pod, identity map[string]string, t *types.Task) (*types.Task, error) {
	p := &plan{definition: &ecs.RegisterTaskDefinitionInput{Family: t.TaskDefinitionArn}}
	if t.EnableExecuteCommand {
		p.role = aws.ToString(t.TaskDefinitionArn) // it is in the definition
	}
	if t.Overrides != nil {
		p.overrides.ContainerOverrides = t.Overrides.ContainerOverrides
	}
	// Those of the definition may be what was wrong, and the configuration another one since.
	if role := cmp.Or(pod.Annotations[annotationRole], b.cfg.TaskRoleArn); role != "" {
		p.overrides.TaskRoleArn = &role
	}
	if b.cfg.ExecutionRoleArn != "" {
		p.overrides.ExecutionRoleArn = &b.cfg.ExecutionRoleArn
	}
	r := &podgroup.Request{Pod: pod, Token: shortHash(aws.ToString(t.TaskArn)), Tags: identity}
	defer b.begin(r, familyOf(*t.TaskDefinitionArn))()
	return b.start(ctx, r, p)
}
