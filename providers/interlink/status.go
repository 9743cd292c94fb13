package interlink

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/rest"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink/internal/wire"
)

const (
	// maxStatuses is for how many pods statuses are asked for at once: a request has the
	// pods as a whole.
	maxStatuses = 100
	// maxAsking is how many requests for single pods are made at a time.
	maxAsking = 8
)

// Get implements podgroup.Getter. Some plugins refuse to answer for all pods because of one
// that they do not know, or fail at: then each is asked for alone.
func (b *backend) Get(ctx context.Context, pods []*corev1.Pod) (all []podgroup.Unit, err error) {
	for part := range slices.Chunk(pods, maxStatuses) {
		found, err := b.statuses(ctx, part)
		if mayBeOnePods(err) {
			found, err = b.eachStatus(ctx, part, err)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// mayBeOnePods reports whether an error of the statuses of several pods may be that of one of them.
// A server that is overloaded, or asks to wait, must not get a request for each pod.
func mayBeOnePods(err error) bool {
	code := rest.StatusOf(err)
	_, later := errdefs.RetryAfter(err)
	return code == http.StatusNotFound || code >= http.StatusInternalServerError && code != http.StatusServiceUnavailable && !later
}

// eachStatus asks for each pod alone. Pods for which there is an error are left out, unless
// all have one: the caller asks for a pod that it misses alone, and gets its error then.
func (b *backend) eachStatus(ctx context.Context, pods []*corev1.Pod, first error) (all []podgroup.Unit, err error) {
	var mu sync.Mutex
	missing, failed, last := 0, 0, first
	var group errgroup.Group
	group.SetLimit(maxAsking)
	for _, pod := range pods {
		group.Go(func() error {
			found, err := []podgroup.Unit(nil), first
			if len(pods) > 1 {
				found, err = b.statuses(ctx, []*corev1.Pod{pod})
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, found...)
			switch {
			case rest.StatusOf(err) == http.StatusNotFound:
				missing++
			case err != nil:
				failed++
				last = err
			}
			return nil
		})
	}
	_ = group.Wait() // its functions return none
	if failed == len(pods) {
		return nil, last
	}
	if missing > 0 { // the plugin's answer, or that of something before the server
		if _, err := b.ping(ctx); err != nil {
			return nil, errdefs.AsUnavailable(err)
		}
	}
	return all, nil
}

// statuses asks for the statuses of pods. Those that the plugin does not know are left out.
func (b *backend) statuses(ctx context.Context, pods []*corev1.Pod) (all []podgroup.Unit, err error) {
	all, _, err = b.ask(ctx, pods)
	return all, err
}

// ask is statuses with those of the pods that the plugin reports as ones it does not know.
func (b *backend) ask(ctx context.Context, pods []*corev1.Pod) (all []podgroup.Unit, unknown map[types.UID]bool, err error) {
	sent := make([]*corev1.Pod, 0, len(pods))
	for _, pod := range pods {
		sent = append(sent, sentPod(pod))
		if _, deleted := b.deleted.since(pod.UID); deleted {
			if err := b.forget(ctx, pod.UID); err != nil {
				log.G(ctx).WithError(err).Debug("interLink keeps the last status of a pod that is deleted")
			}
		}
	}
	var answer []wire.Status
	if err := b.Do(ctx, call(podgroup.ActionList, http.MethodGet, "/status", sent, podgroup.EnvSecrets(sent...)...), &answer); err != nil {
		return nil, nil, err
	}
	unknown = map[types.UID]bool{}
	for _, pod := range pods {
		i := slices.IndexFunc(answer, func(s wire.Status) bool { return s.UID == string(pod.UID) })
		if i < 0 {
			continue
		}
		if isUnknown(&answer[i]) {
			unknown[pod.UID] = true
			b.stateless.Store(true)
			continue
		}
		if len(answer[i].Containers) > 0 {
			all = append(all, b.unit(pod, &answer[i]))
		} else if len(pods) == 1 {
			return nil, nil, errdefs.AsUnavailable(jobUnclear{fmt.Errorf("interLink knows pod %s/%s, and reports none of its containers", pod.Namespace, pod.Name)})
		}
	}
	return all, unknown, nil
}

// jobUnclear is the error of a status that says no more than that the plugin knows the pod.
type jobUnclear struct{ error }

// forget has the server forget the last status of a pod: it would go on to answer with it
// once the plugin has deleted the job, and leaves out the pod.
func (b *backend) forget(ctx context.Context, uid types.UID) error {
	err := b.Do(ctx, call(podgroup.ActionList, http.MethodPost, "/updateCache", []byte(uid)), nil)
	switch rest.StatusOf(err) {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented: // an older server, or what is before it, does not have it
		return nil
	}
	return err
}

// isUnknown reports whether a status is that of a pod that the plugin does not know: its
// containers have no state at all.
func isUnknown(s *wire.Status) bool {
	all := slices.Concat(s.InitContainers, s.Containers)
	return len(all) > 0 && !slices.ContainsFunc(all, func(c corev1.ContainerStatus) bool {
		return c.State != corev1.ContainerState{} || c.LastTerminationState != corev1.ContainerState{}
	})
}

// unit translates the status of a pod.
func (b *backend) unit(pod *corev1.Pod, s *wire.Status) podgroup.Unit {
	u := podgroup.Unit{ID: string(pod.UID), Owner: podgroup.OwnerOf(pod), Data: pod}
	if s.JobID != "" {
		u.Annotations = map[string]string{AnnotationJobID: s.JobID}
	}
	for i := range s.InitContainers {
		u.Containers = append(u.Containers, container(&s.InitContainers[i], nil))
	}
	u.Phase = podgroup.Succeeded // until a container says otherwise
	for i := range s.Containers {
		found := &s.Containers[i]
		at := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == found.Name })
		var spec *corev1.Container
		if at >= 0 {
			spec = &pod.Spec.Containers[at]
		}
		u.Containers = append(u.Containers, container(found, spec))
	}
	if b.mayStart(pod, u.Containers) {
		for i := range u.Containers {
			u.Containers[i].Now = podgroup.Run{Message: "the plugin reports that the job has ended, and not that it has started: it may be about to start"}
		}
	}
	runs, ended := false, true
	for _, c := range u.Containers[len(s.InitContainers):] {
		runs = runs || c.Now.State != podgroup.Waiting || c.Last.State != podgroup.Waiting
		ended = ended && c.Now.State == podgroup.Terminated
		if c.Now.ExitCode != 0 {
			u.Phase = podgroup.Failed
		}
		if c.Now.Finished.After(u.Ended) {
			u.Ended = c.Now.Finished
		}
	}
	for _, c := range pod.Spec.Containers { // the plugin may leave out some
		ended = ended && u.Container(c.Name) != nil
	}
	if !ended {
		u.Phase = podgroup.Pending
		if runs {
			u.Phase = podgroup.Running
		}
	}
	if u.Phase != podgroup.Pending && b.config.PodIP != "" {
		u.IPs = []string{b.config.PodIP}
	}
	return u
}

// unstartedFor is for how long an end without a start does not count: as long as machines take to start
// that Slurm has switched off.
const unstartedFor = 10 * time.Minute

// mayStart reports whether containers that have ended with a time, and without a start or a failure,
// may not have begun: the Slurm plugin reports a job as such that waits for its machines to be
// configured (CF). It also does so of one that has ended before it was seen to run, for as long as Slurm
// knows it, by default five minutes; then the time is missing, too.
func (b *backend) mayStart(pod *corev1.Pod, containers []podgroup.Container) bool {
	ended := false
	for _, c := range containers {
		has := c.Now.State == podgroup.Terminated && c.Now.ExitCode == 0 && c.Now.Started.IsZero() && !c.Now.Finished.IsZero()
		if !has && c.Now.State != podgroup.Waiting || c.Last.State != podgroup.Waiting {
			ended = false
			break
		}
		ended = ended || has
	}
	if !ended || slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(s corev1.ContainerStatus) bool {
		return s.State.Running != nil || s.State.Terminated != nil // it has run
	}) {
		b.unstarted.remove(pod.UID)
		return false
	}
	return time.Since(b.unstarted.addOnce(pod.UID)) < unstartedFor
}

