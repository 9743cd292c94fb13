package interlink

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink/interlinktest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink/internal/wire"
)

// rig is a provider before a server and a plugin in memory.
type rig struct {
	nodeutil.Provider
	node    node.NodeProvider
	world   *grouptest.World
	cluster *grouptest.Cluster
	server  *interlinktest.Server
	plugin  *interlinktest.Plugin
}

// newRig starts one. change may change what is before it starts.
func newRig(t *testing.T, change func(*Config, *rig)) *rig {
	t.Helper()
	world := grouptest.New(time.Second)
	r := &rig{world: world, cluster: grouptest.NewCluster("home"), server: &interlinktest.Server{OneObject: true}, plugin: &interlinktest.Plugin{World: world}}
	config := Config{InterlinkURL: "http://interlink:3000"}
	if change != nil {
		change(&config, r)
	}
	p, n, err := newProvider(r.cluster.Config(), config, serve(t, r.server, r.plugin))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { grouptest.Close(t, p) })
	r.Provider, r.node = p, n
	return r
}

// newPod returns a pod that was created after the provider.
func newPod(name string) *corev1.Pod {
	pod := grouptest.NewPod(name)
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	return pod
}

func (r *rig) create(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	r.cluster.SetPod(pod)
	if err := r.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// sent returns what the plugin got of a pod.
func (r *rig) sent(t *testing.T, pod *corev1.Pod) (*wire.PluginCreate, map[string]volume.Files) {
	t.Helper()
	u, err := r.world.OfPod(pod.Name)
	if err != nil {
		t.Fatal(err)
	}
	return u.Spec.Data.(*wire.PluginCreate), u.Files
}

func withVolume(pod *corev1.Pod, name string, source corev1.VolumeSource) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
}

func configMap(name string, items ...corev1.KeyToPath) corev1.VolumeSource {
	return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Items: items}}
}

// Plugins write each key of an object as a file of that name: what they write has to be what
// a kubelet would.
func TestVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config, _ *rig) { c.KubernetesAPICACert = "the CA outside" })
		r.cluster.SetConfigMap("settings", map[string]string{"level": "one", "other": "line\n'quoted' \"twice\" $HOME `x`"})
		r.cluster.SetConfigMap("settings.again.1", map[string]string{"mine": "too"})
		r.cluster.SetConfigMap("kube-root-ca.crt", map[string]string{"ca.crt": "the CA inside"})
		r.cluster.SetSecret("login", corev1.SecretTypeOpaque, map[string][]byte{"binary": {0xff, 0x00, 0xfe}})
		pod := newPod("volumes")
		pod.Labels = map[string]string{"app": "a"}
		withVolume(pod, "all", configMap("settings"))
		withVolume(pod, "again", configMap("settings", corev1.KeyToPath{Key: "level", Path: "deep/in/level"}))
		withVolume(pod, "clash", configMap("settings.again.1"))
		withVolume(pod, "secret", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "login"}})
		withVolume(pod, "labels", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
		}}})
		withVolume(pod, "token", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
		}}})
		withVolume(pod, "mixed", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "login"}}},
		}}})
		withVolume(pod, "scratch", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
		pod.Spec.ServiceAccountName = "default"
		r.create(t, pod)
		_, files := r.sent(t, pod)
		for path, want := range map[string]string{
			"all/level": "one", "all/other": "line\n'quoted' \"twice\" $HOME `x`", "again/deep/in/level": "one", "clash/mine": "too",
			"secret/binary": "\xff\x00\xfe", "labels/labels": `app="a"`, "token/ca.crt": "the CA outside", "mixed/binary": "\xff\x00\xfe",
		} {
			name, path, _ := strings.Cut(path, "/")
			if got, ok := files[name][path]; !ok || string(got.Data) != want {
				t.Errorf("%s/%s is %q, want %q", name, path, got.Data, want)
			}
		}
		if len(files["again"]) != 1 || len(files["token"]["token"].Data) == 0 {
			t.Errorf("the files are %v", files)
		}
		if pod.Spec.Volumes[1].ConfigMap.Items[0].Key != "level" {
			t.Error("the pod itself was changed")
		}
	})
}

