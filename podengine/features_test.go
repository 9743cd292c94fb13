package podengine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

func TestWarningsAreRecordedOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.services.Add(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "dns", Labels: map[string]string{"k8s-app": "kube-dns"}}})
		r.runtime.plans["a"] = plan{runs: time.Second, code: 1}
		pod := makePod("a", func(p *corev1.Pod) { p.Spec.DNSPolicy = corev1.DNSClusterFirst })
		r.create(pod)
		r.after(30 * time.Minute)
		if n := r.events.count("MissingClusterDNS"); n != 1 {
			t.Errorf("the same was reported %d times", n)
		}
	})
}

// A cluster without DNS has no address that the node could be given.
func TestNoWarningOfMissingDNSWhereTheClusterHasNone(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.services.Add(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "metrics-server"}})
		r.create(makePod("a", func(p *corev1.Pod) { p.Spec.DNSPolicy = corev1.DNSClusterFirst }))
		r.after(time.Minute)
		if n := r.events.count("MissingClusterDNS"); n != 0 {
			t.Errorf("%d warnings of a missing cluster DNS in a cluster that has none", n)
		}
	})
}

func TestImageVolume(t *testing.T) {
	withVolume := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "data:1"}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v", SubPath: "part"}}
	}
	inBubble(t, func(r *rig) {
		r.images.pull = func(_ context.Context, image string) error {
			if image == "data:1" {
				return errors.New("no such image")
			}
			return nil
		}
		pod := makePod("a b", withVolume)
		r.create(pod)
		r.wantState(pod, "Pending a=ErrImagePull b=ready")
		r.images.mu.Lock()
		r.images.pull = nil
		r.images.mu.Unlock()
		r.after(11 * time.Second)
		r.wantState(pod, "Running a=ready b=ready")
		for _, m := range r.runtime.newest("a").config.Mounts {
			if m.ContainerPath == "/v" && m.Image.GetImage() == "data:1" && m.ImageSubPath == "part" && m.Readonly {
				return
			}
		}
		t.Errorf("mounts are %v", r.runtime.newest("a").config.Mounts)
	})
}

// A runtime would give all below a path of the host another label, for good.
func TestPathsOfTheHostAreNotRelabelled(t *testing.T) {
	dir := t.TempDir()
	withVolumes := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{
			{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}}},
			{Name: "own", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "host", MountPath: "/host"}, {Name: "own", MountPath: "/own"}}
	}
	inBubbleWith(t, func(r *rig) {
		r.cfg.AllowHostPath = func(volume.HostAccess) error { return nil }
	}, func(r *rig) {
		pod := makePod("a", withVolumes)
		r.create(pod)
		r.wantState(pod, "Running a=ready")
		got := map[string]bool{}
		for _, m := range r.runtime.newest("a").config.Mounts {
			got[m.ContainerPath] = m.SelinuxRelabel
		}
		if want := map[string]bool{"/host": false, "/own": true, "/etc/hosts": true}; !maps.Equal(got, want) {
			t.Errorf("relabelled are %v, want %v", got, want)
		}
	})
}

func TestParallelPulls(t *testing.T) {
	for parallel, want := range map[int]int{0: 1, 2: 2, -1: 3} {
		inBubbleWith(t, func(r *rig) {
			r.cfg.ParallelPulls = parallel
			r.images.pull = func(ctx context.Context, _ string) error {
				<-ctx.Done()
				return ctx.Err()
			}
		}, func(r *rig) {
			for _, name := range []string{"a", "b", "c"} {
				r.create(makePod(name, first(func(c *corev1.Container) { c.Image = name + ":1" })))
			}
			if n := len(r.images.pulls); n != want {
				t.Errorf("ParallelPulls %d: %d images are pulled at once, want %d", parallel, n, want)
			}
		})
	}
}

