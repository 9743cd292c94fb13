//go:build containers

package deploy

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"
)

// sight is what must not change of a pod while others take over.
type sight struct {
	home, remote types.UID
	containerID  string // as its status has it at home
	restarts     int32
	host         string   // the node that it runs on
	containers   []string // of containerd, those that have ended too
}

func (s sight) equal(other sight) bool {
	return s.home == other.home && s.remote == other.remote && s.containerID == other.containerID &&
		s.restarts == other.restarts && s.host == other.host && slices.Equal(s.containers, other.containers)
}

// look is what can be seen of the pod hello.
func (w *world) look(t *testing.T) sight {
	t.Helper()
	home, err := w.home.client.CoreV1().Pods("default").Get(t.Context(), "hello", metav1.GetOptions{})
	must(t, err)
	remote, err := w.client.CoreV1().Pods(remoteNamespace).Get(t.Context(), "hello", metav1.GetOptions{})
	must(t, err)
	return sight{
		home: home.UID, remote: remote.UID,
		containerID: home.Status.ContainerStatuses[0].ContainerID,
		restarts:    home.Status.ContainerStatuses[0].RestartCount,
		host:        remote.Spec.NodeName,
		containers:  w.containersOf(t, "hello"),
	}
}

// containersOf are the IDs of containerd's containers of pods with that name.
func (w *world) containersOf(t *testing.T, pod string) (ids []string) {
	t.Helper()
	list, err := runtimeapi.NewRuntimeServiceClient(w.dial(t)).ListContainers(t.Context(), &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{LabelSelector: map[string]string{kubelettypes.KubernetesPodNameLabel: pod}},
	})
	must(t, err)
	for _, c := range list.Containers {
		ids = append(ids, c.Id)
	}
	slices.Sort(ids)
	return ids
}

// image is the name of an image that is there, by a part of it.
func (w *world) image(t *testing.T, part string) string {
	t.Helper()
	list, err := runtimeapi.NewImageServiceClient(w.dial(t)).ListImages(t.Context(), &runtimeapi.ListImagesRequest{})
	must(t, err)
	for _, i := range list.Images {
		for _, tag := range i.RepoTags {
			if strings.Contains(tag, part) {
				return tag
			}
		}
	}
	t.Fatalf("there is no %s in %v: run \"make images\"", part, list.Images)
	return ""
}

// dial connects to containerd until the test ends.
func (w *world) dial(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(w.containerd.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
