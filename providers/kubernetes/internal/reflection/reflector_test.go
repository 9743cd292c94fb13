package reflection

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// home is the home cluster: Secrets and tokens.
type home struct {
	mu      sync.Mutex
	secrets map[string]*corev1.Secret
	err     error // of each read
	reads   int
	changed func(kind, namespace, name string)
	tokens  int
	refused string // the audience whose tokens are refused
}

func (h *home) Follow(*corev1.Pod) {}
func (h *home) Forget(types.UID)   {}

func (h *home) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	return nil, errdefs.NotFoundf("configmap %s", name)
}

func (h *home) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reads++
	if h.err != nil {
		return nil, h.err
	}
	if s := h.secrets[name]; s != nil {
		return s, nil
	}
	return nil, errdefs.NotFoundf("secret %s", name)
}

func (h *home) Subscribe(changed func(kind, namespace, name string)) func() {
	h.changed = changed
	return func() {}
}

func (h *home) put(name string, kind corev1.SecretType, value string) {
	h.mu.Lock()
	h.secrets[name] = &corev1.Secret{Type: kind, Data: map[string][]byte{"key": []byte(value)}}
	h.mu.Unlock()
	if h.changed != nil {
		h.changed("Secret", "shop", name)
	}
}

func (h *home) RequestToken(_ context.Context, _, _ string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.Contains(request.Spec.Audiences, h.refused) {
		return nil, apierrors.NewForbidden(corev1.Resource("serviceaccounts"), "default", errors.New("no such audience"))
	}
	h.tokens++
	request.Status.Token = fmt.Sprint("token-", h.tokens)
	return request, nil
}

// rig is a Reflector between home and a remote cluster.
type rig struct {
	*Reflector
	t        *testing.T
	home     *home
	remote   *fake.Clientset
	reported []error
	conflict error // of an apply with another version than there is
}

func newRig(t *testing.T) *rig {
	g := &rig{t: t, home: &home{secrets: map[string]*corev1.Secret{}}, remote: fake.NewClientset()}
	g.conflict = apierrors.NewConflict(corev1.Resource("secrets"), "one", errors.New("the object has been modified"))
	g.Reflector = New(Options{
		Translate: &translate.Options{Home: translate.Home{Cluster: "home", Node: "far", UID: "home-uid"}, Namespaces: translate.Namespaces{Mapping: translate.Same}},
		Objects:   g.home, Tokens: g.home, Remote: g.remote,
		ReportFailure: func(_ *corev1.Pod, err error) { g.reported = append(g.reported, err) },
	})
	fakeapi.React(&g.remote.Fake, "patch", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch, ok := action.(clienttesting.PatchActionImpl)
		if !ok || !bytes.Contains(patch.Patch, []byte(`"resourceVersion"`)) {
			return false, nil, nil
		}
		_, err := g.remote.Tracker().Get(patch.GetResource(), patch.Namespace, patch.Name)
		return err == nil, nil, g.conflict
	})
	return g
}

// remoteOf returns the remote pod of a home pod.
func (g *rig) remoteOf(pod *corev1.Pod) *corev1.Pod {
	g.t.Helper()
	remote, err := g.opts.Translate.Pod(pod, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	return remote
}

func (g *rig) RegisterPod(ctx context.Context, pod *corev1.Pod) error {
	g.t.Helper()
	return g.Reflector.RegisterPod(ctx, pod, g.remoteOf(pod))
}

func (g *rig) AdoptPod(pod *corev1.Pod) {
	g.t.Helper()
	g.Reflector.AdoptPod(pod, g.remoteOf(pod))
}

// run runs the Reflector for the rest of the test.
func (g *rig) run() {
	ctx, cancel := context.WithCancel(g.t.Context())
	var running sync.WaitGroup
	running.Go(func() { g.Run(ctx) })
	g.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	synctest.Wait()
}

func (g *rig) name(kind, name string) string { return g.opts.Translate.ObjectName(kind, "shop", name) }

// copied returns the remote Secret, or nil.
func (g *rig) copied(kind, name string) *corev1.Secret {
	g.t.Helper()
	s, err := g.remote.CoreV1().Secrets("shop").Get(g.t.Context(), g.name(kind, name), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		g.t.Fatal(err)
	}
	return s
}

func reader(uid types.UID) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "reader-" + string(uid), UID: uid},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{
			{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "keys"}}},
		}},
	}
}

func TestCopyFollowsAndGoesWithTheLastPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.home.put("keys", corev1.SecretTypeOpaque, "one")
		g.run()
		for _, uid := range []types.UID{"a", "b"} {
			if err := g.RegisterPod(t.Context(), reader(uid)); err != nil {
				t.Fatal(err)
			}
		}
		if c := g.copied("Secret", "keys"); c == nil || string(c.Data["key"]) != "one" || !g.opts.Translate.Home.Owns(c) || c.Labels[translate.LabelUID] != "" {
			t.Fatalf("the copy is %+v", c)
		}
		g.home.put("keys", corev1.SecretTypeOpaque, "two")
		synctest.Wait()
		if c := g.copied("Secret", "keys"); string(c.Data["key"]) != "two" {
			t.Errorf("the copy is %+v", c)
		}
		g.UnregisterPod("a")
		synctest.Wait()
		if g.copied("Secret", "keys") == nil {
			t.Error("the copy went with the first of two pods")
		}
		g.UnregisterPod("b")
		synctest.Wait()
		if g.copied("Secret", "keys") != nil || g.copied(translate.KindEnvironment, "b") != nil {
			t.Error("copies are left of the last pod")
		}
	})
}

// The type of a Secret cannot change: the copy is deleted and created again.
func TestSecretOfAnotherType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.home.put("keys", "example.com/own", "one")
		g.run()
		if err := g.RegisterPod(t.Context(), reader("a")); err != nil {
			t.Fatal(err)
		}
		if c := g.copied("Secret", "keys"); c.Type != corev1.SecretTypeOpaque {
			t.Errorf("type %s", c.Type)
		}
		g.home.put("keys", corev1.SecretTypeDockerConfigJson, "two")
		synctest.Wait()
		if c := g.copied("Secret", "keys"); c == nil || c.Type != corev1.SecretTypeDockerConfigJson {
			t.Errorf("the copy is %+v", c)
		}
	})
}

func TestMissingObjectIsReportedAndCopiedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.run()
		if err := g.RegisterPod(t.Context(), reader("a")); err != nil {
			t.Fatal(err)
		}
		if len(g.reported) != 1 {
			t.Errorf("reported %v", g.reported)
		}
		g.home.put("keys", corev1.SecretTypeOpaque, "late")
		synctest.Wait()
		if g.copied("Secret", "keys") == nil {
			t.Error("the object is not reflected")
		}
	})
}

// What only a pod needs that was deleted before it was created is not read again and again until the pod is
// unregistered: the node has forgotten it, and a right to read single objects it need not have.
func TestOriginalOfAPodThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		gone := false
		g.opts.IsGone = func(*corev1.Pod) bool { return gone }
		g.home.err = apierrors.NewForbidden(corev1.Resource("secrets"), "keys", errors.New("no"))
		if err := g.RegisterPod(t.Context(), reader("a")); err == nil {
			t.Fatal("the pod is registered without its Secret")
		}
		gone = true
		g.run()
		time.Sleep(time.Minute)
		if g.home.reads != 1 {
			t.Errorf("the Secret was read %d times", g.home.reads)
		}
		g.UnregisterPod("a")
		synctest.Wait()
		if g.isNeeded(ref{translate.KindSecret, "shop", "keys"}) {
			t.Error("the copy of a pod that is unregistered is needed")
		}
	})
}

