package podengine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
