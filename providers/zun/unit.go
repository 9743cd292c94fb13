package zun

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
	"github.com/virtual-kubelet/virtual-kubelet/providers/zun/internal/wire"
)

// capsule is what Zun says of a capsule.
type capsule struct {
	UUID          string                             `json:"uuid"`
	Labels        texts                              `json:"labels"`
	Status        string                             `json:"status"`
	StatusReason  string                             `json:"status_reason"`
	RestartPolicy restartPolicy                      `json:"restart_policy"`
	CreatedAt     timestamp                          `json:"created_at"`
	UpdatedAt     timestamp                          `json:"updated_at"`
	Addresses     map[string][]struct{ Addr string } `json:"addresses"`
	// InitContainers are shown by newer versions of Zun. In older ones Containers have the
	// one that holds the network, too.
	InitContainers []container `json:"init_containers"`
	Containers     []container `json:"containers"`
}

// container is what Zun says of a container.
type container struct {
	UUID          string        `json:"uuid"`
	Name          string        `json:"name"`
	Image         string        `json:"image"`
	Environment   texts         `json:"environment"`
	Status        string        `json:"status"`
	StatusDetail  string        `json:"status_detail"`
	StatusReason  string        `json:"status_reason"`
	StartedAt     timestamp     `json:"started_at"`
	RestartPolicy restartPolicy `json:"restart_policy"`
}

// restartPolicy is a restart policy as Zun has it.
type restartPolicy struct {
	Name              string
	MaximumRetryCount any // a number, or the text of one; 0 of one without a limit
}

// givesUp reports whether containers are started again for a limited number of times.
func (p restartPolicy) givesUp() bool {
	n, err := strconv.Atoi(fmt.Sprint(p.MaximumRetryCount))
	return err == nil && n > 0
}

// texts are labels, or variables. Zun does not check those of a template that comes as text, as
// clients send it: what is no text, in a capsule of another program, is left out.
type texts map[string]string

// UnmarshalJSON implements json.Unmarshaler.
func (t *texts) UnmarshalJSON(data []byte) error {
	var all map[string]any
	_ = json.Unmarshal(data, &all) // what is no object has none
	*t = texts{}
	for key, value := range all {
		if text, ok := value.(string); ok {
			(*t)[key] = text
		}
	}
	return nil
}

// The states of capsules and containers. Others are stages of a creation.
const (
	statusRunning    = "Running"
	statusStopped    = "Stopped"
	statusPaused     = "Paused"
	statusUnknown    = "Unknown"
	statusError      = "Error"
	statusDead       = "Dead"
	statusRestarting = "Restarting"
	statusRebuilding = "Rebuilding"
	statusDeleting   = "Deleting"
	statusDeleted    = "Deleted"
)

// liveStatuses are those of capsules and containers that run, or may.
var liveStatuses = []string{statusRunning, statusRestarting, statusRebuilding, statusPaused, statusUnknown}

// restartNever and restartOnFailure are restart policies as Zun names them.
const (
	restartNever     = "no"
	restartOnFailure = "on-failure"
)

