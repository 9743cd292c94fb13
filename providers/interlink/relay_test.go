package interlink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink/interlinktest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink/plugin"
)

// far is the backend of the provider that a plugin offers: one with a list, in a World.
type far struct{ w *grouptest.World }

var farCodes = podgroup.Codes{Throttled: []string{"Quota"}, Missing: []string{"NotFound"}}

func (f far) call(ctx context.Context, action podgroup.Action, do func() error) error {
	err := f.w.Serve(ctx, string(action), do)
	code := ""
	var refusal *grouptest.Refusal
	switch {
	case errors.Is(err, grouptest.ErrQuota):
		code = "Quota"
	case errors.Is(err, grouptest.ErrNotFound):
		code = "NotFound"
	case errors.As(err, &refusal):
		code = refusal.Code
	}
	return farCodes.Classify(action, code, http.StatusBadRequest, 0, err)
}

func (f far) Create(ctx context.Context, r *podgroup.Request) (created podgroup.Unit, err error) {
	spec := grouptest.Spec{Token: r.Token, Tags: r.Tags, RestartPolicy: string(r.Pod.Spec.RestartPolicy), Files: r.Files, Data: r.Pod}
	for _, c := range r.Pod.Spec.Containers {
		spec.Containers = append(spec.Containers, podgroup.Container{Name: c.Name, Image: c.Image})
	}
	err = f.call(ctx, podgroup.ActionCreate, func() error {
		u, err := f.w.Create(spec)
		created = u.Unit
		return err
	})
	return created, err
}

func (f far) Delete(ctx context.Context, u *podgroup.Unit, _ time.Duration) error {
	return f.call(ctx, podgroup.ActionDelete, func() error { return f.w.Delete(u.ID) })
}

func (f far) List(ctx context.Context, _ map[string]string, page string) (found podgroup.Page, err error) {
	err = f.call(ctx, podgroup.ActionList, func() error {
		units, next, err := f.w.Page(f.w.Units(nil), page, 100)
		for i := range units {
			found.Units = append(found.Units, units[i].Unit)
		}
		found.Next = next
		return err
	})
	return found, err
}

func (f far) ReadLog(ctx context.Context, u *podgroup.Unit, container string, q podgroup.LogQuery) (string, error) {
	var b strings.Builder
	err := f.call(ctx, podgroup.ActionLog, func() error {
		lines, err := f.w.Log(u.ID, container, q.Previous)
		if q.Tail > 0 {
			lines = lines[max(0, len(lines)-q.Tail):]
		}
		for _, line := range lines {
			if line.At.Before(q.Since.Truncate(time.Second)) {
				continue
			}
			if q.Timestamps {
				b.WriteString(line.At.UTC().Format(time.RFC3339Nano) + " ")
			}
			b.WriteString(line.Text + "\n")
		}
		return err
	})
	return b.String(), err
}

// memoryStore is a plugin.Store.
type memoryStore struct {
	mu    sync.Mutex
	texts map[string][]byte
}

func (s *memoryStore) Load() (map[string][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.texts), nil
}

func (s *memoryStore) Save(uid string, text []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts[uid] = text
	return nil
}

func (s *memoryStore) Delete(uid string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.texts, uid)
	return nil
}

