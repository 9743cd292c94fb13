package interlink

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink/interlinktest"
)

// A server that knows no status for a moment still gets the deletion, with the whole pod, by whose
// containers a plugin may go.
func TestADeletionWithoutAStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var deleted []corev1.Pod
		cluster := grouptest.NewCluster("home")
		p, _, err := newProvider(cluster.Config(), Config{InterlinkURL: "http://interlink"}, grouptest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/delete" {
				var pod corev1.Pod
				if err := json.NewDecoder(r.Body).Decode(&pod); err != nil {
					t.Error(err)
				}
				deleted = append(deleted, pod)
			}
			_, _ = io.WriteString(w, "null")
		})).Transport(t))
		if err != nil {
			t.Fatal(err)
		}
		defer grouptest.Close(t, p)
		pod, seconds := newPod("gone"), int64(7)
		pod.DeletionGracePeriodSeconds = &seconds
		if err := p.DeletePod(t.Context(), pod); !errdefs.IsOnlyNotFound(err) {
			t.Errorf("the deletion returns %v", err)
		}
		if len(deleted) != 1 || deleted[0].UID != pod.UID || len(deleted[0].Spec.Containers) != 1 || *deleted[0].DeletionGracePeriodSeconds != 7 {
			t.Errorf("deleted: %v", deleted)
		}
	})
}

// The Slurm plugin fails to delete a pod that it does not know, and its status says that it does not: the
// deletion is over. While a creation may be under way that says nothing, and an error without such a status,
// or with a status that other plugins also give when their service is away, is asked for again for a minute.
func TestADeletionOfAPodThatThePluginDoesNotKnow(t *testing.T) {
	for name, c := range map[string]struct {
		unknown interlinktest.Unknown
		at      time.Duration
	}{"stateless": {interlinktest.AsStateless, 0}, "error": {interlinktest.AsError, time.Minute}, "left out": {interlinktest.LeftOut, time.Minute}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(_ *Config, r *rig) { r.plugin.Unknown = c.unknown })
				pod := newPod("refused")
				r.cluster.SetPod(pod)
				r.world.Refuse(interlinktest.ActionCreate, 1, errors.New("sbatch: invalid partition"))
				if err := r.CreatePod(t.Context(), pod); err == nil {
					t.Fatal("the creation succeeds")
				}
				r.world.Refuse(interlinktest.ActionDelete, 100, errors.New("scancel: exit status 1"))
				if err := r.DeletePod(t.Context(), pod); !errdefs.IsUnavailable(err) {
					t.Errorf("while the creation may be under way: %v", err)
				}
				time.Sleep(statusLag)
				began := time.Now()
				for !errdefs.IsOnlyNotFound(r.DeletePod(t.Context(), pod)) && time.Since(began) < time.Hour {
					time.Sleep(time.Second)
				}
				if took := time.Since(began); took > c.at || took < c.at-statusLag {
					t.Errorf("the deletion is over after %v", took)
				}
			})
		})
	}
}

// The Slurm plugin fails to delete a job that has ended so long ago that Slurm does not know it any more.
// Nothing of it runs: after a minute the pod may go. One that runs stays.
func TestADeletionOfAPodThatHasEnded(t *testing.T) {
	for name, ended := range map[string]bool{"ended": true, "running": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(_ *Config, r *rig) { r.plugin.Unknown = interlinktest.AsStateless })
				pod := newPod("job")
				r.create(t, pod)
				time.Sleep(time.Minute)
				if ended {
					if err := r.world.Exit("job", "main", 0); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Hour)
				r.world.Refuse(interlinktest.ActionDelete, 1000, errors.New("scancel: exit status 1"))
				began := time.Now()
				for r.DeletePod(t.Context(), pod) != nil && time.Since(began) < 5*time.Minute {
					time.Sleep(5 * time.Second)
				}
				if took := time.Since(began); ended && took != time.Minute || !ended && took < 5*time.Minute {
					t.Errorf("the deletion is accepted after %v", took)
				}
			})
		})
	}
}
