package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink/internal/wire"
)

// pods is a provider without an API: it fails when a test wants it to.
type pods struct {
	mu       sync.Mutex
	init     nodeutil.ProviderConfig
	running  map[types.UID]*corev1.Pod
	statuses map[types.UID]corev1.PodStatus
	creates  int
	graces   []int64
	fail     error
	stubborn bool // it ends nothing within a grace period
	byName   bool // it deletes the pod of a name, regardless of its UID
	hangs    bool // it has no status before its caller's context ends
	log      io.Reader
	noLog    bool // a log is nil
}

func newPods() *pods {
	return &pods{running: map[types.UID]*corev1.Pod{}, statuses: map[types.UID]corev1.PodStatus{}}
}

func (p *pods) CreatePod(_ context.Context, pod *corev1.Pod) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.creates++
	if p.fail != nil {
		return p.fail
	}
	p.running[pod.UID] = pod
	return nil
}

func (p *pods) UpdatePod(context.Context, *corev1.Pod) error { return nil }

func (p *pods) DeletePod(_ context.Context, pod *corev1.Pod) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.graces = append(p.graces, *pod.DeletionGracePeriodSeconds)
	if p.fail != nil {
		return p.fail
	}
	if !p.stubborn || *pod.DeletionGracePeriodSeconds == 0 {
		maps.DeleteFunc(p.running, func(uid types.UID, known *corev1.Pod) bool {
			return uid == pod.UID || p.byName && known.Name == pod.Name
		})
	}
	return nil
}

func (p *pods) GetPod(context.Context, string, string) (*corev1.Pod, error) {
	return nil, errors.ErrUnsupported
}

func (p *pods) GetPods(context.Context) ([]*corev1.Pod, error) { return nil, nil }

func (p *pods) GetPodStatus(ctx context.Context, _, name string) (*corev1.PodStatus, error) {
	if p.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid, pod := range p.running {
		if pod.Name == name {
			status := p.statuses[uid]
			return &status, nil
		}
	}
	return nil, errdefs.NotFound("there is no such pod")
}

func (p *pods) GetContainerLogs(context.Context, string, string, string, api.ContainerLogOpts) (io.ReadCloser, error) {
	if p.noLog {
		return nil, nil
	}
	if p.log != nil {
		return io.NopCloser(p.log), nil
	}
	return io.NopCloser(strings.NewReader("a line\n")), nil
}

func (p *pods) Ping(context.Context) error { return p.fail }

func (p *pods) NotifyNodeStatus(context.Context, func(*corev1.Node)) {}

// files is a Store.
type files struct {
	slow time.Duration

	mu    sync.Mutex
	texts map[string][]byte
}

func newFiles() *files { return &files{texts: map[string][]byte{}} }

func (f *files) Load() (map[string][]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.texts), nil
}

func (f *files) Save(uid string, text []byte) error {
	time.Sleep(f.slow)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.texts[uid] = text
	return nil
}

func (f *files) Delete(uid string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.texts, uid)
	return nil
}

func start(t *testing.T, p *pods, store Store) *Server {
	t.Helper()
	s, err := New(log.WithLogger(context.WithoutCancel(t.Context()), log.FromSlog(slog.New(slog.DiscardHandler))), Options{
		NewProvider: func(init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			p.init = init
			init.Node.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("4"), "pods": resource.MustParse("10"), "nvidia.com/gpu": resource.MustParse("2")}
			return nodeutil.AsProvider(p), p, nil
		},
		Store: store,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// ask makes a request.
func ask(s *Server, method, path string, body any) (int, string) {
	text, ok := body.(string)
	if !ok {
		encoded, err := json.Marshal(body)
		if err != nil {
			return 0, err.Error()
		}
		text = string(encoded)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(text)))
	return w.Code, w.Body.String()
}

func newPod(uid string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID = "default", "web", types.UID(uid)
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "busybox"}}
	return pod
}

func statusNow(t *testing.T, s *Server, pod *corev1.Pod) wire.Status {
	t.Helper()
	code, text := ask(s, http.MethodGet, "/status", []*corev1.Pod{pod})
	var all []wire.Status
	if err := json.Unmarshal([]byte(text), &all); err != nil || code != http.StatusOK || len(all) != 1 {
		t.Fatalf("%d %s: %v", code, text, err)
	}
	return all[0]
}

