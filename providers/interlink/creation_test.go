package interlink

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink/interlinktest"
)

// slowly returns a plugin whose creations take long, and go on when their client has gone. It counts them.
func slowly(t *testing.T, plugin http.Handler, takes time.Duration, creations *int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/create" {
			*creations++
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
}

// createAtLast has a pod of the cluster created, as often as it takes, and returns how long that is.
func createAtLast(t *testing.T, p nodeutil.Provider, cluster *grouptest.Cluster, name string) time.Duration {
	t.Helper()
	began := time.Now()
	for {
		err := p.CreatePod(t.Context(), cluster.Pod("default", name))
		if err == nil {
			return time.Since(began)
		}
		if errdefs.IsPermanent(err) || time.Since(began) > time.Hour {
			t.Fatal(err)
		}
		delay, _ := errdefs.RetryAfter(err)
		time.Sleep(max(delay, time.Second))
	}
}

// A batch system that is slow, or an image that is pulled, makes one job of a pod: a server and a plugin
// go on with a creation whose client has gone.
func TestASlowCreation(t *testing.T) {
	for name, takes := range map[string]time.Duration{"in time": 90 * time.Second, "too late": 5 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				world, cluster := grouptest.New(time.Second), grouptest.NewCluster("home")
				plugin := &interlinktest.Plugin{World: world}
				creations := 0
				slow := slowly(t, plugin, takes, &creations)
				p, _, err := newProvider(cluster.Config(), Config{InterlinkURL: "http://interlink"}, serve(t, &interlinktest.Server{OneObject: true}, slow))
				if err != nil {
					t.Fatal(err)
				}
				defer grouptest.Close(t, p)
				pod := newPod("slow")
				cluster.SetPod(pod)
				if took := createAtLast(t, p, cluster, "slow"); took > takes+time.Minute {
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

// roundTrip is an http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Nothing is sent before the pod was looked for and annotated, and after that it may have been.
func TestACreationThatIsNotSent(t *testing.T) {
	for name, c := range map[string]struct {
		path   string // which the server refuses
		before bool   // the pod is older than the process
		leaves bool
	}{
		"no status": {path: "/status", leaves: true}, "no annotation": {path: "annotation", leaves: true}, "no answer": {path: "/create"},
		"no status of a pod of before": {path: "/status", before: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster, away := grouptest.NewCluster("home"), c.path
				server := &interlinktest.Server{OneObject: true}
				through := serve(t, server, &interlinktest.Plugin{World: grouptest.New(time.Second)})
				p, _, err := newProvider(cluster.Config(), Config{InterlinkURL: "http://interlink"}, roundTrip(func(r *http.Request) (*http.Response, error) {
					if r.URL.Path == away {
						return nil, errors.New("out of order")
					}
					return through.RoundTrip(r)
				}))
				if err != nil {
					t.Fatal(err)
				}
				defer grouptest.Close(t, p)
				pod := newPod("unsent")
				if c.before {
					pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Minute))
				}
				cluster.SetPod(pod)
				if c.path == "annotation" {
					cluster.FailObject(pod.Name, errors.New("out of order"))
				}
				if err := p.CreatePod(t.Context(), pod); !errdefs.IsUnavailable(err) {
					t.Fatal(err)
				}
				away = ""
				if c.leaves {
					grouptest.CheckLeaves(t, cluster, p, pod)
					return
				}
				pod = pod.DeepCopy()
				pod.DeletionTimestamp = new(metav1.Now())
				cluster.SetPod(pod)
				if _, err := p.(node.PodUIDLifecycleHandler).GetPodByUID(t.Context(), pod.Namespace, pod.Name, pod.UID); err != nil {
					t.Errorf("a job may be made, and it is not asked for its deletion: %v", err)
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

// The next process sends no creation again that goes on at the server or the plugin, whether it was made
// before the pod, as one that stands by is, or after that; and one that was lost it does, in the end.
func TestACreationThatOutlivesItsProcess(t *testing.T) {
	for name, c := range map[string]struct {
		standby bool
		takes   time.Duration
		lost    bool
	}{
		"next": {takes: 4 * time.Minute}, "standby": {standby: true, takes: 4 * time.Minute}, "lost": {lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				world, cluster := grouptest.New(time.Second), grouptest.NewCluster("home")
				creations := 0
				server := &interlinktest.Server{OneObject: true}
				through := serve(t, server, slowly(t, &interlinktest.Plugin{World: world}, c.takes, &creations))
				start := func(through http.RoundTripper) nodeutil.Provider {
					p, _, err := newProvider(cluster.Config(), Config{InterlinkURL: "http://interlink"}, through)
					if err != nil {
						t.Fatal(err)
					}
					return p
				}
				first := through
				if c.lost {
					first = grouptest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if r.URL.Path == "/create" {
							time.Sleep(time.Minute)
							return
						}
						server.ServeHTTP(w, r)
					})).Transport(t)
				}
				before := start(first)
				var next nodeutil.Provider
				if c.standby {
					next = start(through)
				}
				time.Sleep(time.Minute)
				pod := newPod("under-way")
				pod.CreationTimestamp = metav1.Now()
				cluster.SetPod(pod)
				failed := make(chan error, 1)
				go func() { failed <- before.CreatePod(t.Context(), pod) }()
				time.Sleep(10 * time.Second)
				grouptest.Close(t, before)
				if err := <-failed; err == nil {
					t.Error("a creation without an answer succeeds")
				}
				if !c.standby {
					next = start(through)
				}
				defer grouptest.Close(t, next)
				if took := createAtLast(t, next, cluster, pod.Name); took > unansweredLag+time.Minute {
					t.Errorf("the job is found after %v", took)
				}
				time.Sleep(10 * time.Minute)
				if jobs := world.Units(nil); len(jobs) != 1 || creations != 1 {
					t.Errorf("%d creations have made %d jobs", creations, len(jobs))
				}
			})
		})
	}
}

