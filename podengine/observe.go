package podengine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/podengine/convert"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// hashOf is the hash of a container as its annotation has it.
func hashOf(c *corev1.Container) string {
	return strconv.FormatUint(podspec.HashContainer(c), 16)
}

// runtimeView is what the runtime has of one pod.
type runtimeView struct {
	sandboxes  []*sandbox              // the newest first
	containers map[string][]*container // by name, the newest first
	missing    []missed                // attempts that the runtime does not show
}

// observe asks the runtime what it has of a pod.
func (e *Engine) observe(ctx context.Context, uid types.UID) (*runtimeView, error) {
	if err := e.runtimeName.learn(ctx, e.cfg.Runtime); err != nil {
		return nil, err
	}
	ours := map[string]string{kubelettypes.KubernetesPodUIDLabel: string(uid)}
	boxes, err := e.cfg.Runtime.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: ours})
	if err != nil {
		return nil, fmt.Errorf("cannot list the sandboxes of the pod: %w", err)
	}
	listed, err := e.cfg.Runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: ours})
	if err != nil {
		return nil, fmt.Errorf("cannot list the containers of the pod: %w", err)
	}
	v := &runtimeView{containers: map[string][]*container{}}
	for _, box := range boxes {
		s := &sandbox{
			id:      box.Id,
			attempt: box.GetMetadata().GetAttempt(),
			ready:   box.State == runtimeapi.PodSandboxState_SANDBOX_READY,
			created: time.Unix(0, box.CreatedAt),
			handler: box.RuntimeHandler,
		}
		v.sandboxes = append(v.sandboxes, s)
	}
	slices.SortFunc(v.sandboxes, func(a, b *sandbox) int {
		return cmp.Or(cmp.Compare(b.attempt, a.attempt), b.created.Compare(a.created))
	})
	if s := v.sandbox(); s != nil && s.ready {
		if s.ips, err = e.sandboxIPs(ctx, s.id); err != nil {
			return nil, err
		}
	}
	for _, c := range listed {
		known, err := e.container(ctx, c)
		if gone(err) {
			continue // since it was listed
		}
		if err != nil {
			return nil, err
		}
		v.containers[known.name] = append(v.containers[known.name], known)
	}
	for _, attempts := range v.containers {
		slices.SortFunc(attempts, newestFirst)
	}
	if w := e.worker(uid); w != nil {
		w.recall(v)
	}
	return v, nil
}

// newestFirst orders attempts by their numbers first: clocks are set back.
func newestFirst(a, b *container) int {
	return cmp.Or(cmp.Compare(b.attempt, a.attempt), b.created.Compare(a.created))
}

// sandbox is the newest sandbox, or nil.
func (v *runtimeView) sandbox() *sandbox {
	if len(v.sandboxes) == 0 {
		return nil
	}
	return v.sandboxes[0]
}

// newest is the newest attempt of a container, or nil.
func (v *runtimeView) newest(name string) *container {
	if all := v.containers[name]; len(all) > 0 {
		return all[0]
	}
	return nil
}

// newestStarted is the newest attempt of a container that is not about to be started, or nil.
func (v *runtimeView) newestStarted(name string) *container {
	all := v.containers[name]
	if i := slices.IndexFunc(all, func(c *container) bool { return c.phase != created && c.phase != aborted }); i >= 0 {
		return all[i]
	}
	return nil
}

// previous is the attempt before the newest, or nil.
func (v *runtimeView) previous(name string) *container {
	if all := v.containers[name]; len(all) > 1 {
		return all[1]
	}
	return nil
}

// byID is an attempt of a container, or nil.
func (v *runtimeView) byID(name, id string) *container {
	if i := slices.IndexFunc(v.containers[name], func(c *container) bool { return c.id == id }); i >= 0 {
		return v.containers[name][i]
	}
	return nil
}

// inhabited reports whether a sandbox has containers, be it dead ones.
func (v *runtimeView) inhabited(box *sandbox) bool {
	for _, attempts := range v.containers {
		if slices.ContainsFunc(attempts, func(c *container) bool { return c.sandbox == box.id }) {
			return true
		}
	}
	return false
}

// sandboxIPs asks for the addresses of a sandbox, which never change.
func (e *Engine) sandboxIPs(ctx context.Context, id string) ([]string, error) {
	if ips, ok := e.known.ips(id); ok {
		return ips, nil
	}
	response, err := e.cfg.Runtime.PodSandboxStatus(ctx, id, false)
	if err != nil {
		return nil, fmt.Errorf("cannot get the addresses of the pod: %w", err)
	}
	var ips []string
	if network := response.GetStatus().GetNetwork(); network != nil {
		if network.Ip != "" {
			ips = append(ips, network.Ip)
		}
		for _, more := range network.AdditionalIps {
			ips = append(ips, more.Ip)
		}
	}
	e.known.setIPs(id, ips)
	return ips, nil
}

// container asks for the state of a container, unless it has ended and is known.
func (e *Engine) container(ctx context.Context, listed *runtimeapi.Container) (*container, error) {
	if c := e.known.ended(listed.Id); c != nil {
		return c, nil
	}
	response, err := e.cfg.Runtime.ContainerStatus(ctx, listed.Id, false)
	if err != nil {
		return nil, fmt.Errorf("cannot get the state of container %s: %w", kubelettypes.GetContainerName(listed.GetLabels()), err)
	}
	status := response.GetStatus()
	c := &container{
		id:       status.Id,
		name:     kubelettypes.GetContainerName(status.GetLabels()),
		attempt:  status.GetMetadata().GetAttempt(),
		sandbox:  listed.PodSandboxId,
		hash:     status.GetAnnotations()[convert.HashAnnotation],
		created:  at(status.CreatedAt),
		started:  at(status.StartedAt),
		finished: at(status.FinishedAt),
		exitCode: status.ExitCode,
		reason:   status.Reason,
		message:  status.Message,
		image:    status.GetImage().GetUserSpecifiedImage(),
		imageRef: status.ImageRef,

		resources: status.GetAnnotations()[resourcesAnnotation],
		user:      userOf(status),
	}
	for _, m := range status.GetMounts() {
		if m.RecursiveReadOnly {
			c.recursive = append(c.recursive, m.ContainerPath)
		}
	}
	if c.image == "" {
		c.image = status.GetImage().GetImage()
	}
	switch status.State {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		c.phase = created
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		c.phase = running
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		c.phase = exited
		if e.cfg.NeverRan != nil && e.cfg.NeverRan(status) {
			c.phase = aborted
		}
		if c.finished.IsZero() {
			c.finished = c.created
		}
		e.known.setEnded(c)
	default:
		c.phase = unknown
	}
	return c, nil
}

// userOf is the user that a container runs as, if the runtime reports it.
func userOf(status *runtimeapi.ContainerStatus) *corev1.ContainerUser {
	user := status.GetUser().GetLinux()
	if user == nil {
		return nil
	}
	return &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{
		UID:                user.Uid,
		GID:                user.Gid,
		SupplementalGroups: user.SupplementalGroups,
	}}
}

// at converts a time of the CRI, in which zero means never.
func at(nanoseconds int64) time.Time {
	if nanoseconds <= 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}