func TestBothForms(t *testing.T) {
	p := newPods()
	s := start(t, p, nil)
	for i, body := range []any{wire.PluginCreate{Pod: newPod("uid-1")}, []wire.PluginCreate{{Pod: newPod("uid-1")}}} {
		if code, text := ask(s, http.MethodPost, "/create", body); code != http.StatusOK || text != `{"PodUID":"uid-1","PodJID":"uid-1"}` {
			t.Errorf("form %d: %d %s", i, code, text)
		}
	}
	if p.creates != 1 {
		t.Errorf("a pod that was asked for twice was created %d times", p.creates)
	}
	if pod := p.running["uid-1"]; pod.Spec.NodeName != "interlink" {
		t.Errorf("the pod is %v", pod)
	}
}

// What users may write into pods ends up in names of files and in texts.
func TestHostileRequests(t *testing.T) {
	p := newPods()
	store := newFiles()
	s := start(t, p, store)
	bad := map[string]func(*corev1.Pod){
		"namespace": func(p *corev1.Pod) { p.Namespace = "../../etc" },
		"name":      func(p *corev1.Pod) { p.Name = "a'; rm -rf \"/\"\n" },
		"UID":       func(p *corev1.Pod) { p.UID = "../uid" },
		"no UID":    func(p *corev1.Pod) { p.UID = "" },
		"container": func(p *corev1.Pod) { p.Spec.Containers[0].Name = "a/b" },
		"twice": func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, p.Spec.Containers[0])
		},
		"volume": func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: ".."}} },
		"another pod's Secret": func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "interlink.uid-2.token"}, Key: "token",
			}}}}
		},
		"all of another pod's Secret": func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "first", EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "interlink.uid-2.token"},
			}}}}}
		},
		"empty": func(p *corev1.Pod) { p.Spec.Containers = nil },
		"missing ConfigMap": func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "a", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}}}
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "a", MountPath: "/a"}}
		},
	}
	for what, change := range bad {
		pod := newPod("uid-1")
		change(pod)
		if code, text := ask(s, http.MethodPost, "/create", wire.PluginCreate{Pod: pod}); code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", what, code, text)
		}
	}
	for _, body := range []string{"", "null", "[]", "{}", "[1]", `{"pod": null}`, `[{}, {}]`, "\x00"} {
		if code, text := ask(s, http.MethodPost, "/create", body); code != http.StatusBadRequest {
			t.Errorf("%q: %d %s", body, code, text)
		}
	}
	if code, _ := ask(s, http.MethodPost, "/create", wire.PluginCreate{Pod: newPod("uid-1"), JobScript: "#!/bin/sh"}); code != http.StatusBadRequest {
		t.Errorf("a job script: %d", code)
	}
	for path, body := range map[string]string{"/status": "[null]", "/getLogs": `{"PodUID": "../x"}`, "/create": "{}"} {
		if code, _ := ask(s, http.MethodGet, path, body); path != "/status" && code != http.StatusNotFound {
			t.Errorf("GET %s: %d", path, code)
		}
	}
	if p.creates != 0 || len(store.texts) != 0 {
		t.Errorf("%d creations, %v stored", p.creates, store.texts)
	}
}

// A creation that fails for now is made again when it is asked for again, and one that is
// refused for good leaves nothing.
func TestCreationsThatFail(t *testing.T) {
	p := newPods()
	store := newFiles()
	s := start(t, p, store)
	p.fail = errdefs.AsUnavailable(errors.New("the service is away"))
	if code, _ := ask(s, http.MethodPost, "/create", wire.PluginCreate{Pod: newPod("uid-1")}); code != http.StatusServiceUnavailable {
		t.Errorf("a service that is away: %d", code)
	}
	if got := statusNow(t, s, newPod("uid-1")); got.Containers[0].State != (corev1.ContainerState{}) {
		t.Errorf("a pod that is not there has the status %+v", got)
	}
	p.fail = nil
	if code, _ := ask(s, http.MethodPost, "/create", wire.PluginCreate{Pod: newPod("uid-1")}); code != http.StatusOK || len(p.running) != 1 {
		t.Errorf("the second try: %d", code)
	}
	p.fail = errdefs.AsPermanent(errors.New("no such thing"))
	other := newPod("uid-2")
	other.Name = "other"
	if code, text := ask(s, http.MethodPost, "/create", wire.PluginCreate{Pod: other}); code != http.StatusBadRequest || !strings.Contains(text, "no such thing") {
		t.Errorf("a pod that is refused: %d %s", code, text)
	}
	if len(store.texts) != 1 {
		t.Errorf("stored: %v", store.texts)
	}
}