func TestObjectOfOthersStays(t *testing.T) {
	g := newRig(t)
	g.home.put("keys", corev1.SecretTypeOpaque, "ours")
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: g.name("Secret", "keys"), Labels: translate.Home{Cluster: "home", Node: "other", UID: "home-uid"}.Labels()}, Data: map[string][]byte{"key": []byte("foreign")}}
	if _, err := g.remote.CoreV1().Secrets("shop").Create(t.Context(), foreign, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	err := g.RegisterPod(t.Context(), reader("a"))
	if !errors.As(err, new(translate.NameConflict)) || len(g.reported) != 1 {
		t.Errorf("got %v, reported %v", err, g.reported)
	}
	g.UnregisterPod("a")
	if err := g.reflect(t.Context(), ref{"Secret", "shop", "keys"}); err != nil {
		t.Error(err)
	}
	if c := g.copied("Secret", "keys"); c == nil || string(c.Data["key"]) != "foreign" {
		t.Errorf("it is now %+v", c)
	}
}

func TestTokenIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.run()
		pod := reader("a")
		hour := int64(3600)
		pod.Spec.Volumes = []corev1.Volume{{Name: "access", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &hour}},
		}}}}}
		if err := g.RegisterPod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		token := func() string {
			return string(g.copied(translate.KindFiles, "a").Data[translate.FileKey("access", "token")])
		}
		if got := token(); got != "token-1" {
			t.Fatalf("token %q", got)
		}
		time.Sleep(40 * time.Minute)
		synctest.Wait()
		if got := token(); got != "token-1" {
			t.Errorf("renewed at two thirds of its life: %q", got)
		}
		time.Sleep(9 * time.Minute) // 49 of 60
		synctest.Wait()
		if got := token(); got != "token-2" {
			t.Errorf("not renewed at 80 %% of its life: %q", got)
		}
	})
}

// withTokens returns a pod with a token of each audience, all in one volume.
func withTokens(uid types.UID, audiences ...string) *corev1.Pod {
	pod, hour := reader(uid), int64(3600)
	projected := &corev1.ProjectedVolumeSource{}
	for _, audience := range audiences {
		projected.Sources = append(projected.Sources, corev1.VolumeProjection{
			ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: audience, Audience: audience, ExpirationSeconds: &hour}})
	}
	pod.Spec.Volumes = []corev1.Volume{{Name: "access", VolumeSource: corev1.VolumeSource{Projected: projected}}}
	return pod
}

// A token that is refused stays as it was, and the others are renewed, also by a process
// that has adopted the pod and has no token yet.
func TestRefusedTokenDoesNotStopOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		pod := withTokens("a", "bank", "vault")
		if err := g.RegisterPod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		g.Close()
		token := func(path string) string {
			return string(g.copied(translate.KindFiles, "a").Data[translate.FileKey("access", path)])
		}
		if token("bank") != "token-1" || token("vault") != "token-2" {
			t.Fatalf("the tokens are %q and %q", token("bank"), token("vault"))
		}
		after := newRig(t)
		after.home, after.remote = g.home, g.remote
		after.opts.Objects, after.opts.Remote = g.home, g.remote
		after.sources.Objects, after.sources.Tokens = g.home, volume.NewTokens(g.home)
		g.home.refused = "bank"
		after.run()
		after.AdoptPod(pod)
		time.Sleep(time.Second)
		synctest.Wait()
		if token("bank") != "token-1" || token("vault") != "token-3" {
			t.Errorf("after a restart the tokens are %q and %q", token("bank"), token("vault"))
		}
		time.Sleep(50 * time.Minute)
		synctest.Wait()
		if token("bank") != "token-1" || token("vault") != "token-4" {
			t.Errorf("an hour later the tokens are %q and %q", token("bank"), token("vault"))
		}
		g.home.mu.Lock()
		g.home.refused = ""
		g.home.mu.Unlock()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if token("bank") != "token-5" {
			t.Errorf("the token that is no longer refused is %q", token("bank"))
		}
	})
}

// A pod does not start without a token that it asks for.
func TestPodDoesNotStartWithoutARefusedToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		defer g.Close()
		g.home.refused = "bank"
		if err := g.RegisterPod(t.Context(), withTokens("a", "bank", "vault")); err == nil || !strings.Contains(err.Error(), "no such audience") {
			t.Errorf("got %v", err)
		}
		if c := g.copied(translate.KindFiles, "a"); c != nil {
			t.Errorf("the copy is %q", c.Data)
		}
	})
}