// startPlugin starts a plugin of a provider in w.
func startPlugin(t *testing.T, w *grouptest.World, store plugin.Store) *end {
	t.Helper()
	e := &end{}
	var err error
	e.Server, err = plugin.New(log.WithLogger(context.WithoutCancel(t.Context()), log.FromSlog(slog.New(slog.DiscardHandler))), plugin.Options{
		NewProvider: func(init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			init.Node.Status.Capacity = corev1.ResourceList{}
			p, n, err := podgroup.New(init, far{w}, podgroup.Options{
				Service: "Far", Scheme: "far", Identity: podgroup.Identity{Cluster: "far"},
				Features: podgroup.Features{Fields: []string{"restartPolicy", "volumes.configMap", "volumes.secret", "volumes.emptyDir"}},
			})
			e.provider, _ = p.(io.Closer)
			return p, n, err
		},
		Store: store,
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// end is a plugin with its provider.
type end struct {
	*plugin.Server
	provider io.Closer
}

// Close ends both.
func (e *end) Close() error { return errors.Join(e.Server.Close(), e.provider.Close()) }

// The whole way: our provider, what an interLink API server does in between, our plugin, and
// a provider in it. Both ends are started again where the suite starts the agent again.
func TestSuiteOverThePlugin(t *testing.T) {
	stores, ends := map[*grouptest.World]*memoryStore{}, map[*grouptest.World]*end{}
	grouptest.Suite{
		New: func(t *testing.T, w *grouptest.World) (podgroup.Backend, podgroup.Options) {
			if stores[w] == nil {
				stores[w] = &memoryStore{texts: map[string][]byte{}}
				t.Cleanup(func() { _ = ends[w].Close() })
			} else if err := ends[w].Close(); err != nil {
				t.Fatal(err)
			}
			ends[w] = startPlugin(t, w, stores[w])
			b, o, err := newBackend(Config{InterlinkURL: "http://interlink", PodIP: "192.0.2.9"}, serve(t, &interlinktest.Server{}, ends[w]))
			if err != nil {
				t.Fatal(err)
			}
			return b, o
		},
		Actions: map[podgroup.Action]string{podgroup.ActionCreate: string(podgroup.ActionCreate), podgroup.ActionList: string(podgroup.ActionList)},
		Budget:  1_000_000,
		Skip:    map[string]string{"too many calls": "the answer of a plugin has no place for the time of the next try"},
	}.Run(t)
}

// What the containers of a pod get on the other side is what they would get on this one.
func TestFilesOverThePlugin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world, cluster, store := grouptest.New(time.Second), grouptest.NewCluster("home"), &memoryStore{texts: map[string][]byte{}}
		server := startPlugin(t, world, store)
		defer server.Close()
		p, _, err := newProvider(cluster.Config(), Config{InterlinkURL: "http://interlink"}, serve(t, &interlinktest.Server{OneObject: true}, server))
		if err != nil {
			t.Fatal(err)
		}
		defer grouptest.Close(t, p)
		cluster.SetConfigMap("settings", map[string]string{"level": "one", "other": "two"})
		cluster.SetSecret("login", corev1.SecretTypeOpaque, map[string][]byte{"key": {0xff, 0x00}})
		mode := int32(0o400)
		pod := newPod("files")
		withVolume(pod, "all", configMap("settings"))
		withVolume(pod, "one", configMap("settings", corev1.KeyToPath{Key: "level", Path: "deep/level", Mode: &mode}))
		withVolume(pod, "secret", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "login", DefaultMode: &mode}})
		withVolume(pod, "token", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: &mode, Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
		}}})
		pod.Spec.ServiceAccountName = "default"
		cluster.SetPod(pod)
		if err := p.CreatePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		u, err := world.OfPod("files")
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for name, files := range u.Files {
			for path, file := range files {
				got[name+"/"+path] = fmt.Sprintf("%q %o", file.Data, file.Mode)
			}
		}
		token := got["token/token"]
		delete(got, "token/token")
		want := map[string]string{"all/level": `"one" 644`, "all/other": `"two" 644`, "one/deep/level": `"one" 400`, "secret/key": `"\xff\x00" 400`}
		if !maps.Equal(got, want) || !strings.HasSuffix(token, " 400") || len(token) < 20 {
			t.Errorf("the files are %v, the token %s", got, token)
		}
		if err := p.DeletePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(store.texts) != 0 || len(world.Units(nil)) != 0 {
			t.Errorf("left over: %v, %v", store.texts, world.Units(nil))
		}
	})
}