// A token that cannot be renewed is valid for longer than pods run.
func TestTokensOutlivePods(t *testing.T) {
	for lifetime, want := range map[time.Duration]int64{0: 365 * 24 * 3600, time.Hour: 7200} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(c *Config, _ *rig) { c.TokenLifetime.Duration = lifetime })
			pod := newPod("token")
			pod.Spec.ServiceAccountName = "default"
			withVolume(pod, "token", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To[int64](7200)}},
			}}})
			r.create(t, pod)
			_, files := r.sent(t, pod)
			var claims struct{ Iat, Exp int64 }
			part := strings.Split(string(files["token"]["token"].Data)+"..", ".")[1]
			if text, err := base64.RawURLEncoding.DecodeString(part); err != nil || json.Unmarshal(text, &claims) != nil || claims.Exp-claims.Iat != want {
				t.Errorf("the token %s is not valid for %d s, error %v", text, want, err)
			}
		})
	}
}

func TestProjectedVolumesCanBeLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config, _ *rig) { c.DisableProjectedVolumes = true })
		pod := newPod("no-token")
		pod.Spec.Volumes = []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}},
			}}}},
		}}}}
		r.create(t, pod)
		if sent, _ := r.sent(t, pod); len(sent.Containers[0].Projected) != 0 {
			t.Errorf("sent: %v", sent.Containers)
		}
	})
}

func TestEnvironment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config, _ *rig) {
			c.KubernetesAPIAddr, c.KubernetesAPIPort, c.PodIP = "api.example.org", "6443", "192.0.2.9"
		})
		pod := newPod("env")
		pod.Spec.Containers[0].Env = []corev1.EnvVar{
			{Name: "KUBERNETES_SERVICE_HOST", Value: "10.96.0.1"}, {Name: "OWN", Value: "a b"},
			{Name: "IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
		}
		r.create(t, pod)
		sent, _ := r.sent(t, pod)
		env := map[string]string{}
		for _, v := range sent.Pod.Spec.Containers[0].Env {
			if _, twice := env[v.Name]; twice {
				t.Errorf("%s is there twice", v.Name)
			}
			env[v.Name] = v.Value
		}
		for name, want := range map[string]string{"KUBERNETES_SERVICE_HOST": "api.example.org", "KUBERNETES_PORT_443_TCP": "tcp://api.example.org:6443", "OWN": "a b", "IP": "192.0.2.9"} {
			if env[name] != want {
				t.Errorf("%s is %q, want %q", name, env[name], want)
			}
		}
	})
}

func TestJobIDIsOnThePod(t *testing.T) {
	for _, list := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(_ *Config, r *rig) { r.plugin.ListAnswer = list })
			pod := newPod("job")
			r.create(t, pod)
			synctest.Wait()
			u, err := r.world.OfPod("job")
			if got := r.cluster.Pod("default", "job").Annotations[AnnotationJobID]; err != nil || got != u.ID {
				t.Errorf("the annotation is %q, want %q: %v", got, u.ID, err)
			}
		})
	}
}

// A second creation is a second job: after an answer that was lost, the statuses of a
// plugin, which may be ten seconds old, do not show the first one.
func TestAPodIsNotCreatedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		pod := newPod("once")
		r.cluster.SetPod(pod)
		r.world.Lose(interlinktest.ActionCreate, 1)
		if err := r.CreatePod(t.Context(), pod); err == nil || errdefs.IsPermanent(err) {
			t.Fatalf("a creation whose answer is lost: %v", err)
		}
		r.world.Hide(true) // from the plugin's cache
		err := r.CreatePod(t.Context(), pod)
		if delay, ok := errdefs.RetryAfter(err); !ok || delay < 10*time.Second {
			t.Errorf("the second try: %v", err)
		}
		time.Sleep(statusLag)
		r.world.Hide(false)
		if err := r.CreatePod(t.Context(), pod); err != nil {
			t.Error(err)
		}
		if jobs := r.world.Units(nil); len(jobs) != 1 {
			t.Errorf("there are %d jobs", len(jobs))
		}
		r.world.Hide(true)
		restarted := newPod("older")
		restarted.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
		again, _, err := newProvider(r.cluster.Config(), Config{InterlinkURL: "http://interlink"}, serve(t, r.server, r.plugin))
		if err != nil {
			t.Fatal(err)
		}
		defer grouptest.Close(t, again)
		r.cluster.SetPod(restarted)
		if _, ok := errdefs.RetryAfter(again.CreatePod(t.Context(), restarted)); !ok {
			t.Error("a pod that an earlier process may have created is created without a delay")
		}
	})
}

