//go:build containers

package cri

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/test/containerd"
)

// recordingRunc stands for runc on a machine without systemd. It writes down in which
// control group each container is asked for, and whether systemd is to make it, and
// has runc make a directory for it instead. %[1]s is the record, %[2]s the directory.
const recordingRunc = `#!/bin/sh
systemd=no bundle= last=
for arg do
	shift
	case $arg in
	--systemd-cgroup) systemd=yes; continue ;;
	esac
	[ "$last" != --bundle ] || bundle=$arg
	last=$arg
	set -- "$@" "$arg"
done
if [ -n "$bundle" ]; then
	sed -n "s/.*\"cgroupsPath\":\"\([^\"]*\)\".*/$systemd \1/p" "$bundle/config.json" >>%[1]s
	sed -i 's|"cgroupsPath":"\([^":]*\):[^":]*:\([^":]*\)"|"cgroupsPath":"%[2]s/\1/\2"|' "$bundle/config.json"
fi
exec runc "$@"
`

// A containerd with SystemdCgroup = true, which says so when it is asked for its cgroup
// driver, accepts the parents that it is sent, and has pods and their containers made in
// the slices of a kubelet.
func TestContainerdMakesSlicesOfSystemd(t *testing.T) {
	group := fmt.Sprintf("/test-cri-systemd-%d", os.Getpid())
	t.Cleanup(func() { removeGroups(t, group) })
	bin, dir := filepath.Join("..", "..", "bin"), t.TempDir()
	recorded := filepath.Join(dir, "recorded")
	runc := filepath.Join(dir, "runc")
	if err := os.WriteFile(runc, fmt.Appendf(nil, recordingRunc, recorded, group), 0o755); err != nil {
		t.Fatal(err)
	}
	starting, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := containerd.Start(starting, containerd.Options{
		Binary:        filepath.Join(bin, "containerd-up"),
		SandboxImage:  pauseImage,
		Images:        []string{filepath.Join(bin, "conformance", "images.tar")},
		Runc:          runc,
		SystemdCgroup: true,
		Log:           t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})

	p := newTestProvider(t, c.Dir(), answeringSystemd(t, c.Endpoint()))
	pods := map[string]*corev1.Pod{ // by what they must be in
		"vkpods-pod%s.slice":            podAsking("guaranteed", corev1.ResourceRequirements{Requests: someResources, Limits: someResources}),
		"vkpods-burstable-pod%s.slice":  podAsking("burstable", corev1.ResourceRequirements{Requests: someResources}),
		"vkpods-besteffort-pod%s.slice": podAsking("besteffort", corev1.ResourceRequirements{}),
	}
	for slice, pod := range pods {
		if err := p.CreatePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		waitFor(t, pod.Name+" runs", func() bool {
			status, err := p.GetPodStatus(t.Context(), pod.Namespace, pod.Name)
			return err == nil && status.Phase == corev1.PodRunning
		})
		slice = fmt.Sprintf(slice, strings.ReplaceAll(string(pod.UID), "-", "_"))
		content, err := os.ReadFile(recorded)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(content), "yes "+slice+":cri-containerd:"); n != 2 {
			t.Errorf("of %s, %d are in %s, want its sandbox and its container:\n%s", pod.Name, n, slice, content)
		}
	}
	for _, pod := range pods {
		if err := p.DeletePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "all pods are gone", func() bool {
		left, err := p.GetPods(t.Context())
		return err == nil && len(left) == 0
	})
}

const pauseImage = "localhost/pause:latest"

var someResources = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")}

func podAsking(name string, resources corev1.ResourceRequirements) *corev1.Pod {
	no, now := false, int64(0)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name + "-0a1b-2c3d"), DeletionGracePeriodSeconds: &now},
		Spec: corev1.PodSpec{
			EnableServiceLinks:            &no,
			TerminationGracePeriodSeconds: &now,
			DNSPolicy:                     corev1.DNSDefault,
			RestartPolicy:                 corev1.RestartPolicyAlways,
			Containers:                    []corev1.Container{{Name: "main", Image: pauseImage, ImagePullPolicy: corev1.PullNever, Resources: resources}},
		},
	}
}

// newTestProvider makes a provider of a runtime with the default configuration, but for
// where its files are.
func newTestProvider(t *testing.T, dir, endpoint string) *Provider {
	t.Helper()
	cfg, err := ParseConfig(nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Endpoint = endpoint
	cfg.Root = filepath.Join(dir, "pods") // unmounted and removed with the rest
	cfg.LogRoot = filepath.Join(dir, "logs")
	cfg.EvictionHard = map[string]string{} // regardless of the free space of the machine's disk
	p, err := New(t.Context(), testNode(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// answeringSystemd serves the runtime at an endpoint, and answers RuntimeConfig for it, as
// containerd does from 2.0 on.
func answeringSystemd(t *testing.T, endpoint string) string {
	t.Helper()
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{})))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := proto.Marshal(&runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_SYSTEMD}})
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "runtime.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodec(rawCodec{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		var request, response []byte
		if err := stream.RecvMsg(&request); err != nil {
			return err
		}
		method, _ := grpc.MethodFromServerStream(stream)
		if method == runtimeapi.RuntimeService_RuntimeConfig_FullMethodName {
			response = answer
		} else if err := conn.Invoke(stream.Context(), method, &request, &response); err != nil {
			return err
		}
		return stream.SendMsg(&response)
	}))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		<-served
		_ = conn.Close()
	})
	return "unix://" + socket
}

// rawCodec passes messages on as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func (rawCodec) Name() string { return "raw" }

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// removeGroups removes the directories that the runtime has left of a control group.
func removeGroups(t *testing.T, group string) {
	tops, err := filepath.Glob("/sys/fs/cgroup/*" + group)
	if err != nil {
		t.Fatal(err)
	}
	for _, top := range append(tops, "/sys/fs/cgroup"+group) {
		var found []string
		_ = filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				found = append(found, path)
			}
			return nil // there may be none
		})
		for _, path := range slices.Backward(found) {
			_ = os.Remove(path)
		}
	}
}