// A pod of the same name comes when the one before has gone.
func TestPodsOfOneName(t *testing.T) {
	p := newPods()
	s := start(t, p, nil)
	ask(s, http.MethodPost, "/create", wire.PluginCreate{Pod: newPod("uid-1")})
	if code, _ := ask(s, http.MethodPost, "/create", wire.PluginCreate{Pod: newPod("uid-2")}); code != http.StatusConflict {
		t.Errorf("while the first one runs: %d", code)
	}
	delete(p.running, "uid-1")
	if code, text := ask(s, http.MethodPost, "/create", wire.PluginCreate{Pod: newPod("uid-2")}); code != http.StatusOK {
		t.Errorf("when it has gone: %d %s", code, text)
	}
}

// Of two pods of a name that come at once, one is created.
func TestPodsOfOneNameAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPods()
		store := newFiles()
		store.slow = time.Second
		s := start(t, p, store)
		codes := make([]int, 2)
		var creations sync.WaitGroup
		for i, uid := range []string{"uid-1", "uid-2"} {
			creations.Go(func() { codes[i], _ = ask(s, http.MethodPost, "/create", wire.PluginCreate{Pod: newPod(uid)}) })
		}
		creations.Wait()
		if p.creates != 1 || codes[0]+codes[1] != http.StatusOK+http.StatusConflict {
			t.Errorf("%d pods are created, the answers are %v", p.creates, codes)
		}
	})
}

// Each pod has the contents that came with it, however UIDs and volumes are named.
func TestContentsAreThePods(t *testing.T) {
	p := newPods()
	s := start(t, p, nil)
	for _, one := range [][2]string{{"a", "b-c"}, {"a-b", "c"}} {
		uid, name := one[0], one[1]
		pod := newPod(uid)
		pod.Name = "pod-" + uid
		pod.Spec.Volumes = []corev1.Volume{{Name: name, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "login"}}}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: name, MountPath: "/login"}}
		login := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "login"}, Data: map[string][]byte{"of": []byte(uid)}}
		if code, text := ask(s, http.MethodPost, "/create", wire.PluginCreate{Pod: pod, Containers: []wire.Container{{Name: "main", Secrets: []corev1.Secret{login}}}}); code != http.StatusOK {
			t.Fatalf("%d %s", code, text)
		}
	}
	for uid, pod := range p.running {
		found, err := p.init.Objects.Secret(t.Context(), "default", pod.Spec.Volumes[0].Secret.SecretName)
		if err != nil || string(found.Data["of"]) != string(uid) {
			t.Errorf("pod %s has the contents %v, error %v", uid, found, err)
		}
	}
}

// A client that goes ends its request for statuses, even if the provider hangs.
func TestAStatusEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPods()
		s := start(t, p, nil)
		ask(s, http.MethodPost, "/create", wire.PluginCreate{Pod: newPod("uid-1")})
		p.hangs = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/status", strings.NewReader(`[{"metadata":{"uid":"uid-1"}}]`)))
		if took := time.Since(began); took != time.Second {
			t.Errorf("the request ends after %v", took)
		}
	})
}

func TestDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPods()
		store := newFiles()
		s := start(t, p, store)
		pod := newPod("uid-1")
		ask(s, http.MethodPost, "/create", wire.PluginCreate{Pod: pod})
		p.stubborn, p.fail = true, errdefs.AsUnavailable(errors.New("the service is away"))
		seconds := int64(10)
		pod.DeletionGracePeriodSeconds = &seconds
		for range 2 {
			if code, text := ask(s, http.MethodPost, "/delete", pod); code != http.StatusOK {
				t.Errorf("%d %s", code, text)
			}
		}
		time.Sleep(3 * time.Second)
		if code, _ := ask(s, http.MethodPost, "/create", wire.PluginCreate{Pod: pod}); code != http.StatusConflict {
			t.Errorf("a creation during the deletion: %d", code)
		}
		_ = s.Close() // the next start goes on
		p.mu.Lock()
		p.fail = nil
		p.mu.Unlock()
		again := start(t, p, store)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(p.running) != 0 || len(store.texts) != 0 || again.cluster.record("uid-1") != nil {
			t.Errorf("left over: %v, %v", p.running, store.texts)
		}
		if p.graces[0] != 10 || p.graces[len(p.graces)-1] != 0 {
			t.Errorf("the grace periods were %v", p.graces)
		}
		if code, _ := ask(again, http.MethodPost, "/delete", pod); code != http.StatusOK {
			t.Errorf("a pod that is gone: %d", code)
		}
	})
}