// A 404 of a proxy, of which a pod would be lost, is no answer of a plugin.
func TestAnswersOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		a, b := newPod("a"), newPod("b")
		r.create(t, a)
		r.create(t, b)
		time.Sleep(time.Minute)
		for name, answer := range map[string]http.HandlerFunc{
			"proxy":    http.NotFound,
			"page":     func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>Welcome</html>") },
			"empty":    func(http.ResponseWriter, *http.Request) {},
			"redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "http://login/", http.StatusFound) },
			"away":     func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			"denied":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		} {
			backend, _, err := newBackend(Config{InterlinkURL: "http://interlink"}, grouptest.Serve(t, answer).Transport(t))
			if err != nil {
				t.Fatal(err)
			}
			if found, err := backend.Get(t.Context(), []*corev1.Pod{a, b}); err == nil || errdefs.IsNotFound(err) {
				t.Errorf("%s: a status is %v, %v", name, found, err)
			}
			if found, err := backend.Get(t.Context(), []*corev1.Pod{a}); err == nil || errdefs.IsNotFound(err) {
				t.Errorf("%s: the status of one pod is %v, %v", name, found, err)
			}
			u := podgroup.Unit{Owner: podgroup.OwnerOf(a), Data: a}
			if err := backend.Delete(t.Context(), &u, 0); name != "page" && name != "empty" && (err == nil || errdefs.IsNotFound(err)) {
				t.Errorf("%s: a deletion returns %v", name, err)
			}
			_, err = backend.Create(t.Context(), &podgroup.Request{Pod: newPod("c")})
			if err == nil || errdefs.IsPermanent(err) {
				t.Errorf("%s: a creation returns %v", name, err)
			}
		}
	})
}

// A server that is overloaded does not get a request for each pod.
func TestOverload(t *testing.T) {
	for status, header := range map[int]http.Header{http.StatusServiceUnavailable: {}, http.StatusBadGateway: {"Retry-After": {"20"}}} {
		requests := 0
		backend, _, err := newBackend(Config{InterlinkURL: "http://interlink"}, grouptest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			requests++
			for key, values := range header {
				w.Header()[key] = values
			}
			w.WriteHeader(status)
		})).Transport(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := backend.Get(t.Context(), []*corev1.Pod{newPod("a"), newPod("b"), newPod("c")}); !errdefs.IsUnavailable(err) || requests != 1 {
			t.Errorf("%d: %d requests, %v", status, requests, err)
		}
	}
}

// One pod that a plugin fails at does not hide the others.
func TestOnePodFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend, _, err := newBackend(Config{InterlinkURL: "http://interlink"}, grouptest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var pods []*corev1.Pod
			if err := json.NewDecoder(r.Body).Decode(&pods); err != nil {
				t.Error(err)
			}
			var all []wire.Status
			for _, pod := range pods {
				if pod.Name == "bad" {
					w.WriteHeader(http.StatusInternalServerError)
					return
				}
				all = append(all, wire.Status{UID: string(pod.UID), Containers: []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}})
			}
			_ = json.NewEncoder(w).Encode(all)
		})).Transport(t))
		if err != nil {
			t.Fatal(err)
		}
		good, bad := newPod("good"), newPod("bad")
		if found, err := backend.Get(t.Context(), []*corev1.Pod{bad, good}); err != nil || len(found) != 1 || found[0].Owner.UID != good.UID || found[0].Phase != podgroup.Running {
			t.Errorf("found %v, %v", found, err)
		}
		if found, err := backend.Get(t.Context(), []*corev1.Pod{bad}); err == nil || errdefs.IsNotFound(err) {
			t.Errorf("found %v, %v", found, err)
		}
	})
}