// unit translates what Zun says of a capsule. Its status is that of the container with the
// network, which runs on when all others have ended.
func (b *backend) unit(ctx context.Context, c *capsule) podgroup.Unit {
	u := podgroup.Unit{ID: c.UUID, Tags: b.tags(c.Labels), Created: c.CreatedAt.time(), Data: map[string]string{}}
	for _, network := range slices.Sorted(maps.Keys(c.Addresses)) {
		for _, address := range c.Addresses[network] {
			u.IPs = append(u.IPs, address.Addr)
		}
	}
	ended, good, runs := len(c.Containers) > 0, true, false
	for i, name := range b.names(c) {
		if name == "" {
			continue
		}
		found, isInit := &slices.Concat(c.InitContainers, c.Containers)[i], i < len(c.InitContainers)
		one := b.shown(ctx, c, found, isInit)
		one.Name = name
		u.Containers, u.Data.(map[string]string)[name] = append(u.Containers, one), found.UUID
		ended, good = ended && (isInit || one.Now.State == podgroup.Terminated), good && one.Now.ExitCode == 0
		runs = runs || slices.Contains(liveStatuses, found.Status)
	}
	ended = ended && len(u.Containers) > 0
	switch {
	case c.Status == statusDeleting, c.Status == statusDeleted:
		u.Phase = podgroup.Stopping
	case c.Status == statusError:
		u.Phase = podgroup.Running // Zun does not stop what it has started before the error: see endFailed
		if !runs {
			c.fail(&u)
		}
		u.Events = []podgroup.Event{{Type: corev1.EventTypeWarning, Reason: "CapsuleError", Message: c.StatusReason, At: c.UpdatedAt.time()}}
	case ended && good:
		u.Phase = podgroup.Succeeded
	case ended, c.Status == statusStopped, c.Status == statusDead:
		u.Phase = podgroup.Failed
	case slices.Contains(liveStatuses, c.Status):
		u.Phase = podgroup.Running
	}
	if u.Over() {
		u.Ended = c.UpdatedAt.time()
	}
	return u
}

// fail makes u a unit that has failed.
func (c *capsule) fail(u *podgroup.Unit) {
	u.Phase, u.Failure = podgroup.Failed, &podspec.Failure{Reason: "CapsuleError", Message: c.StatusReason}
	u.Ended = c.UpdatedAt.time()
}

// tags returns the labels of a capsule. Those of the provider that this one replaces have an
// empty name of the cluster; that it is this one, the UID of the pod shows.
func (b *backend) tags(labels map[string]string) map[string]string {
	if cluster, ok := labels[podgroup.TagClusterName]; !ok || cluster != "" || labels[podgroup.TagUID] == "" {
		return labels
	}
	labels[podgroup.TagClusterName] = b.cfg.ClusterName
	return labels
}

// names returns the names of the containers in the pod, in the order of init containers and
// containers; empty for those that are none of the pod's. Capsules of the older provider
// have the pod's containers in its order.
func (b *backend) names(c *capsule) []string {
	all := slices.Concat(c.InitContainers, c.Containers)
	names, marked := make([]string, len(all)), false
	for i := range all {
		names[i] = all[i].Environment[wire.EnvName]
		marked = marked || names[i] != ""
	}
	if marked {
		return names
	}
	pod := b.podOf(c)
	if pod == nil {
		return names
	}
	next := 0
	for i := range all {
		if !strings.HasSuffix(all[i].Name, "-sandbox") && next < len(pod.Spec.Containers) {
			names[i] = pod.Spec.Containers[next].Name
			next++
		}
	}
	return names
}

// podOf returns the pod of a capsule, or nil. It must not be changed.
func (b *backend) podOf(c *capsule) *corev1.Pod {
	if b.pods == nil {
		return nil
	}
	pod, err := b.pods.Pods(c.Labels[podgroup.TagNamespace]).Get(c.Labels[podgroup.TagPodName])
	if err != nil || pod.UID != types.UID(c.Labels[podgroup.TagUID]) {
		return nil
	}
	return pod
}

