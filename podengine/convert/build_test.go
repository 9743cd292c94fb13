package convert

import (
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var testNode = Node{Name: "vk", ClusterDomain: "cluster.local", LogRoot: "/logs", SeccompRoot: "/seccomp", MachineMemory: 4 << 30}

// podOf is a pod with a container "app", which edit changes.
func podOf(edit func(pod *corev1.Pod, app *corev1.Container)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "nginx:1"}}},
	}
	if edit != nil {
		edit(pod, &pod.Spec.Containers[0])
	}
	return pod
}

// sandboxOf and containerOf are what must be possible.
func sandboxOf(t *testing.T, n Node, pod *corev1.Pod, o SandboxOptions) *runtimeapi.PodSandboxConfig {
	t.Helper()
	config, err := n.Sandbox(pod, o)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func containerOf(t *testing.T, n Node, pod *corev1.Pod, o ContainerOptions) *runtimeapi.ContainerConfig {
	t.Helper()
	config, err := n.Container(pod, &pod.Spec.Containers[0], o)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// wantJSON compares a message with JSON that says the same; white space does not count.
func wantJSON(t *testing.T, message proto.Message, want string) {
	t.Helper()
	text, err := protojson.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := normal(t, text), normal(t, []byte(want)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func normal(t *testing.T, text []byte) string {
	t.Helper()
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	normal, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(normal)
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if got != want {
		t.Errorf("error %q, want %q", got, want)
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// quantities makes a list from names and values in turn.
func quantities(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

var testUsers = &runtimeapi.UserNamespace{
	Mode: runtimeapi.NamespaceMode_POD,
	Uids: []*runtimeapi.IDMapping{{HostId: 65536, Length: 65536}},
	Gids: []*runtimeapi.IDMapping{{HostId: 131072, Length: 65536}},
}