func TestPhases(t *testing.T) {
	waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "Queued"}}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := func(code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, StartedAt: metav1.NewTime(time.Unix(90, 0)), FinishedAt: metav1.NewTime(time.Unix(100, 0))}}
	}
	pod := newPod("phases")
	pod.Spec.InitContainers = []corev1.Container{{Name: "init"}}
	pod.Spec.Containers = []corev1.Container{{Name: "a", ReadinessProbe: &corev1.Probe{}}, {Name: "b"}}
	b := &backend{config: &Config{}}
	for _, test := range []struct {
		init corev1.ContainerState
		main []corev1.ContainerState
		want podgroup.Phase
	}{
		{waiting, []corev1.ContainerState{waiting, waiting}, podgroup.Pending},
		{running, []corev1.ContainerState{waiting, waiting}, podgroup.Pending},
		{ended(1), []corev1.ContainerState{waiting, waiting}, podgroup.Pending},
		{ended(0), []corev1.ContainerState{waiting, running}, podgroup.Running},
		{ended(0), []corev1.ContainerState{ended(0), running}, podgroup.Running},
		{ended(0), []corev1.ContainerState{ended(0), ended(0)}, podgroup.Succeeded},
		{ended(0), []corev1.ContainerState{ended(0), ended(3)}, podgroup.Failed},
		{ended(0), []corev1.ContainerState{ended(3)}, podgroup.Running}, // b is not reported
	} {
		s := wire.Status{UID: string(pod.UID), InitContainers: []corev1.ContainerStatus{{Name: "init", State: test.init}}}
		for i, state := range test.main {
			s.Containers = append(s.Containers, corev1.ContainerStatus{Name: string(rune('a' + i)), State: state})
		}
		u := b.unit(pod, &s)
		if u.Phase != test.want {
			t.Errorf("%v, %v: phase %v, want %v", test.init, test.main, u.Phase, test.want)
		}
		for _, c := range u.Containers {
			if c.Now.State == podgroup.Executing && c.Name == "a" && (c.Ready == nil || *c.Ready) || c.Name == "b" && c.Ready != nil {
				t.Errorf("%v: %s has readiness %v", test.main, c.Name, c.Ready)
			}
		}
	}
}

// The Slurm plugin reports a container that runs, and is not ready, as one that waits.
func TestAContainerThatWaitsForItsProbes(t *testing.T) {
	pod := newPod("probes")
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{}
	s := wire.Status{UID: string(pod.UID), Containers: []corev1.ContainerStatus{{
		Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "Waiting for probes to be ready."}},
	}}}
	u := (&backend{config: &Config{}}).unit(pod, &s)
	if c := u.Container("main"); u.Phase != podgroup.Running || c.Now.State != podgroup.Executing || c.Ready == nil || *c.Ready {
		t.Errorf("the phase is %v, the container %+v", u.Phase, c)
	}
}

func TestLogOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		pod := newPod("log")
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		r.create(t, pod)
		time.Sleep(10 * time.Second)
		if err := r.world.Print("log", "main", "0123456789"); err != nil {
			t.Fatal(err)
		}
		since := time.Now()
		for want, opts := range map[string]api.ContainerLogOpts{
			"01234":                                {Tail: 1, LimitBytes: 5},
			"contain":                              {LimitBytes: 7, SinceSeconds: 60, SinceTime: since},
			"0123456789\n":                         {Tail: 1},
			"con":                                  {LimitBytes: 3},
			"containe":                             {Tail: 3, LimitBytes: 8}, // with which the plugin fails
			"container main started\n0123456789\n": {Tail: 3, Follow: true},  // with this, too
		} {
			if opts.Follow {
				time.AfterFunc(10*time.Second, func() { _ = r.world.Exit("log", "main", 0) })
			}
			stream, err := r.GetContainerLogs(t.Context(), "default", "log", "main", opts)
			if err != nil {
				t.Errorf("%+v: %v", opts, err)
				continue
			}
			if got, err := io.ReadAll(stream); string(got) != want || err != nil {
				t.Errorf("%+v: %q, %v", opts, got, err)
			}
			_ = stream.Close()
		}
	})
}