func TestStatuses(t *testing.T) {
	p := newPods()
	s := start(t, p, nil)
	pod := newPod("uid-1")
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	ask(s, http.MethodPost, "/create", wire.PluginCreate{Pod: pod})
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2}}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	for _, test := range []struct {
		phase corev1.PodPhase
		state *corev1.ContainerState
		want  string
	}{
		{corev1.PodPending, nil, "waiting ContainerCreating"},
		{corev1.PodRunning, &running, "running"},
		{corev1.PodRunning, &ended, "waiting Restarting"}, // else it would count as ended
		{corev1.PodFailed, &ended, "ended 2 "},
		{corev1.PodFailed, &running, "ended 137 DeadlineExceeded"},
		{corev1.PodFailed, nil, "ended 137 DeadlineExceeded"},
		{corev1.PodSucceeded, nil, "ended 0 Completed"},
	} {
		status := corev1.PodStatus{Phase: test.phase}
		if test.phase == corev1.PodFailed {
			status.Reason = "DeadlineExceeded"
		}
		if test.state != nil {
			status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: *test.state}}
		}
		p.statuses["uid-1"] = status
		got := ""
		switch state := statusNow(t, s, pod).Containers[0].State; {
		case state.Waiting != nil:
			got = "waiting " + state.Waiting.Reason
		case state.Running != nil:
			got = "running"
		case state.Terminated != nil:
			got = fmt.Sprint("ended ", state.Terminated.ExitCode, " ", state.Terminated.Reason)
		}
		if got != test.want {
			t.Errorf("%s, %v: %q, want %q", test.phase, test.state, got, test.want)
		}
	}
}

func TestPing(t *testing.T) {
	p := newPods()
	s := start(t, p, nil)
	want := `{"status":"ok","resources":{"cpu":"4","pods":"10","accelerators":[{"resourceType":"nvidia.com/gpu","available":"2"}]}}`
	if code, text := ask(s, http.MethodGet, "/status", "[]"); code != http.StatusOK || text != want {
		t.Errorf("%d %s", code, text)
	}
	p.fail = errors.New("the runtime is away")
	if code, _ := ask(s, http.MethodGet, "/status", "[]"); code != http.StatusServiceUnavailable {
		t.Errorf("a provider that is away: %d", code)
	}
}

func TestLogs(t *testing.T) {
	s := start(t, newPods(), nil)
	ask(s, http.MethodPost, "/create", wire.PluginCreate{Pod: newPod("uid-1")})
	if code, text := ask(s, http.MethodGet, "/getLogs", wire.Log{Namespace: "default", PodUID: "uid-1", ContainerName: "main"}); code != http.StatusOK || text != "a line\n" {
		t.Errorf("%d %s", code, text)
	}
	for _, c := range []struct {
		in   wire.Log
		code int
	}{
		{wire.Log{Namespace: "other", PodUID: "uid-1", ContainerName: "main"}, http.StatusNotFound},
		{wire.Log{Namespace: "default", PodUID: "uid-2", ContainerName: "main"}, http.StatusNotFound},
		{wire.Log{Namespace: "default", PodUID: "uid-1", ContainerName: "../../other/main"}, http.StatusNotFound},
		{wire.Log{Namespace: "default", PodUID: "uid-1", ContainerName: "main", Opts: wire.LogOptions{Tail: -1}}, http.StatusBadRequest},
	} {
		if code, text := ask(s, http.MethodGet, "/getLogs", c.in); code != c.code {
			t.Errorf("%+v: %d %s", c.in, code, text)
		}
	}
}

func TestADamagedStoreIsRefused(t *testing.T) {
	_, err := New(t.Context(), Options{
		NewProvider: func(nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) { return nil, nil, nil },
		Store:       &files{texts: map[string][]byte{"uid-1": []byte(`{"pod": {}}`)}},
	})
	if err == nil || !strings.Contains(err.Error(), "uid-1") {
		t.Errorf("the error is %v", err)
	}
}

// A provider knows the cluster by a UID, and finds nothing else in it.
func TestThereIsNoCluster(t *testing.T) {
	p := newPods()
	start(t, p, nil)
	ctx := t.Context()
	if ns, err := p.init.Client.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{}); err != nil || ns.UID != "interlink" {
		t.Errorf("%v, %v", ns, err)
	}
	if _, err := p.init.Client.CoreV1().Nodes().Get(ctx, "a", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), "no cluster") {
		t.Errorf("a node: %v", err)
	}
	if _, err := p.init.Objects.Secret(ctx, "default", "a"); !errdefs.IsNotFound(err) {
		t.Errorf("a Secret: %v", err)
	}
}
