package podengine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podengine/convert"
)

func TestRestartTouchesNothing(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.exec = func(context.Context, string, []string) error { return nil }
		r.runtime.plans["i"] = plan{runs: time.Second}
		pod := makePod("i s a", first(func(c *corev1.Container) {
			c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: command("ready")}}
		}))
		r.create(pod)
		r.after(time.Minute)
		r.wantState(pod, "Running i=Completed/0 s=ready a=ready")
		before := r.status(pod)
		r.runtime.did()
		r.events.drain()
		r.restart(time.Hour)
		r.mu.Lock()
		for _, p := range r.notified[len(r.notified)-1:] {
			if !p.Status.ContainerStatuses[0].Ready {
				t.Error("a container that was ready is not")
			}
		}
		r.mu.Unlock()
		r.wantState(pod, "Running i=Completed/0 s=ready a=ready")
		r.after(5 * time.Minute)
		r.wantCalls()
		r.wantEvents()
		after := r.status(pod)
		for i, c := range after.Conditions {
			if !c.LastTransitionTime.Equal(&before.Conditions[i].LastTransitionTime) {
				t.Errorf("condition %s changed at %v, want %v", c.Type, c.LastTransitionTime, before.Conditions[i].LastTransitionTime)
			}
		}
	})
}

func TestEndsWhileTheEngineIsDown(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.plans["a"] = plan{runs: time.Minute, code: 4}
		pod := makePod("a", never)
		r.create(pod)
		r.restart(time.Hour)
		r.wantState(pod, "Failed a=Error/4")
	})
}

func TestDeletionGoesOnAfterARestart(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.plans["a"] = plan{lingers: time.Hour}
		pod := makePod("a")
		r.create(pod)
		r.delete(pod, 60)
		r.after(10 * time.Second)
		r.runtime.did()
		r.restart(20 * time.Second)
		if calls := r.runtime.did(); len(calls) != 1 || calls[0] != "StopContainer a 30" {
			t.Errorf("calls are %v", calls)
		}
		r.after(31 * time.Second)
		r.wantGone(pod)
	})
}

// A volume's contents are kept fresh after a restart too.
func TestVolumesAfterARestart(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.objects.configMaps["cm"] = &corev1.ConfigMap{Data: map[string]string{"x": "1"}}
		pod := makePod("a", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}}}}
		}, first(func(c *corev1.Container) { c.VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}} }))
		r.create(pod)
		r.restart(time.Minute)
		r.objects.put("cm", map[string]string{"x": "2"})
		r.after(0)
		got, err := os.ReadFile(filepath.Join(r.podDir(pod.UID), "volumes/kubernetes.io~configmap/v/x"))
		if string(got) != "2" {
			t.Errorf("x is %q (%v)", got, err)
		}
	})
}

func TestOrphansAreRemoved(t *testing.T) {
	inBubble(t, func(r *rig) {
		pod := makePod("a")
		r.create(pod)
		config := func(node, uid string) *runtimeapi.PodSandboxConfig {
			c := &runtimeapi.PodSandboxConfig{
				Metadata: &runtimeapi.PodSandboxMetadata{Name: node, Uid: uid},
				Labels:   map[string]string{"io.kubernetes.pod.uid": uid},
			}
			if node != "" {
				c.Annotations = map[string]string{convert.NodeAnnotation: node}
			}
			return c
		}
		for node, uid := range map[string]string{"vk": "unknown", "other": "other's", "": "kubelet's"} {
			if _, err := r.runtime.RunPodSandbox(r.ctx, config(node, uid), ""); err != nil {
				t.Fatal(err)
			}
		}
		r.runtime.did()
		r.after(2500 * time.Millisecond)
		r.wantCalls()
		r.after(time.Second)
		r.wantCalls("StopPodSandbox", "RemovePodSandbox")
		r.after(time.Minute)
		r.wantCalls()
		r.wantState(pod, "Running a=ready")
	})
}

func TestRuntimeFailsForAWhile(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.plans["b"] = plan{runs: 30 * time.Second, code: 1}
		runs, ends, comes := makePod("a b"), makePod("c"), makePod("d")
		ends.Name, comes.Name = "ends", "comes"
		r.create(runs)
		r.create(ends)
		r.runtime.set(func() { r.runtime.before = func(context.Context, string) error { return errors.New("down") } })
		r.create(comes)
		r.delete(ends, 5)
		r.after(10 * time.Minute)
		r.wantState(runs, "Running a=ready b=ready")
		r.runtime.did()
		r.runtime.set(func() { r.runtime.before = nil })
		r.after(11 * time.Second)
		r.wantState(runs, "Running a=ready b=ready#1")
		r.wantState(comes, "Running d=ready")
		if _, err := r.GetPodByUID(r.ctx, "ns", "ends", ends.UID); err == nil {
			t.Error("the pod that was deleted is still there")
		}
		if n := r.runtime.newest("a").Metadata.Attempt; n != 0 {
			t.Errorf("a container that ran on was started again: attempt %d", n)
		}
	})
}

// The state is on disk before anything is in the runtime, and the request for its
// end before DeletePod returns.
func TestStateIsWrittenFirst(t *testing.T) {
	inBubble(t, func(r *rig) {
		pod := makePod("a")
		r.runtime.set(func() {
			r.runtime.before = func(_ context.Context, call string) error {
				if call == "RunPodSandbox p" {
					if _, err := r.loadPod(pod.UID); err != nil {
						t.Errorf("there is a sandbox, but no state: %v", err)
					}
				}
				return nil
			}
			r.runtime.plans["a"] = plan{lingers: time.Hour}
		})
		r.create(pod)
		r.delete(pod, 60)
		c, err := r.loadPod(pod.UID)
		if err != nil || c.Stop == nil || !c.Stop.Deleted {
			t.Errorf("on disk is %v (%v)", c, err)
		}
	})
}