func TestUnusedImagesAreRemoved(t *testing.T) {
	var full atomic.Bool
	inBubbleWith(t, func(r *rig) {
		r.runtime.image = "pause:1"
		r.cfg.ImageGC = ImageGC{Usage: func(context.Context) (uint64, uint64, error) {
			if full.Load() {
				return 1000, 50, nil
			}
			return 1000, 500, nil
		}}
		for _, name := range []string{"pause:1", "old:1", "wanted:1"} {
			r.images.present[name] = &runtimeapi.Image{Id: name, RepoTags: []string{name}, Size: 1000}
		}
	}, func(r *rig) {
		// Its container does not exist, since its ConfigMap is missing.
		r.create(makePod("a", first(func(c *corev1.Container) {
			c.Image = "wanted:1"
			c.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}}}
		})))
		r.after(6 * time.Minute)
		if removed := r.images.gone(); len(removed) > 0 {
			t.Errorf("%v were removed while there was room", removed)
		}
		full.Store(true)
		r.after(10 * time.Minute)
		if removed := r.images.gone(); !slices.Equal(removed, []string{"old:1"}) {
			t.Errorf("%v were removed, want old:1", removed)
		}
	})
}

func TestPlanRotation(t *testing.T) {
	limits := LogLimits{MaxSize: 100, MaxFiles: 3}
	for name, c := range map[string]struct {
		size  int64
		aside string
		want  string
	}{
		"small":                  {99, "", "false []"},
		"large":                  {100, "", "true []"},
		"large, with one aside":  {100, "1", "true []"},
		"large, with two aside":  {100, "2 1", "true [1]"},
		"large, with many aside": {100, "4 3 2 1", "true [1 2 3]"},
		"small, with many aside": {0, "4 3 2 1", "false [1 2]"},
	} {
		plan := planRotation(c.size, strings.Fields(c.aside), limits)
		if got := fmt.Sprint(plan.rotate, plan.remove); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestLogsAreRotated(t *testing.T) {
	inBubbleWith(t, func(r *rig) { r.cfg.Logs = LogLimits{MaxSize: 100, MaxFiles: 3} }, func(r *rig) {
		pod := makePod("a")
		r.create(pod)
		log := r.runtime.newest("a").log
		for range 5 {
			if err := writeLog(log, 100); err != nil {
				t.Fatal(err)
			}
			r.after(10 * time.Second)
		}
		files, _ := filepath.Glob(log + "*")
		if len(files) != 3 || r.runtime.reopened != 5 {
			t.Errorf("files are %v, reopened %d times", files, r.runtime.reopened)
		}
		r.runtime.intercept(func(_ context.Context, call string) error {
			if call == "ReopenContainerLog a" {
				return errors.New("not now")
			}
			return nil
		})
		if err := writeLog(log, 100); err != nil {
			t.Fatal(err)
		}
		r.after(10 * time.Second)
		if info, err := os.Stat(log); err != nil || info.Size() != 100 {
			t.Errorf("the log that is written is not where it was: %v", err)
		}
	})
}

// classes are handlers by class.
type classes struct{ sync.Map }

func (c *classes) Handler(_ context.Context, class string) (string, error) {
	if handler, ok := c.Load(class); ok {
		return handler.(string), nil
	}
	return "", errors.New("it does not exist")
}

func TestRuntimeClass(t *testing.T) {
	class := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.RuntimeClassName = &name }
	}
	restarts := first(func(c *corev1.Container) { c.ImagePullPolicy = corev1.PullAlways })
	var known classes
	inBubbleWith(t, func(r *rig) {
		known.Store("fast", "kata")
		r.cfg.RuntimeClasses = &known
		r.runtime.plans["a"] = plan{runs: 10 * time.Second}
	}, func(r *rig) {
		pod := makePod("a", class("fast"), restarts)
		r.create(pod)
		known.Delete("fast") // as if the API server were away
		r.after(13 * time.Second)
		r.wantState(pod, "Running a=ready#1")
		if got := r.runtime.boxes[r.runtime.box()].RuntimeHandler; got != "kata" {
			t.Errorf("the handler is %q", got)
		}
		if want := []string{"image:1 for kata", "image:1 for kata"}; !slices.Equal(r.images.pulls, want) {
			t.Errorf("pulled %q, want %q", r.images.pulls, want)
		}
	})
	inBubbleWith(t, func(r *rig) { r.cfg.RuntimeClasses = &known }, func(r *rig) {
		pod := makePod("a", class("slow"))
		r.create(pod)
		r.after(time.Minute)
		r.wantEvents(`Warning FailedCreatePodSandBox: Failed to create pod sandbox: failed to get the handler of RuntimeClass "slow": it does not exist`)
		known.Store("slow", "qemu")
		r.after(lastRetry)
		r.wantState(pod, "Running a=ready")
	})
	inBubble(t, func(r *rig) {
		r.create(makePod("a", class("fast")))
		if n := r.events.count(`RuntimeClass "fast": this node has no runtime classes`); n != 1 {
			t.Errorf("events are %v", r.events.drain())
		}
		r.create(makePod("b", class("")))
		if got := r.runtime.boxes[r.runtime.box()].RuntimeHandler; got != "" {
			t.Errorf("a pod without a class has the handler %q", got)
		}
	})
}