func (r *recent) remove(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.at, uid)
}

// waitsForProbes is how the reason begins with which the Slurm plugin reports a container that
// runs, and is not ready.
const waitsForProbes = "Waiting for probes"

// reasonTimeout is the reason of the Slurm plugin for a container whose job has reached its time limit.
const reasonTimeout = "SlurmJobTimeout"

// container translates the status of a container. Plugins do not all set Ready: it counts
// where there is a probe.
func container(s *corev1.ContainerStatus, spec *corev1.Container) podgroup.Container {
	if w := s.State.Waiting; w != nil && strings.HasPrefix(w.Reason, waitsForProbes) {
		s.State, s.Started = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, &s.Ready
	}
	c := podgroup.Container{Name: s.Name, ImageID: s.ImageID, Restarts: s.RestartCount, Now: podgroup.RunOf(&s.State), Last: podgroup.RunOf(&s.LastTerminationState)}
	if c.Now.State == podgroup.Terminated && c.Now.ExitCode == 0 && c.Now.Reason == reasonTimeout { // OOMKilled and 0 is also of a container that lost a child, and ended well
		c.Now.ExitCode = podspec.ExitUnknown // the job was killed, and the plugin found no other code
	}
	if spec != nil && spec.ReadinessProbe != nil && c.Now.State == podgroup.Executing {
		c.Ready = &s.Ready
	}
	if spec != nil && spec.StartupProbe != nil && c.Now.State == podgroup.Executing {
		c.Started = s.Started
	}
	return c
}