// A server that does not answer is waited for as long as the context, and no longer.
func TestAServerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		pod := newPod("slow")
		r.cluster.SetPod(pod)
		r.world.Delay(interlinktest.ActionStatus, 1, time.Hour)
		began := time.Now()
		if err := r.CreatePod(t.Context(), pod); !errdefs.IsUnavailable(err) {
			t.Errorf("the error is %v", err)
		}
		if took := time.Since(began); took > 2*time.Minute {
			t.Errorf("it took %v", took)
		}
		r.world.Delay(interlinktest.ActionPing, 1, time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := r.node.Ping(ctx); err == nil {
			t.Error("a ping without an answer succeeds")
		}
	})
}

func TestNodeFromPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config, _ *rig) {
			c.NodeLabels = []string{"site=here"}
			c.NodeTaints = []Taint{{Key: "site", Value: "here"}}
		})
		var reported *corev1.Node
		r.node.NotifyNodeStatus(t.Context(), func(n *corev1.Node) { reported = n })
		for _, text := range []string{"", "PARTITION AVAIL\n", `{"status":"ok","slurm_connected":true}`, `[]`, `{"resources":{"cpu":"-5"}}`} {
			r.plugin.Ping = text
			if err := r.node.Ping(t.Context()); err != nil || reported != nil {
				t.Errorf("%q: %v, %v", text, reported, err)
			}
		}
		r.plugin.Ping = `{"status":"ok","resources":{"cpu":"12","memory":"1Ti","pods":7,"accelerators":[{"resourceType":"nvidia.com/gpu","available":2},{"resourceType":"nvidia.com/gpu","available":"3"}]},
			"taints":[{"key":"drain","value":"now","effect":"NoExecute"},{"key":"bad key!","effect":"NoSchedule"}]}`
		if err := r.node.Ping(t.Context()); err != nil || reported == nil {
			t.Fatalf("%v, %v", reported, err)
		}
		got := map[string]string{}
		for name, q := range reported.Status.Allocatable {
			got[string(name)] = q.String()
		}
		if fmt.Sprint(got) != fmt.Sprint(map[string]string{"cpu": "12", "memory": "1Ti", "pods": "7", "nvidia.com/gpu": "5"}) {
			t.Errorf("allocatable: %v", got)
		}
		var taints []string
		for _, taint := range reported.Spec.Taints {
			taints = append(taints, taint.ToString())
		}
		if fmt.Sprint(taints) != "[virtual-node.interlink/no-schedule=true:NoSchedule site=here:NoSchedule drain=now:NoExecute]" || reported.Labels["site"] != "here" {
			t.Errorf("taints %v, labels %v", taints, reported.Labels)
		}
		r.world.Refuse(interlinktest.ActionPing, 1, errors.New("slurmctld is down"))
		if err := r.node.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "slurmctld is down") {
			t.Errorf("a plugin that is away: %v", err)
		}
	})
}

