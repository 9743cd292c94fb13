package zun

import (
	"context"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
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
	Labels        map[string]string                  `json:"labels"`
	Status        string                             `json:"status"`
	StatusReason  string                             `json:"status_reason"`
	RestartPolicy struct{ Name string }              `json:"restart_policy"`
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
	UUID         string            `json:"uuid"`
	Name         string            `json:"name"`
	Image        string            `json:"image"`
	Environment  map[string]string `json:"environment"`
	Status       string            `json:"status"`
	StatusDetail string            `json:"status_detail"`
	StatusReason string            `json:"status_reason"`
	StartedAt    timestamp         `json:"started_at"`
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

// restartNever and restartOnFailure are restart policies as Zun names them.
const (
	restartNever     = "no"
	restartOnFailure = "on-failure"
)

// unit translates what Zun says of a capsule. Its status is that of the container with the
// network, which runs on when all others have ended.
func (b *backend) unit(ctx context.Context, c *capsule) podgroup.Unit {
	u := podgroup.Unit{ID: c.UUID, Tags: b.tags(c.Labels), Created: c.CreatedAt.Time, Data: map[string]string{}}
	for _, network := range slices.Sorted(maps.Keys(c.Addresses)) {
		for _, address := range c.Addresses[network] {
			u.IPs = append(u.IPs, address.Addr)
		}
	}
	ended, good := len(c.Containers) > 0, true
	for i, name := range b.names(c) {
		if name == "" {
			continue
		}
		found, policy, isInit := &slices.Concat(c.InitContainers, c.Containers)[i], c.RestartPolicy.Name, i < len(c.InitContainers)
		if isInit && policy != restartNever { // as Zun does it
			policy = restartOnFailure
		}
		one := b.shown(ctx, c, found, policy)
		one.Name = name
		u.Containers, u.Data.(map[string]string)[name] = append(u.Containers, one), found.UUID
		ended, good = ended && (isInit || one.Now.State == podgroup.Terminated), good && one.Now.ExitCode == 0
	}
	ended = ended && len(u.Containers) > 0
	switch {
	case c.Status == statusDeleting, c.Status == statusDeleted:
		u.Phase = podgroup.Stopping
	case c.Status == statusError:
		u.Phase, u.Failure = podgroup.Failed, &podspec.Failure{Reason: "CapsuleError", Message: c.StatusReason}
		u.Events = []podgroup.Event{{Type: corev1.EventTypeWarning, Reason: "CapsuleError", Message: c.StatusReason, At: c.UpdatedAt.Time}}
	case ended && good:
		u.Phase = podgroup.Succeeded
	case ended, c.Status == statusStopped, c.Status == statusDead:
		u.Phase = podgroup.Failed
	case slices.Contains([]string{statusRunning, statusRestarting, statusRebuilding, statusPaused, statusUnknown}, c.Status):
		u.Phase = podgroup.Running
	}
	if u.Over() {
		u.Ended = c.UpdatedAt.Time
	}
	return u
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
	if marked || b.pods == nil {
		return names
	}
	pod, err := b.pods.Pods(c.Labels[podgroup.TagNamespace]).Get(c.Labels[podgroup.TagPodName])
	if err != nil || pod.UID != types.UID(c.Labels[podgroup.TagUID]) {
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

// shown translates what Zun says of a container.
func (b *backend) shown(ctx context.Context, in *capsule, c *container, policy string) podgroup.Container {
	t := podgroup.Container{Image: c.Image}
	switch c.Status {
	case statusRunning, statusPaused, statusUnknown:
		t.Now = podgroup.Run{State: podgroup.Executing, Started: c.StartedAt.Time}
		if c.Status != statusRunning {
			t.Ready = new(false)
		}
	case statusRestarting, statusRebuilding:
		t.Now = podgroup.Run{Reason: "CrashLoopBackOff", Message: c.StatusReason}
	case statusError:
		t.Now = podgroup.Run{Reason: "CreateContainerError", Message: c.StatusReason}
	case statusStopped, statusDead:
		e, known := b.end(ctx, c, policy)
		if !known {
			t.Now = podgroup.Run{State: podgroup.Executing, Started: c.StartedAt.Time}
			break
		}
		run := podgroup.Run{State: podgroup.Terminated, ExitCode: e.code, Reason: e.reason, Started: c.StartedAt.Time, Finished: in.UpdatedAt.Time}
		if e.forGood(policy) {
			t.Now = run
		} else {
			t.Now, t.Last = podgroup.Run{Reason: "CrashLoopBackOff"}, run
		}
	}
	return t
}

// end is how a container has ended.
type end struct {
	code   int32
	reason string
}

// forGood reports whether Zun does not start the container again.
func (e end) forGood(policy string) bool {
	return policy == restartNever || policy == restartOnFailure && e.code == 0
}

var exited = regexp.MustCompile(`^Exited\((-?\d+)\)`)

// end returns how a container has ended, and whether that is known yet. Lists may lack it:
// then the container is asked for, once.
func (b *backend) end(ctx context.Context, c *container, policy string) (e end, known bool) {
	b.mu.Lock()
	e, known = b.ends[c.UUID]
	b.mu.Unlock()
	if known {
		return e, true
	}
	detail := c.StatusDetail
	if !exited.MatchString(detail) {
		var shown container
		err := b.get(ctx, actionShow, "containers/"+c.UUID, &shown)
		if err != nil && !errdefs.IsNotFound(err) { // newer versions of Zun do not show containers of capsules there
			return end{}, false
		}
		detail = shown.StatusDetail
	}
	e = end{podspec.ExitUnknown, podspec.ReasonContainerStatusUnknown}
	if parts := exited.FindStringSubmatch(detail); parts != nil {
		if code, err := strconv.ParseInt(parts[1], 10, 32); err == nil {
			e = end{code: int32(code)}
		}
	}
	if e.forGood(policy) {
		b.mu.Lock()
		b.ends[c.UUID] = e
		b.mu.Unlock()
	}
	return e, true
}

// timestamp is a time of Zun, in UTC: with a blank or a T, with a zone or without.
type timestamp struct{ time.Time }

// UnmarshalJSON implements json.Unmarshaler. What is no time is zero.
func (t *timestamp) UnmarshalJSON(data []byte) error {
	var text *string
	if err := json.Unmarshal(data, &text); err != nil || text == nil {
		return err
	}
	for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00"} {
		if parsed, err := time.Parse(layout, strings.Replace(*text, "T", " ", 1)); err == nil {
			t.Time = parsed.UTC()
		}
	}
	return nil
}