func TestUpdatesAndDeletionsTogether(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.plans["a"] = plan{lingers: time.Minute}
		pod := makePod("a")
		r.create(pod)
		var group sync.WaitGroup
		for i := range 20 {
			group.Go(func() {
				newer := pod.DeepCopy()
				newer.Labels = map[string]string{"i": string(rune('a' + i))}
				_ = r.UpdatePod(r.ctx, newer)
			})
			if i == 10 {
				group.Go(func() { _ = r.DeletePod(r.ctx, pod) })
			}
		}
		group.Wait()
		c, err := r.loadPod(pod.UID)
		if err != nil || c.Stop == nil {
			t.Fatalf("on disk is %v (%v): the deletion was overtaken", c, err)
		}
		held, _ := r.worker(pod.UID).current()
		if c.Pod.Labels["i"] != held.Labels["i"] {
			t.Errorf("on disk is %v, held is %v", c.Pod.Labels, held.Labels)
		}
		r.after(2 * time.Minute)
		r.wantGone(pod)
	})
}

// Nothing of a pod comes back once it has been removed.
func TestUpdateOfAPodThatHasGone(t *testing.T) {
	inBubble(t, func(r *rig) {
		pod := makePod("a")
		r.create(pod)
		w := r.worker(pod.UID)
		r.delete(pod, 0)
		r.after(time.Second)
		if err := w.update(pod); err == nil {
			t.Error("the state of a pod that has gone was written")
		}
		r.wantGone(pod)
	})
}

func TestBrokenState(t *testing.T) {
	inBubble(t, func(r *rig) {
		pod := makePod("a")
		r.create(pod)
		r.end()
		for path, content := range map[string]string{
			"broken/pod.json": "{", "other/pod.json": `{"pod":{"metadata":{"uid":"x"}}}`, "begun/pod.json.new": "{",
			string(pod.UID) + "/pod.json.new": "{", string(pod.UID) + "/status.json": "{",
		} {
			path = filepath.Join(r.cfg.Root, "pods", path)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte(content), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		r.begin()
		r.after(0)
		r.wantState(pod, "Running a=ready")
		if _, err := os.Stat(filepath.Join(r.cfg.Root, "pods/begun")); !os.IsNotExist(err) {
			t.Errorf("what was begun is left: %v", err)
		}
		r.delete(pod, 0)
		r.after(time.Millisecond)
		r.wantGone(pod)
	})
}

// An engine that cannot see which pods there were must not take what runs for
// orphans.
func TestUnreadableState(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.end()
		cfg := r.cfg
		cfg.Root = filepath.Join(t.TempDir(), "file")
		if err := errors.Join(os.MkdirAll(cfg.Root, 0o750), os.WriteFile(filepath.Join(cfg.Root, "pods"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if e, err := New(r.ctx, cfg); err == nil {
			_ = e.Close()
			t.Error("there is an engine")
		}
	})
}

// Nor must it end a pod whose files it fails to read, but is there once it can.
func TestStateThatFailsToBeRead(t *testing.T) {
	for _, name := range []string{"pod.json", "status.json"} {
		inBubble(t, func(r *rig) {
			pod := makePod("a")
			r.create(pod)
			r.after(time.Second)
			r.end()
			path := filepath.Join(r.cfg.Root, "pods", string(pod.UID), name)
			if err := errors.Join(os.Rename(path, path+".away"), os.Mkdir(path, 0o700)); err != nil {
				t.Fatal(err)
			}
			if e, err := New(r.ctx, r.cfg); err == nil || !strings.Contains(err.Error(), path) {
				t.Fatalf("there is the engine %p, or its error does not name the file: %v", e, err)
			}
			if err := errors.Join(os.Remove(path), os.Rename(path+".away", path)); err != nil {
				t.Fatal(err)
			}
			r.begin()
			r.after(10 * confirmOrphan * relistEvery)
			r.wantState(pod, "Running a=ready")
			r.delete(pod, 0)
			r.after(time.Millisecond)
			r.wantGone(pod)
		})
	}
}

func TestCreateAfterClose(t *testing.T) {
	inBubble(t, func(r *rig) {
		e := r.Engine
		r.end()
		if err := e.CreatePod(r.ctx, makePod("a")); err == nil {
			t.Error("a closed engine took a pod")
		}
		synctest.Wait()
	})
}

// Workers of the first pods run, and end, while New begins those of the others.
func TestManyPodsResume(t *testing.T) {
	inBubble(t, func(r *rig) {
		var pods []*corev1.Pod
		for _, name := range strings.Fields("a b c d e f g h") {
			pod := makePod(name)
			pod.Name = name
			pods = append(pods, pod)
			r.create(pod)
		}
		r.runtime.intercept(func(_ context.Context, call string) error { return errors.New("down") })
		for _, pod := range pods[:4] {
			r.delete(pod, 0)
		}
		r.end()
		r.runtime.intercept(nil)
		r.begin()
		r.after(3 * time.Second)
		left, err := r.GetPods(r.ctx)
		if err != nil || len(left) != 4 {
			t.Errorf("%d pods are left (%v), want 4", len(left), err)
		}
	})
}