// slowHome is a home whose first Secret takes until release is closed.
type slowHome struct {
	*home
	once    sync.Once
	release chan struct{}
}

func (h *slowHome) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	h.once.Do(func() { <-h.release })
	return h.home.Secret(ctx, namespace, name)
}

// A copy that is being written holds up other pods that need it no longer than their
// contexts.
func TestWaitForAWriteEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		defer g.Close()
		slow := &slowHome{home: g.home, release: make(chan struct{})}
		g.opts.Objects = slow
		g.home.put("keys", corev1.SecretTypeOpaque, "one")
		var running sync.WaitGroup
		running.Go(func() { _ = g.RegisterPod(t.Context(), reader("a")) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		second := make(chan error, 1)
		running.Go(func() { second <- g.RegisterPod(ctx, reader("b")) })
		time.Sleep(2 * time.Second)
		select {
		case err := <-second:
			if err == nil {
				t.Error("the second pod has a copy that was not written")
			}
		default:
			t.Error("the second pod still waits for the write of the first")
		}
		g.RewriteNamespace("shop") // does not wait either; the copy is written again later
		close(slow.release)
		running.Wait()
		if err := g.remote.CoreV1().Secrets("shop").Delete(t.Context(), g.name("Secret", "keys"), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		g.run()
		time.Sleep(time.Second)
		synctest.Wait()
		if g.copied("Secret", "keys") == nil {
			t.Error("the copy is not written again")
		}
	})
}

// With tokens disabled none is requested, one that a pod has is removed, and a Secret
// that is a token is refused.
func TestTokensDisabled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		defer g.Close()
		pod := reader("a")
		pod.Spec.Volumes = []corev1.Volume{{Name: "kube-api-access-1", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}},
		}}}}}
		if err := g.RegisterPod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		asked := g.home.tokens
		after := newRig(t)
		after.home, after.remote = g.home, g.remote
		after.opts.Objects, after.opts.Tokens, after.opts.Remote = g.home, g.home, g.remote
		after.opts.Translate.NoTokens = true
		after.run()
		after.Reflector.AdoptPod(pod, g.remoteOf(pod))
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		data := after.copied(translate.KindFiles, "a").Data
		token, ok := data[translate.FileKey("kube-api-access-1", "token")]
		if !ok || len(token) > 0 || string(data[translate.FileKey("kube-api-access-1", "namespace")]) != "shop" {
			t.Errorf("the files are %q", data)
		}
		if after.home.tokens != asked {
			t.Errorf("%d tokens were requested", after.home.tokens-asked)
		}

		after.home.put("keys", corev1.SecretTypeServiceAccountToken, "a token")
		if err := after.RegisterPod(t.Context(), reader("b")); !errdefs.IsPermanent(err) || after.copied(translate.KindSecret, "keys") != nil {
			t.Errorf("a Secret that is a token: %v", err)
		}
	})
}

func TestEnvironmentIsKeptByWhoDoesNotKnowIt(t *testing.T) {
	g := newRig(t)
	pod := reader("a")
	pod.Spec = corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Env: []corev1.EnvVar{{Name: "A", Value: "1"}}}}}
	if err := g.RegisterPod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	after := newRig(t)
	after.opts.Remote = g.remote
	after.AdoptPod(pod)
	if err := after.reflect(t.Context(), ref{translate.KindEnvironment, "shop", "a"}); err != nil {
		t.Fatal(err)
	}
	if c := g.copied(translate.KindEnvironment, "a"); c == nil || string(c.Data["main.A"]) != "1" {
		t.Errorf("the environment is %+v", c)
	}
}

