package eci

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/eci/ecitest"
)

func TestMain(m *testing.M) {
	// One of them waits on the real clock, which stands still in a bubble.
	utilruntime.ErrorHandlers = nil
	goleak.VerifyTestMain(m)
}

// rig is a provider on a fake of the API.
type rig struct {
	*podgroup.Provider
	backend *backend
	cfg     Config
	api     *ecitest.Server
	home    *grouptest.Cluster
	// transport connects with the fake without sockets, in virtual time; nil is a socket.
	transport http.RoundTripper
}

func testConfig(endpoint string) Config {
	return Config{
		ClusterName: "home", Region: ecitest.Region, AccessKey: ecitest.AccessKey, SecretKey: ecitest.SecretKey,
		SecurityGroup: "sg-1", VSwitch: "vsw-1", Endpoint: endpoint, UpdateFiles: true,
	}
}

// newRig returns a rig whose groups take step for each stage. Nothing is cached, so
// that changes are visible at once.
func newRig(t *testing.T, step time.Duration, change ...func(*Config)) *rig {
	t.Helper()
	api := ecitest.New(step)
	t.Cleanup(api.Close)
	return newRigOn(t, api, change...)
}

// inVirtualTime runs a test in a bubble of synctest.
func inVirtualTime(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newVirtualRig(t, 0)) })
}

// newVirtualRig returns a rig for a bubble of synctest, whose groups take step for each stage.
func newVirtualRig(t *testing.T, step time.Duration) *rig {
	t.Helper()
	api := ecitest.On(grouptest.New(step))
	r := &rig{api: api, home: grouptest.NewCluster("here"), transport: grouptest.Serve(t, api).Transport(t)}
	r.Provider = r.newProvider(t, testConfig("http://eci.test"))
	return r
}

func newRigOn(t *testing.T, api *ecitest.Server, change ...func(*Config)) *rig {
	t.Helper()
	r := &rig{api: api, home: grouptest.NewCluster("here")}
	config := testConfig(api.URL)
	config.CacheFor.Duration = time.Nanosecond
	for _, f := range change {
		f(&config)
	}
	r.Provider = r.newProvider(t, config)
	return r
}

// newProvider returns a provider on the fake, and sets the rig's backend.
func (r *rig) newProvider(t *testing.T, config Config) *podgroup.Provider {
	t.Helper()
	if r.transport != nil {
		config.CacheFor.Duration = time.Nanosecond
	}
	r.cfg = config
	b, err := newBackend(config)
	if err != nil {
		t.Fatal(err)
	}
	if r.transport != nil {
		b.client.transport = r.transport
	}
	p, err := b.provider(r.home.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	r.backend = b
	return p
}

// refuse has the fake refuse the next calls of an action.
func (r *rig) refuse(action string, count, status int, code, message string) {
	r.api.Refuse(action, count, &grouptest.Refusal{Status: status, Code: code, Message: message})
}

// key has the provider use other credentials.
func (r *rig) key(id, secret, token Secret) {
	keys, err := newKeys(&Config{AccessKey: id, SecretKey: secret, SecurityToken: token})
	if err != nil {
		panic(err)
	}
	r.backend.client.keys = keys
}

// lists is how often groups were listed: how many pages of statuses were read.
func (r *rig) lists() int { return r.api.Calls("DescribeContainerGroupStatus") }

// create creates a pod in the cache and in the provider.
func (r *rig) create(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	r.home.SetPod(pod)
	if err := r.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if r.transport != nil {
		time.Sleep(time.Millisecond) // beyond CacheFor, in virtual time
	}
	return pod
}

func (r *rig) status(t *testing.T, pod *corev1.Pod) *corev1.PodStatus {
	t.Helper()
	status, err := r.GetPodStatusByUID(t.Context(), pod.Namespace, pod.Name, pod.UID)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

func newPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name),
			CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
		},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyAlways,
			Containers:    []corev1.Container{{Name: "main", Image: "busybox:1"}},
		},
	}
}
