package podgroup_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// The backends of these tests call a World directly. Their pages have 100 units.

// memory creates, deletes, updates and measures units.
type memory struct{ w *grouptest.World }

var codes = podgroup.Codes{Throttled: []string{"Quota"}, Missing: []string{"NotFound"}, Busy: []string{"Busy"}, Away: []string{"InternalError"}, Denied: []string{"Denied"}, Refused: []string{"Invalid"}}

// call makes a call, and gives its error a class.
func (m memory) call(ctx context.Context, action podgroup.Action, f func() error) error {
	err := m.w.Serve(ctx, string(action), f)
	code := ""
	var refusal *grouptest.Refusal
	switch {
	case err == nil:
		return nil
	case errors.Is(err, grouptest.ErrQuota):
		code = "Quota"
	case errors.Is(err, grouptest.ErrNotFound):
		code = "NotFound"
	case errors.Is(err, grouptest.ErrBusy):
		code = "Busy"
	case errors.As(err, &refusal):
		code = refusal.Code
	}
	return codes.Classify(action, code, http.StatusBadRequest, 0, err)
}

func (m memory) Create(ctx context.Context, r *podgroup.Request) (found podgroup.Unit, err error) {
	spec := grouptest.Spec{
		Token: r.Token, Tags: r.Tags, RestartPolicy: string(r.Pod.Spec.RestartPolicy), Files: r.Files,
		InitContainers: names(r.Pod.Spec.InitContainers), Containers: names(r.Pod.Spec.Containers),
	}
	if spec.Tags == nil { // the service gets the pod itself
		spec.Tags = map[string]string{podgroup.TagPodName: r.Pod.Name, "uid": string(r.Pod.UID)}
	}
	err = m.call(ctx, podgroup.ActionCreate, func() error {
		u, err := m.w.Create(spec)
		found = u.Unit
		return err
	})
	return found, err
}

func names(containers []corev1.Container) (made []podgroup.Container) {
	for i := range containers {
		made = append(made, podgroup.Container{Name: containers[i].Name, Image: containers[i].Image})
	}
	return made
}

func (m memory) Delete(ctx context.Context, u *podgroup.Unit, _ time.Duration) error {
	return m.call(ctx, podgroup.ActionDelete, func() error { return m.w.Delete(u.ID) })
}

func (m memory) Update(ctx context.Context, u *podgroup.Unit, change podgroup.Change) error {
	images := map[string]string{}
	if change.Images {
		for _, c := range change.Pod.Spec.Containers {
			images[c.Name] = c.Image
		}
	}
	return m.call(ctx, podgroup.ActionUpdate, func() error { return m.w.Update(u.ID, images, change.Files) })
}

func (m memory) ReadLog(ctx context.Context, u *podgroup.Unit, container string, q podgroup.LogQuery) (text string, err error) {
	q.Since = q.Since.Truncate(time.Second)
	err = m.call(ctx, podgroup.ActionLog, func() (err error) {
		text, err = m.w.LogText(u.ID, container, q)
		return err
	})
	return text, err
}

func (m memory) Usage(ctx context.Context, units []*podgroup.Unit) (all []stats.PodStats, err error) {
	err = m.call(ctx, podgroup.ActionUsage, func() error {
		for range units {
			cores := uint64(1000)
			all = append(all, stats.PodStats{CPU: &stats.CPUStats{UsageNanoCores: &cores, UsageCoreNanoSeconds: &cores}})
		}
		return nil
	})
	return all, err
}

// listing is a memory with a list.
type listing struct{ memory }

func (l listing) List(ctx context.Context, filter map[string]string, page string) (found podgroup.Page, err error) {
	err = l.call(ctx, podgroup.ActionList, func() error {
		all := l.w.Units(func(u *grouptest.Unit) bool { return u.Tags[podgroup.TagNodeName] == filter[podgroup.TagNodeName] })
		part, next, err := l.w.Page(all, page, 100)
		for i := range part {
			found.Units = append(found.Units, part[i].Unit)
		}
		found.Next = next
		return err
	})
	return found, err
}

// watching is a listing with events.
type watching struct{ listing }

func (m watching) Watch(ctx context.Context, _ string, changed func(podgroup.Unit)) error {
	events, stop := m.w.Subscribe()
	defer stop()
	ticker := time.NewTicker(time.Second) // a World changes when it is asked
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			m.w.Units(nil)
		case u, ok := <-events:
			if !ok {
				return errdefs.AsUnavailable(errors.New("the stream broke off"))
			}
			changed(u)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// getting is a memory without a list, which knows units by their pod.
type getting struct{ memory }

func (g getting) Delete(ctx context.Context, u *podgroup.Unit, grace time.Duration) error {
	if pod, ok := u.Data.(*corev1.Pod); ok && podgroup.OwnerOf(pod) == u.Owner && u.ID == string(pod.UID) {
		if known, err := g.w.OfPod(pod.Name); err == nil && known.Tags["uid"] == u.ID {
			u = &known.Unit
		}
	}
	return g.memory.Delete(ctx, u, grace)
}

func (g getting) Get(ctx context.Context, pods []*corev1.Pod) (found []podgroup.Unit, err error) {
	err = g.call(ctx, podgroup.ActionList, func() error {
		byUID := map[string]*corev1.Pod{}
		for _, pod := range pods {
			byUID[string(pod.UID)] = pod
		}
		for _, u := range g.w.Units(func(u *grouptest.Unit) bool { return byUID[u.Tags["uid"]] != nil }) {
			u.Owner = podgroup.OwnerOf(byUID[u.Tags["uid"]])
			u.Annotations = map[string]string{"memory/unit": u.ID}
			found = append(found, u.Unit)
		}
		return nil
	})
	return found, err
}

func options() podgroup.Options {
	return podgroup.Options{
		Service: "Memory", Scheme: "memory", Identity: podgroup.Identity{Cluster: "test"},
		Features: podgroup.Features{
			Fields: []string{
				"restartPolicy", "initContainers", "volumes.emptyDir", "volumes.configMap", "volumes.secret", "volumes.projected", "volumes.downwardAPI",
				"containers.livenessProbe", "-containers.livenessProbe.grpc",
			},
			Renew: []corev1.RestartPolicy{corev1.RestartPolicyAlways},
		},
		Budget: podgroup.NewBudget(map[podgroup.Action]int{podgroup.AnyAction: 2000}),
	}
}

var actions = map[podgroup.Action]string{
	podgroup.ActionCreate: string(podgroup.ActionCreate), podgroup.ActionList: string(podgroup.ActionList),
}

var backends = map[string]func(memory) podgroup.Backend{
	"listing":  func(m memory) podgroup.Backend { return listing{m} },
	"watching": func(m memory) podgroup.Backend { return watching{listing{m}} },
	"getting":  func(m memory) podgroup.Backend { return getting{m} },
}

func TestBackends(t *testing.T) {
	for name, made := range backends {
		t.Run(name, func(t *testing.T) {
			grouptest.Suite{
				New: func(_ *testing.T, w *grouptest.World) (podgroup.Backend, podgroup.Options) {
					b, o := made(memory{w}), options()
					if _, lists := b.(podgroup.Lister); lists {
						o.Place = "here"
					}
					return b, o
				},
				Actions: actions,
			}.Run(t)
		})
	}
}

var (
	_ podgroup.Watcher   = watching{}
	_ podgroup.Getter    = getting{}
	_ podgroup.Updater   = memory{}
	_ podgroup.LogReader = memory{}
	_ podgroup.Meter     = memory{}
)
