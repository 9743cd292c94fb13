package volume

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/virtual-kubelet/virtual-kubelet/node"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test mounts and changes owners: run it as root")
	}
}

// tempDir is t.TempDir, without what is mounted below.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unmountBelow(dir, unmount); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func decode[T any](t *testing.T, text string) *T {
	t.Helper()
	object := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return object
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return string(data)
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// ls describes what a path is: mode in octal, owner, group.
func ls(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		return err.Error()
	}
	uid, gid, _ := ownerOf(info)
	mode := octal(info.Mode())
	if info.Mode()&fs.ModeSticky != 0 {
		mode += "+t"
	}
	return fmt.Sprintf("%s %d:%d", mode, uid, gid)
}

func expect[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func expectError(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Errorf("unexpected error: %v", err)
		}
		return
	}
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, want one with %q", err, want)
	}
}

// fakeObjects is a node.ObjectSource of namespace ns, and a TokenRequester, and
// Claims.
type fakeObjects struct {
	mu         sync.Mutex
	configMaps map[string]*corev1.ConfigMap
	secrets    map[string]*corev1.Secret
	claims     map[string]*corev1.PersistentVolumeClaim
	volumes    map[string]*corev1.PersistentVolume
	err        error // of all reads

	subscribers map[int]func(kind, namespace, name string)

	requests []*authenticationv1.TokenRequest
	accounts []string
	life     int64
	tokenErr error
	answer   func(*authenticationv1.TokenRequest) // changes answers
}

var _ node.ObjectSource = (*fakeObjects)(nil)

func newObjects() *fakeObjects {
	return &fakeObjects{
		configMaps:  map[string]*corev1.ConfigMap{},
		secrets:     map[string]*corev1.Secret{},
		claims:      map[string]*corev1.PersistentVolumeClaim{},
		volumes:     map[string]*corev1.PersistentVolume{},
		subscribers: map[int]func(kind, namespace, name string){},
		life:        3600,
	}
}

func (f *fakeObjects) Follow(*corev1.Pod) {}
func (f *fakeObjects) Forget(types.UID)   {}

func get[T any](f *fakeObjects, from map[string]*T, resource, name string) (*T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	if object := from[name]; object != nil {
		return object, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name)
}

func (f *fakeObjects) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	return get(f, f.configMaps, "configmaps", name)
}

func (f *fakeObjects) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	return get(f, f.secrets, "secrets", name)
}

func (f *fakeObjects) PersistentVolumeClaim(_ context.Context, _, name string) (*corev1.PersistentVolumeClaim, error) {
	return get(f, f.claims, "persistentvolumeclaims", name)
}

func (f *fakeObjects) PersistentVolume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	return get(f, f.volumes, "persistentvolumes", name)
}

func (f *fakeObjects) Subscribe(changed func(kind, namespace, name string)) func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := len(f.subscribers)
	f.subscribers[id] = changed
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.subscribers, id)
	}
}

func (f *fakeObjects) notify(kind, name string) {
	f.mu.Lock()
	subscribers := slices.Collect(maps.Values(f.subscribers))
	f.mu.Unlock()
	for _, changed := range subscribers {
		changed(kind, "ns", name)
	}
}

func (f *fakeObjects) setConfigMap(name string, data map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.configMaps[name] = &corev1.ConfigMap{Data: data}
}

func (f *fakeObjects) RequestToken(_ context.Context, namespace, account string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, request)
	f.accounts = append(f.accounts, namespace+"/"+account)
	if f.tokenErr != nil {
		return nil, f.tokenErr
	}
	answer := request.DeepCopy()
	answer.Spec.ExpirationSeconds = &f.life
	answer.Status.Token = fmt.Sprintf("token%d", len(f.requests))
	if f.answer != nil {
		f.answer(answer)
	}
	return answer, nil
}

// podWith makes a pod with volumes, given as YAML, each mounted by its container.
func podWith(t *testing.T, volumes string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "ns", UID: "uid-1"},
		Spec: corev1.PodSpec{
			ServiceAccountName: "robot",
			Volumes:            *decode[[]corev1.Volume](t, volumes),
			Containers:         []corev1.Container{{Name: "c"}},
		},
	}
	for _, v := range pod.Spec.Volumes {
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	return pod
}

// rig is a Manager on a directory of its own.
type rig struct {
	*Manager
	objects *fakeObjects
	root    string
}

func newRig(t *testing.T, change ...func(*Options)) *rig {
	t.Helper()
	r := &rig{objects: newObjects(), root: tempDir(t)}
	opts := Options{
		Root: r.root, Objects: r.objects, Tokens: r.objects, Claims: r.objects,
		AllowHostPath: func(HostAccess) error { return nil },
	}
	for _, f := range change {
		f(&opts)
	}
	var err error
	if r.Manager, err = New(opts); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) prepare(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if err := r.Prepare(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// path returns where a volume is, as a container without a subPath gets it.
func (r *rig) path(t *testing.T, pod *corev1.Pod, volume string) string {
	t.Helper()
	path, _, err := r.HostPath(pod, &corev1.VolumeMount{Name: volume})
	if err != nil {
		t.Fatal(err)
	}
	return path
}