// The token is read each time, and shown nowhere; nor is what the pod has from Secrets.
func TestSecrets(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("first-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config, r *rig) { c.VKTokenFile, r.server.Token = token, "second-token" })
		pod := newPod("secret")
		withVolume(pod, "login", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "login"}})
		r.cluster.SetSecret("login", corev1.SecretTypeOpaque, map[string][]byte{"password": []byte("hunter2")})
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "PASSWORD", Value: "resolved-password"}, {Name: "QUOTED", Value: "it's <\"quoted\">"}}
		r.cluster.SetPod(pod)
		err := r.CreatePod(t.Context(), pod)
		if err == nil || strings.Contains(err.Error(), "first-token") || errdefs.IsPermanent(err) {
			t.Errorf("a wrong token: %v", err)
		}
		if err := os.WriteFile(token, []byte("second-token"), 0o600); err != nil {
			t.Fatal(err)
		}
		r.world.Refuse(interlinktest.ActionCreate, 1, errors.New("sbatch: job script\nexport PASSWORD=resolved-password; echo hunter2 second-token\x1b[31m failed"))
		err = r.CreatePod(t.Context(), pod)
		if err == nil || strings.ContainsAny(err.Error(), "\n\x1b") || !strings.Contains(err.Error(), "sbatch: job script") {
			t.Errorf("the error is %q", err)
		}
		for _, secret := range []string{"second-token", "hunter2", "resolved-password"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the error has %s: %q", secret, err)
			}
		}
		// Plugins show what they have got, and the server escapes that.
		time.Sleep(statusLag)
		r.world.Refuse(interlinktest.ActionCreate, 1, errors.New(`cannot decode {"value":"it's \u003c\"quoted\"\u003e","data":{"password":"aHVudGVyMg=="}} for it's <"quoted">`))
		if err = r.CreatePod(t.Context(), pod); err == nil || strings.Contains(err.Error(), "quoted") || strings.Contains(err.Error(), "aHVudGVyMg") {
			t.Errorf("the error shows a secret in another form: %v", err)
		}
		// All calls have the pod.
		time.Sleep(statusLag)
		r.world.Refuse(interlinktest.ActionStatus, 1, errors.New("no status for resolved-password"))
		if err := r.CreatePod(t.Context(), pod); err == nil || !strings.Contains(err.Error(), "no status for [secret]") {
			t.Errorf("the error of a status: %v", err)
		}
		r.create(t, pod)
		r.world.Refuse(interlinktest.ActionDelete, 1, errors.New("no end of resolved-password"))
		if err := r.DeletePod(t.Context(), pod); err == nil || !strings.Contains(err.Error(), "no end of [secret]") {
			t.Errorf("the error of a deletion: %v", err)
		}
		if err := os.WriteFile(token, []byte("\n"), 0o600); err != nil { // it is being written
			t.Fatal(err)
		}
		if err := r.node.Ping(t.Context()); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "VKTokenFile is empty") {
			t.Errorf("with an empty file of the token: %v", err)
		}
		if err := os.Remove(token); err != nil {
			t.Fatal(err)
		}
		if err := r.node.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "VKTokenFile") {
			t.Errorf("without the file of the token: %v", err)
		}
	})
}

func TestRefusedPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config, _ *rig) { c.PodFields = []string{"volumes.nfs", "-containers.livenessProbe"} })
		always := corev1.ContainerRestartPolicyAlways
		for want, change := range map[string]func(*corev1.Pod){
			"interlink.eu/disable-offload-containers": func(p *corev1.Pod) {
				p.Annotations = map[string]string{"interlink.eu/disable-offload-containers": "main"}
			},
			"initContainers[side].restartPolicy": func(p *corev1.Pod) {
				p.Spec.InitContainers = []corev1.Container{{Name: "side", Image: "busybox", RestartPolicy: &always}}
			},
			"volumes[claim].persistentVolumeClaim": func(p *corev1.Pod) {
				withVolume(p, "claim", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}})
			},
			"containers[main].livenessProbe": func(p *corev1.Pod) {
				p.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
			},
			"": func(p *corev1.Pod) {
				withVolume(p, "nfs", corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nfs", Path: "/"}})
			},
		} {
			pod := newPod("refused")
			change(pod)
			r.cluster.SetPod(pod)
			err := r.CreatePod(t.Context(), pod)
			if want == "" && err != nil || want != "" && (!errdefs.IsPermanent(err) || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s: %v", want, err)
			}
		}
	})
}

// Names of pods may have 253 characters and dots.
func TestLongNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		pod := newPod(strings.Repeat("x.y-", 63) + "z")
		r.create(t, pod)
		time.Sleep(10 * time.Second)
		if status, err := r.GetPodStatus(t.Context(), "default", pod.Name); err != nil || status.Phase != corev1.PodRunning {
			t.Errorf("%v, %v", status, err)
		}
	})
}
