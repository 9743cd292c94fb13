package podengine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A pod that has ended gives back its volumes at once, and not when it is deleted,
// which may be weeks later. What people still ask for stays.
func TestAPodThatHasEndedGivesBackItsVolumes(t *testing.T) {
	for name, restart := range map[string]bool{"at once": false, "after a restart": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.objects.configMaps["cm"] = &corev1.ConfigMap{Data: map[string]string{"x": "1"}}
				r.runtime.plans["a"] = plan{runs: time.Minute, code: 1}
				pod := makePod("a", never, func(p *corev1.Pod) {
					p.Spec.Volumes = []corev1.Volume{
						{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
						{Name: "cm", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
							LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}}},
					}
				}, first(func(c *corev1.Container) {
					c.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "cm", MountPath: "/cm"}}
					c.TerminationMessagePath = "/dev/termination-log"
				}))
				r.create(pod)
				volumes := filepath.Join(r.podDir(pod.UID), "volumes")
				if err := os.WriteFile(filepath.Join(volumes, "kubernetes.io~empty-dir/data/large"), []byte("x"), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(r.terminationLog(pod, "a", 0), []byte("last words"), 0o600); err != nil {
					t.Fatal(err)
				}
				if restart {
					r.restart(2 * time.Minute)
				} else {
					r.after(time.Minute + 2*time.Second)
				}
				r.wantState(pod, "Failed a=Error/1")
				if _, err := os.Stat(volumes); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("volumes are left (%v)", err)
				}
				r.restart(time.Hour)
				r.after(time.Hour)
				if message := r.status(pod).ContainerStatuses[0].State.Terminated.Message; message != "last words" {
					t.Errorf("the termination message is %q", message)
				}
				if _, err := os.Stat(r.logFile(pod, "a", 0)); err != nil {
					t.Errorf("the log: %v", err)
				}
				if _, err := os.Stat(volumes); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("volumes were made again (%v)", err)
				}
				r.delete(pod, 30)
				r.after(time.Second)
				r.wantGone(pod)
			})
		})
	}
}

// A pod that is started again keeps its volumes.
func TestAPodThatRestartsKeepsItsVolumes(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.plans["a"] = plan{runs: time.Second, code: 1}
		pod := makePod("a", onFailure, func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		}, first(func(c *corev1.Container) { c.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}} }))
		r.create(pod)
		file := filepath.Join(r.podDir(pod.UID), "volumes/kubernetes.io~empty-dir/data/kept")
		if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		r.after(10 * time.Minute)
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	})
}

// The user of a container can reach the file for its termination message, where the
// runtime passes on its path rather than mounts it. An earlier version kept others out.
func TestContainersReachTheirTerminationMessages(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.plans["a"] = plan{runs: time.Minute, code: 1}
		pod := makePod("a", first(func(c *corev1.Container) { c.TerminationMessagePath = "/dev/termination-log" }))
		dir := filepath.Dir(r.terminationLog(pod, "a", 0))
		if err := os.MkdirAll(dir, 0o750); err != nil {
			t.Fatal(err)
		}
		r.create(pod)
		for path, want := range map[string]fs.FileMode{filepath.Dir(dir): 0o755, dir: 0o755, r.terminationLog(pod, "a", 0): 0o666} {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if mode := info.Mode().Perm(); mode != want {
				t.Errorf("%s has the mode %v, want %v", path, mode, want)
			}
		}
	})
}
