package podengine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// hourlyTokens are tokens that are valid for an hour.
type hourlyTokens struct{ count atomic.Int64 }

func (h *hourlyTokens) RequestToken(_ context.Context, _, _ string, r *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	r = r.DeepCopy()
	r.Status.Token = fmt.Sprint("token ", h.count.Add(1))
	r.Status.ExpirationTimestamp = metav1.NewTime(time.Now().Add(time.Hour))
	return r, nil
}

// Containers that run have new tokens and ConfigMaps also while the next one takes long to start.
func TestVolumesAreRefreshedDuringAStart(t *testing.T) {
	withSources := func(p *corev1.Pod) {
		p.Spec.ServiceAccountName = "sa"
		seconds := int64(3600)
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &seconds}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}},
		}}}}}
		p.Spec.InitContainers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
	}
	forTwoHours := func(ctx context.Context) error {
		select {
		case <-time.After(2 * time.Hour):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for name, slow := range map[string]func(*rig){
		"a pull": func(r *rig) {
			r.images.pull = func(ctx context.Context, image string) error {
				if image == "slow:1" {
					return forTwoHours(ctx)
				}
				return nil
			}
			r.runtime.exec = func(context.Context, string, []string) error { return nil }
		},
		"a postStart hook": func(r *rig) {
			r.runtime.exec = func(ctx context.Context, _ string, _ []string) error { return forTwoHours(ctx) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleWith(t, func(r *rig) {
				r.cfg.Tokens = &hourlyTokens{}
				r.objects.configMaps["cm"] = &corev1.ConfigMap{Data: map[string]string{"k": "old"}}
				slow(r)
			}, func(r *rig) {
				pod := makePod("s a", withSources, first(func(c *corev1.Container) {
					c.Image = "slow:1"
					c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: command("hook")}}
				}))
				has := func(file, want string) {
					t.Helper()
					got, err := os.ReadFile(filepath.Join(r.podDir(pod.UID), "volumes/kubernetes.io~projected/v", file))
					if err != nil || string(got) != want {
						t.Errorf("after %v %s is %q (%v), want %q", time.Since(epoch), file, got, err, want)
					}
				}
				r.create(pod)
				r.after(3 * time.Second)
				r.wantState(pod, "Pending s=ready a=PodInitializing")
				has("token", "token 1")
				r.objects.put("cm", map[string]string{"k": "new"})
				r.after(61*time.Minute - 3*time.Second)
				has("token", "token 2")
				has("k", "new")
				r.after(time.Hour)
				r.wantState(pod, "Running s=ready a=ready")
				r.delete(pod, 0)
				r.after(5 * time.Second)
				r.wantGone(pod)
			})
		})
	}
	t.Run("a deletion ends it", func(t *testing.T) {
		inBubbleWith(t, func(r *rig) {
			r.cfg.Tokens = &hourlyTokens{}
			r.objects.configMaps["cm"] = &corev1.ConfigMap{}
			r.images.pull = func(ctx context.Context, image string) error { return forTwoHours(ctx) }
		}, func(r *rig) {
			pod := makePod("s a", withSources)
			r.create(pod)
			r.after(time.Hour)
			r.delete(pod, 0)
			r.after(5 * time.Second)
			r.wantGone(pod)
		})
	})
}

// oneLocalVolume is a claim of a local volume.
type oneLocalVolume struct{ path string }

func (oneLocalVolume) PersistentVolumeClaim(context.Context, string, string) (*corev1.PersistentVolumeClaim, error) {
	pvc := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}}
	pvc.UID, pvc.Status.Phase = "claim", corev1.ClaimBound
	return pvc, nil
}

func (v oneLocalVolume) PersistentVolume(context.Context, string) (*corev1.PersistentVolume, error) {
	pv := &corev1.PersistentVolume{}
	pv.Name = "pv"
	pv.Spec.Local, pv.Spec.ClaimRef = &corev1.LocalVolumeSource{Path: v.path}, &corev1.ObjectReference{UID: "claim"}
	return pv, nil
}

// What a container has made of its files in a local volume stays when the process restarts, though the
// one before did not record that the pod has the volume.
func TestLocalVolumesAfterARestart(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	set := func(mode os.FileMode) {
		t.Helper()
		if err := errors.Join(os.WriteFile(file, nil, mode), os.Chmod(file, mode)); err != nil {
			t.Fatal(err)
		}
	}
	want := func(when string, mode os.FileMode) {
		t.Helper()
		if info, err := os.Stat(file); err != nil || info.Mode() != mode {
			t.Errorf("%s the file is %v (%v), want %v", when, info.Mode(), err, mode)
		}
	}
	inBubbleWith(t, func(r *rig) {
		r.cfg.Boot = "one"
		r.cfg.Claims = oneLocalVolume{dir}
		r.cfg.AllowHostPath = func(volume.HostAccess) error { return nil }
	}, func(r *rig) {
		set(0o600)
		group := int64(os.Getgid())
		pod := makePod("a", func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &group}
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}}}
		}, first(func(c *corev1.Container) { c.VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}} }))
		r.create(pod)
		want("at the start", 0o660)
		set(0o600)
		if err := os.RemoveAll(filepath.Join(r.podDir(pod.UID), "volumes")); err != nil {
			t.Fatal(err)
		}
		r.restart(time.Minute)
		r.wantState(pod, "Running a=ready")
		want("after a restart", 0o600)
		r.end()
		r.runtime.reboot()
		r.cfg.Boot = "two"
		r.begin()
		r.after(time.Minute)
		r.wantState(pod, "Running a=ready#1")
		want("after a boot", 0o660)
		r.delete(pod, 1)
		r.after(time.Minute)
		r.wantGone(pod)
		r.create(pod)
		want("for another pod", 0o660)
	})
}