// Without the note on the pod, of which the next process learns, a creation is not sent.
func TestACreationThatCannotBeNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		pod := newPod("noted")
		r.cluster.SetPod(pod)
		r.cluster.FailObject(pod.Name, errors.New("the API server is away"))
		if err := r.CreatePod(t.Context(), pod); !errdefs.IsUnavailable(err) || len(r.world.Units(nil)) != 0 {
			t.Errorf("there are %d jobs: %v", len(r.world.Units(nil)), err)
		}
		r.cluster.FailObject(pod.Name, nil)
		r.create(t, pod)
		sent, _ := r.sent(t, pod)
		if noted := r.cluster.Pod("default", pod.Name).Annotations[AnnotationSender]; noted == "" || sent.Pod.Annotations[AnnotationSender] != "" {
			t.Errorf("the pod has the note %q, and is sent with %v", noted, sent.Pod.Annotations)
		}
		gone := newPod("gone") // nobody sends it again
		if err := r.CreatePod(t.Context(), gone); err != nil {
			t.Error(err)
		}
	})
}

// withCache is a plugin that answers the requests for statuses of ten seconds with what it has answered
// first, regardless of the pods, as the Slurm plugin does.
func withCache(plugin http.Handler) http.Handler {
	var mu sync.Mutex
	var last *httptest.ResponseRecorder
	var at time.Time
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/status" {
			plugin.ServeHTTP(w, r)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if last == nil || time.Since(at) >= 10*time.Second {
			last, at = httptest.NewRecorder(), time.Now()
			plugin.ServeHTTP(last, r)
		}
		w.WriteHeader(last.Code)
		_, _ = w.Write(last.Body.Bytes())
	})
}

// That an answer which is about other pods lacks the status of one, or has what the server knew before,
// does not say that the pod has no job.
func TestStatusesOfOtherPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world, cluster, server := grouptest.New(time.Second), grouptest.NewCluster("home"), &interlinktest.Server{OneObject: true}
		through := serve(t, server, withCache(&interlinktest.Plugin{World: world, Unknown: interlinktest.AsStateless}))
		p, _, err := newProvider(cluster.Config(), Config{InterlinkURL: "http://interlink"}, through)
		if err != nil {
			t.Fatal(err)
		}
		defer grouptest.Close(t, p)
		other, _, err := newBackend(Config{InterlinkURL: "http://interlink"}, through)
		if err != nil {
			t.Fatal(err)
		}
		pod, pod2, foreign := newPod("once"), newPod("new"), newPod("of-another-node")
		cluster.SetPod(pod)
		world.Lose(interlinktest.ActionCreate, 1)
		if err := p.CreatePod(t.Context(), pod); err == nil {
			t.Fatal("a creation without an answer succeeds")
		}
		began := time.Now()
		var asking sync.WaitGroup
		asking.Go(func() { // another node, which is always the first to ask when the ten seconds are over
			time.Sleep(10 * time.Second)
			for ; time.Since(began) < time.Minute; time.Sleep(10 * time.Millisecond) {
				if _, err := other.Get(t.Context(), []*corev1.Pod{foreign}); err != nil {
					t.Error(err)
				}
			}
		})
		time.Sleep(20 * time.Second)
		cluster.SetPod(pod2)
		if took := createAtLast(t, p, cluster, pod2.Name); took > time.Second {
			t.Errorf("a pod whose creation nobody has sent waits for %v", took)
		}
		createAtLast(t, p, cluster, pod.Name)
		if jobs := world.Units(nil); len(jobs) != 2 || time.Since(began) > 90*time.Second {
			t.Errorf("there are %d jobs after %v", len(jobs), time.Since(began))
		}
		asking.Wait()
	})
}

// A gateway may let only the requests through that a node needs.
func TestCreationWithoutUpdateCache(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented} {
		synctest.Test(t, func(t *testing.T) {
			world, cluster := grouptest.New(time.Second), grouptest.NewCluster("home")
			through := serve(t, &interlinktest.Server{}, &interlinktest.Plugin{World: world})
			p, _, err := newProvider(cluster.Config(), Config{InterlinkURL: "http://interlink"}, &gateway{through, status})
			if err != nil {
				t.Fatal(err)
			}
			defer grouptest.Close(t, p)
			pod := newPod("of-before-the-start")
			pod.CreationTimestamp.Time = time.Now().Add(-time.Minute)
			cluster.SetPod(pod)
			createAtLast(t, p, cluster, pod.Name)
			if jobs := world.Units(nil); len(jobs) != 1 {
				t.Errorf("with status %d there are %d jobs", status, len(jobs))
			}
		})
	}
}

// gateway answers /updateCache with a status.
type gateway struct {
	http.RoundTripper
	status int
}

// RoundTrip implements http.RoundTripper.
func (g *gateway) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path != "/updateCache" {
		return g.RoundTripper.RoundTrip(r)
	}
	return &http.Response{StatusCode: g.status, Body: http.NoBody, Request: r, Header: http.Header{}}, nil
}
