package interlink

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink/interlinktest"
)

// A batch system that is slow, or an image that is pulled, makes one job of a pod: a server and a plugin
// go on with a creation whose client has gone.
func TestASlowCreation(t *testing.T) {
	for name, takes := range map[string]time.Duration{"in time": 90 * time.Second, "too late": 5 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				world, cluster := grouptest.New(time.Second), grouptest.NewCluster("home")
				plugin := &interlinktest.Plugin{World: world}
				creations := 0
				slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/create" {
						creations++
						body, err := io.ReadAll(r.Body)
						if err != nil {
							t.Error(err)
						}
						r = r.WithContext(context.WithoutCancel(r.Context()))
						r.Body = io.NopCloser(bytes.NewReader(body))
						time.Sleep(takes)
					}
					plugin.ServeHTTP(w, r)
				})
				p, _, err := newProvider(cluster.Config(), Config{InterlinkURL: "http://interlink"}, serve(t, &interlinktest.Server{OneObject: true}, slow))
				if err != nil {
					t.Fatal(err)
				}
				defer grouptest.Close(t, p)
				pod := newPod("slow")
				cluster.SetPod(pod)
				began := time.Now()
				for err = p.CreatePod(t.Context(), pod); err != nil; err = p.CreatePod(t.Context(), pod) {
					if errdefs.IsPermanent(err) || time.Since(began) > time.Hour {
						t.Fatal(err)
					}
					delay, _ := errdefs.RetryAfter(err)
					time.Sleep(max(delay, time.Second))
				}
				if took := time.Since(began); took > takes+time.Minute {
					t.Errorf("the job is found after %v", took)
				}
				time.Sleep(takes)
				if jobs := world.Units(nil); len(jobs) != 1 || creations != 1 {
					t.Errorf("%d creations have made %d jobs", creations, len(jobs))
				}
			})
		})
	}
}

// A creation that was lost with its answer is made again, when it cannot happen any more: what was
// asked before does not show that.
func TestACreationThatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world, lost := grouptest.New(time.Second), true
		var statusTakes time.Duration
		server := &interlinktest.Server{}
		server.Plugin = &http.Client{Transport: grouptest.Serve(t, &interlinktest.Plugin{World: world}).Transport(t)}
		losing := grouptest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/create" && lost {
				lost = false
				w.WriteHeader(http.StatusGatewayTimeout)
				return
			}
			if r.URL.Path == "/status" {
				time.Sleep(statusTakes)
			}
			server.ServeHTTP(w, r)
		}))
		cluster := grouptest.NewCluster("home")
		p, _, err := newProvider(cluster.Config(), Config{InterlinkURL: "http://interlink"}, losing.Transport(t))
		if err != nil {
			t.Fatal(err)
		}
		defer grouptest.Close(t, p)
		pod := newPod("lost")
		cluster.SetPod(pod)
		if err := p.CreatePod(t.Context(), pod); err == nil {
			t.Fatal("a creation without an answer succeeds")
		}
		time.Sleep(unansweredLag - time.Second)
		statusTakes = 10 * time.Second
		if _, ok := errdefs.RetryAfter(p.CreatePod(t.Context(), pod)); !ok || len(world.Units(nil)) != 0 {
			t.Errorf("the pod is created again while it may still be created")
		}
		statusTakes = 0
		time.Sleep(time.Second)
		if err := p.CreatePod(t.Context(), pod); err != nil || len(world.Units(nil)) != 1 {
			t.Errorf("there are %d jobs: %v", len(world.Units(nil)), err)
		}
	})
}