// The environment of a pod that was adopted is resolved again if its copy is deleted
// with its namespace: later remote pods could not start without it.
func TestEnvironmentThatIsLostIsResolvedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		defer g.Close()
		pod := reader("a")
		pod.Spec = corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Env: []corev1.EnvVar{{Name: "A", Value: "1"}}}}}
		if err := g.RegisterPod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		after := newRig(t)
		after.opts.Remote = g.remote
		var works atomic.Bool
		after.opts.Environment = func(_ context.Context, pod *corev1.Pod) (map[string][]byte, error) {
			if !works.Load() {
				return nil, errors.New("forbidden")
			}
			return map[string][]byte{"main.A": []byte(pod.Spec.Containers[0].Env[0].Value)}, nil
		}
		after.run()
		after.AdoptPod(pod)
		synctest.Wait()
		if err := g.remote.CoreV1().Secrets("shop").Delete(t.Context(), g.name(translate.KindEnvironment, "a"), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		after.RewriteNamespace("shop")
		time.Sleep(time.Second)
		synctest.Wait()
		if c := g.copied(translate.KindEnvironment, "a"); c != nil {
			t.Errorf("an environment that cannot be resolved is %+v", c.Data)
		}
		works.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if c := g.copied(translate.KindEnvironment, "a"); c == nil || string(c.Data["main.A"]) != "1" {
			t.Errorf("the environment is %+v", c)
		}
	})
}

// Copies that an earlier process left are deleted, copies that somebody deleted are
// written again, and the objects of others stay.
func TestCollectGarbage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.home.put("keys", corev1.SecretTypeOpaque, "one")
		g.run()
		if err := g.RegisterPod(t.Context(), reader("a")); err != nil {
			t.Fatal(err)
		}
		secrets := g.remote.CoreV1().Secrets("shop")
		if err := secrets.Delete(t.Context(), g.name("Secret", "keys"), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		ours := g.opts.Translate.Home.LabelsOf("shop", "")
		old, young := metav1.NewTime(time.Now().Add(-time.Hour)), metav1.Now()
		listed := []runtime.Object{}
		for name, meta := range map[string]metav1.ObjectMeta{
			"left":    {Labels: ours, CreationTimestamp: old},
			"young":   {Labels: ours, CreationTimestamp: young},
			"needed":  {Labels: ours, CreationTimestamp: old},
			"foreign": {CreationTimestamp: old},
		} {
			meta.Name, meta.Namespace, meta.UID = name, "shop", types.UID(name)
			if _, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			listed = append(listed, &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: meta})
		}
		scheme := metadatafake.NewTestScheme()
		if err := metav1.AddMetaToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		pod := reader("b")
		pod.Spec.Volumes[0].Secret.SecretName = "needed"
		if err := g.CollectGarbage(t.Context(), metadatafake.NewSimpleMetadataClient(scheme, listed...), "shop", []*corev1.Pod{pod}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if g.copied("Secret", "keys") == nil {
			t.Error("the copy that was removed is not there again")
		}
		for name, want := range map[string]bool{"left": false, "young": true, "needed": true, "foreign": true} {
			if _, err := secrets.Get(t.Context(), name, metav1.GetOptions{}); (err == nil) != want {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// A missing original is reported only if the pod cannot run without it.
func TestMissingOptionalObjectIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.run()
		pod := reader("a")
		optional := true
		pod.Spec.Volumes[0].Secret.Optional = &optional
		if err := g.RegisterPod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(g.reported) > 0 {
			t.Errorf("reported %v", g.reported)
		}
		asked := 0
		for _, action := range g.remote.Actions() {
			if action.GetVerb() == "get" {
				asked++
			}
		}
		if asked != 1 { // for an earlier copy
			t.Errorf("the remote cluster was asked %d times", asked)
		}
		g.home.put("keys", corev1.SecretTypeOpaque, "late")
		synctest.Wait()
		if g.copied("Secret", "keys") == nil {
			t.Error("the object is not reflected")
		}
	})
}