func TestEventsOfTheRuntime(t *testing.T) {
	inBubbleWith(t, func(r *rig) { r.runtime.events = make(chan *runtimeapi.ContainerEventResponse) }, func(r *rig) {
		pod := makePod("a", never)
		r.create(pod)
		tell := func(uid string) {
			r.runtime.events <- &runtimeapi.ContainerEventResponse{
				PodSandboxStatus: &runtimeapi.PodSandboxStatus{Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid}},
			}
			r.after(0)
		}
		tell(string(pod.UID))
		r.after(2 * time.Second) // the next look is the last for a while
		before := r.runtime.lists()
		r.after(10 * time.Minute)
		if n := r.runtime.lists() - before; n > 10 {
			t.Errorf("the runtime was asked %d times in 10 minutes", n)
		}
		r.runtime.exit(r.runtime.newest("a").Id, 3)
		tell(string(pod.UID))
		r.wantState(pod, "Failed a=Error/3")

		close(r.runtime.events) // the connection is lost
		before = r.runtime.lists()
		r.after(10 * time.Second)
		if n := r.runtime.lists() - before; n < 9 {
			t.Errorf("without events the runtime was asked %d times in 10 s", n)
		}
	})
}

func TestUserInStatus(t *testing.T) {
	inBubble(t, func(r *rig) {
		pod := makePod("a", never)
		r.create(pod)
		c := r.runtime.newest("a")
		r.runtime.set(func() {
			c.User = &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{Uid: 1, Gid: 2, SupplementalGroups: []int64{3}}}
		})
		r.update(pod)
		if user := r.status(pod).ContainerStatuses[0].User; user == nil || user.Linux.UID != 1 || user.Linux.GID != 2 {
			t.Errorf("the user is %v", user)
		}
	})
}

// Of the addresses that the runtime reports, a pod and its /etc/hosts have one of each family, that of
// the node's first one first.
func TestAddressesOfPods(t *testing.T) {
	inBubbleWith(t, func(r *rig) {
		r.cfg.HostIPs = func() []string { return []string{"fd00::9", "192.0.2.1"} }
		r.runtime.moreIPs = []string{"10.0.0.2", "fd00::1", "fd00::2"}
	}, func(r *rig) {
		pod := makePod("a")
		r.create(pod)
		r.after(3 * time.Second)
		if got := r.status(pod).PodIPs; !slices.Equal(got, []corev1.PodIP{{IP: "fd00::1"}, {IP: "10.0.0.1"}}) {
			t.Errorf("the status has %v", got)
		}
		hosts, err := os.ReadFile(filepath.Join(r.podDir(pod.UID), "etc-hosts"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(string(hosts), "\nfd00::1\tp\n10.0.0.1\tp\n") {
			t.Errorf("/etc/hosts is\n%s", hosts)
		}
	})
}