// shown translates what Zun says of a container. Its restart policy may be another one than the
// capsule's: where there are init containers Zun gives up after ten times, also for those that
// come after them.
func (b *backend) shown(ctx context.Context, in *capsule, c *container, isInit bool) podgroup.Container {
	t := podgroup.Container{Image: c.Image}
	policy := c.RestartPolicy
	if policy.Name == "" {
		policy = in.RestartPolicy
		if isInit && policy.Name != restartNever {
			policy.Name = restartOnFailure
		}
	}
	switch c.Status {
	case statusRunning, statusPaused, statusUnknown:
		t.Now = podgroup.Run{State: podgroup.Executing, Started: c.StartedAt.time()}
		if c.Status != statusRunning {
			t.Ready = new(false)
		}
	case statusRestarting, statusRebuilding:
		t.Now = podgroup.Run{Reason: "CrashLoopBackOff", Message: c.StatusReason}
	case statusError:
		t.Now = podgroup.Run{Reason: "CreateContainerError", Message: c.StatusReason}
		if in.Status == statusRunning { // all were created: it is lost, and Zun does not start it again
			t.Now = podgroup.Run{
				State: podgroup.Terminated, ExitCode: podspec.ExitUnknown, Reason: podspec.ReasonContainerStatusUnknown, Message: c.StatusReason,
				Started: c.StartedAt.time(), Finished: in.UpdatedAt.time(),
			}
		}
	case statusStopped, statusDead:
		e, known := b.end(ctx, c, policy, isInit)
		run := podgroup.Run{State: podgroup.Terminated, ExitCode: e.code, Reason: e.reason, Message: e.message, Started: c.StartedAt.time(), Finished: in.UpdatedAt.time()}
		switch {
		case !known:
			t.Now = podgroup.Run{State: podgroup.Executing, Started: c.StartedAt.time()}
		case e.forGood(policy):
			t.Now = run
		default:
			t.Now, t.Last = podgroup.Run{Reason: "CrashLoopBackOff"}, run
		}
	}
	return t
}

// end is how a container has ended.
type end struct {
	code            int32
	reason, message string
}

// forGood reports whether Zun does not start the container again.
func (e end) forGood(policy restartPolicy) bool {
	switch policy.Name {
	case restartNever:
		return true
	case restartOnFailure: // one that is to be started again is Restarting
		return e.code == 0 || e.reason != "" || policy.givesUp()
	}
	return false
}

// exited is the form of what Zun says of a container that has ended.
const exited = "Exited(%d)"

// end returns how a container has ended, and whether that is known yet. Lists may lack it:
// then the container is asked for, once.
func (b *backend) end(ctx context.Context, c *container, policy restartPolicy, isInit bool) (e end, known bool) {
	if e, known = b.ends.get(c.UUID); known {
		return e, true
	}
	var code int32
	_, unknown := fmt.Sscanf(c.StatusDetail, exited, &code)
	if unknown != nil {
		var shown container
		if err := b.get(ctx, actionShow, "containers/"+c.UUID, &shown); err != nil && !errdefs.IsNotFound(err) { // newer versions of Zun do not show containers of capsules there
			return end{}, false
		}
		_, unknown = fmt.Sscanf(shown.StatusDetail, exited, &code)
	}
	e = end{code: podspec.ExitUnknown, reason: podspec.ReasonContainerStatusUnknown}
	if isInit { // Zun waits for its end, and then goes on: the pod runs
		e = end{reason: "Completed", message: "Zun does not show how it ended, and starts what follows"}
	}
	if unknown == nil {
		e = end{code: code}
	}
	if e.forGood(policy) {
		b.ends.set(c.UUID, e)
	}
	return e, true
}

// endsCache has the ends of containers that have ended for good, by their UUID, as long as lists
// have these. It is safe for concurrent use.
type endsCache struct {
	mu          sync.Mutex
	now, before map[string]end // of this list, and of the one before
}

func (c *endsCache) get(uuid string) (e end, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok = c.now[uuid]; !ok {
		if e, ok = c.before[uuid]; ok {
			c.now[uuid] = e
		}
	}
	return e, ok
}

func (c *endsCache) set(uuid string, e end) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now[uuid] = e
}

// begin begins a list: what the one before did not have is forgotten.
func (c *endsCache) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before, c.now = c.now, map[string]end{}
}

// timestamp is a time of Zun, in UTC: with a blank or a T, with a zone or without.
type timestamp string

// time returns the time; zero if it is none.
func (t timestamp) time() time.Time {
	for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00"} {
		if parsed, err := time.Parse(layout, strings.Replace(string(t), "T", " ", 1)); err == nil {
			return parsed.UTC()
		}
	}
	return time.Time{}
}