// Whether an optional object exists has to be known before the pod is created without
// it. Until it is known, an existing copy stays.
func TestOptionalObjectThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.run()
		optional := true
		first, second := reader("a"), reader("b")
		first.Spec.Volumes[0].Secret.Optional, second.Spec.Volumes[0].Secret.Optional = &optional, &optional
		g.home.put("keys", corev1.SecretTypeOpaque, "one")
		if err := g.RegisterPod(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		for _, failure := range []error{
			apierrors.NewForbidden(corev1.Resource("secrets"), "keys", errors.New("no relationship found")),
			apierrors.NewTooManyRequests("busy", 1), apierrors.NewInternalError(errors.New("no leader")), errors.New("connection refused"),
		} {
			g.home.err = failure
			if err := g.RegisterPod(t.Context(), second); !errors.Is(err, failure) {
				t.Errorf("got %v, want %v", err, failure)
			}
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if g.copied("Secret", "keys") == nil {
				t.Fatalf("the copy is gone after %v", failure)
			}
		}
		g.home.err = nil
		if err := g.RegisterPod(t.Context(), second); err != nil {
			t.Error(err)
		}
	})
}

// A copy that is up to date is not written by the next process.
func TestCopyThatIsThereIsNotWrittenAgain(t *testing.T) {
	g := newRig(t)
	g.home.put("keys", corev1.SecretTypeOpaque, "one")
	if err := g.RegisterPod(t.Context(), reader("a")); err != nil {
		t.Fatal(err)
	}
	after := newRig(t)
	after.home, after.opts.Objects, after.opts.Remote, after.remote = g.home, g.home, g.remote, g.remote
	g.remote.ClearActions()
	writes := func() (count int) {
		for _, action := range g.remote.Actions() {
			if action.GetVerb() != "get" {
				count++
			}
		}
		g.remote.ClearActions()
		return count
	}
	after.AdoptPod(reader("a"))
	if err := after.reflect(t.Context(), ref{"Secret", "shop", "keys"}); err != nil {
		t.Fatal(err)
	}
	if n := writes(); n != 0 {
		t.Errorf("it was written %d times", n)
	}
	g.home.put("keys", corev1.SecretTypeOpaque, "two")
	if err := after.reflect(t.Context(), ref{"Secret", "shop", "keys"}); err != nil {
		t.Fatal(err)
	}
	if c := g.copied("Secret", "keys"); writes() != 1 || string(c.Data["key"]) != "two" {
		t.Errorf("a change is not written: %+v", c)
	}
}

// A new pod's copy that is there already, since a process before this one has written it or
// the answer was lost, is read, and written only if it differs.
func TestNewCopyThatIsThere(t *testing.T) {
	for content, want := range map[string][]string{"one": {"patch", "get"}, "two": {"patch", "get", "patch"}} {
		g, after := newRig(t), newRig(t)
		if content == "two" { // of a service, which makes a creation of it
			g.conflict = apierrors.NewAlreadyExists(corev1.Resource("secrets"), "one")
		}
		g.home.put("keys", corev1.SecretTypeOpaque, "one")
		if err := g.RegisterPod(t.Context(), reader("a")); err != nil {
			t.Fatal(err)
		}
		g.remote.ClearActions()
		after.opts.Remote, after.remote = g.remote, g.remote
		after.home.put("keys", corev1.SecretTypeOpaque, content)
		if err := after.RegisterPod(t.Context(), reader("a")); err != nil {
			t.Fatal(err)
		}
		var asked []string
		for _, action := range g.remote.Actions() {
			asked = append(asked, action.GetVerb())
		}
		if !slices.Equal(asked, want) {
			t.Errorf("%s: asked were %q, want %q", content, asked, want)
		}
		if c := after.copied("Secret", "keys"); string(c.Data["key"]) != content {
			t.Errorf("the copy is %+v, want %s", c, content)
		}
	}
}

// What refuses a resourceVersion of an object that is not there, as an API server does in a
// creation, gets the copy without.
func TestVersionOfANewCopyIsRefused(t *testing.T) {
	g := newRig(t)
	g.home.put("keys", corev1.SecretTypeOpaque, "one")
	fakeapi.React(&g.remote.Fake, "patch", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch, ok := action.(clienttesting.PatchActionImpl)
		return ok && bytes.Contains(patch.Patch, []byte(`"resourceVersion"`)), nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	})
	if err := g.RegisterPod(t.Context(), reader("a")); err != nil || len(g.reported) > 0 {
		t.Errorf("got %v, reported %v", err, g.reported)
	}
	if c := g.copied("Secret", "keys"); c == nil || string(c.Data["key"]) != "one" {
		t.Errorf("the copy is %+v", c)
	}
}

// Of the Secrets of its own a pod has those that its remote pod refers to: one that an
// earlier version has made goes on having both, with all their values, and leaves none.
func TestSecretsThatTheRemotePodRefersTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		pod := reader("a")
		pod.Spec.Volumes = []corev1.Volume{{Name: "info", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{{Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}}}}
		original := pod.DeepCopy()
		original.Spec.Containers = []corev1.Container{{Name: "main"}}
		pod.Spec.Containers = []corev1.Container{{Name: "main", Env: []corev1.EnvVar{{Name: "KUBERNETES_SERVICE_HOST", Value: "10.96.0.1"}}}}
		older := g.remoteOf(pod)
		older.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: g.opts.Translate.FilesName(pod)}}
		g.opts.Translate.Unresolved = func(*corev1.Pod) *corev1.Pod { return original }
		g.run()

		if err := g.RegisterPod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if asked := g.remote.Actions(); len(asked) > 0 {
			t.Errorf("a pod whose variables and files are in its remote pod: the remote cluster was asked for %v", asked)
		}
		g.UnregisterPod(pod.UID)
		if err := g.Reflector.RegisterPod(t.Context(), pod, older); err != nil {
			t.Fatal(err)
		}
		if err := g.RegisterPod(t.Context(), pod); err != nil { // what it had, it keeps
			t.Fatal(err)
		}
		env, files := g.copied(translate.KindEnvironment, "a"), g.copied(translate.KindFiles, "a")
		if env == nil || string(env.Data["main.KUBERNETES_SERVICE_HOST"]) != "10.96.0.1" || files == nil || string(files.Data[translate.FileKey("info", "name")]) != pod.Name {
			t.Errorf("a pod of an earlier version: its Secrets are %+v and %+v", env, files)
		}
		g.UnregisterPod(pod.UID)
		synctest.Wait()
		if g.copied(translate.KindEnvironment, "a") != nil || g.copied(translate.KindFiles, "a") != nil {
			t.Error("its Secrets are left")
		}
	})
}

// A copy that is too large for the remote cluster is reported, and seldom retried; one that
// admission there refuses fails no pod.
func TestCopyIsRefused(t *testing.T) {
	for what, c := range map[string]struct {
		err   error
		final bool
	}{
		"too large": {apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Secret").GroupKind(), "keys", field.ErrorList{
			field.TooLong(field.NewPath("data"), "", corev1.MaxSecretSize)}), true},
		"a webhook": {&apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusBadRequest,
			Message: `admission webhook "w.io" denied the request: no`}}, false},
	} {
		g := newRig(t)
		g.home.put("keys", corev1.SecretTypeOpaque, "large")
		fakeapi.React(&g.remote.Fake, "patch", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.err })
		if err := g.RegisterPod(t.Context(), reader("a")); err == nil || errdefs.IsPermanent(err) != c.final || len(g.reported) > 0 != c.final {
			t.Errorf("%s: got %v, reported %v", what, err, g.reported)
		}
	}
}

// Garbage collection keeps a copy that a new pod needs, regardless of its age by the remote
// cluster's clock.
func TestCollectGarbageByAClockThatIsBehind(t *testing.T) {
	g := newRig(t)
	g.home.put("keys", corev1.SecretTypeOpaque, "one")
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	client := metadatafake.NewSimpleMetadataClient(scheme)
	fakeapi.React(&client.Fake, "list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		if err := g.RegisterPod(t.Context(), reader("a")); err != nil {
			t.Error(err)
		}
		return true, &metav1.List{Items: []runtime.RawExtension{{Object: &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: g.name("Secret", "keys"), UID: "far",
				Labels: g.opts.Translate.Home.LabelsOf("shop", ""), CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour))},
		}}}}, nil
	})
	if err := g.CollectGarbage(t.Context(), client, "shop", nil); err != nil {
		t.Fatal(err)
	}
	if g.copied("Secret", "keys") == nil {
		t.Error("it was removed")
	}
}
