package remote_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote"
	pb "github.com/virtual-kubelet/virtual-kubelet/providers/remote/v1alpha1"
)

// taker is a provider that takes volumes.
type taker struct {
	*plain
	files   sync.Map      // map[string]volume.Files, by the pod's name
	updated chan []string // the volumes of each update
	answers chan struct{} // each update waits for one; nil: none does
}

func newTaker() *taker { return &taker{plain: newPlain(), updated: make(chan []string, 1000)} }

func (k *taker) CreatePodWithVolumes(ctx context.Context, pod *corev1.Pod, volumes map[string]volume.Files) error {
	err := k.CreatePod(ctx, pod)
	if err == nil {
		k.files.Store(pod.Name, volumes)
	}
	return err
}

func (k *taker) UpdateVolumes(ctx context.Context, namespace, name string, uid types.UID, volumes map[string]volume.Files) error {
	held, err := k.GetPod(ctx, namespace, name)
	if err != nil || held == nil || held.UID != uid {
		return errors.Join(err, errdefs.NotFound("there is no such pod"))
	}
	all := map[string]volume.Files{}
	maps.Copy(all, k.of(name))
	maps.Copy(all, volumes)
	k.files.Store(name, all)
	k.updated <- slices.Sorted(maps.Keys(volumes))
	if k.answers != nil {
		<-k.answers
	}
	return nil
}

func (k *taker) of(name string) map[string]volume.Files {
	found, _ := k.files.Load(name)
	files, _ := found.(map[string]volume.Files)
	return files
}

// file is a file of a volume, with its mode.
func (k *taker) file(pod, volume, path string) string {
	f, ok := k.of(pod)[volume][path]
	if !ok {
		return "none"
	}
	return fmt.Sprintf("%s %o", f.Data, f.Mode)
}

// join connects a node of a cluster to a provider, until stop or the end of the test.
func join(t *testing.T, cluster *grouptest.Cluster, address string) (p nodeutil.Provider, np node.NodeProvider, stop func()) {
	t.Helper()
	init := cluster.Config()
	init.Node.Name = theNode.Name
	p, np, err := remote.New(t.Context(), init, remote.Config{Address: address})
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		if err := p.(io.Closer).Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return p, np, stop
}

// podWithVolumes has a volume of each kind that has contents, and one that has none.
func podWithVolumes(name string) *corev1.Pod {
	pod := aPod(name)
	pod.Labels = map[string]string{"color": "blue"}
	mode := int32(0o400)
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}},
		{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "password", DefaultMode: &mode}}},
		{Name: "about", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "color", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['color']"}}}}}},
		{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "deep/token"}}}}}},
		{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
	return pod
}

func clusterWithObjects() *grouptest.Cluster {
	cluster := grouptest.NewCluster("home")
	cluster.SetConfigMap("settings", map[string]string{"speed": "1"})
	cluster.SetSecret("password", corev1.SecretTypeOpaque, map[string][]byte{"word": []byte("sesame")})
	return cluster
}

// What is in volumes comes with a pod's creation, and alone what has changed comes again.
func TestVolumes(t *testing.T) {
	far, cluster := newTaker(), clusterWithObjects()
	p, _, _ := join(t, cluster, serve(t, serverOf(t, far, nil)))
	pod := podWithVolumes("one")
	cluster.SetPod(pod)
	if err := p.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	for want, got := range map[string]string{"1 644": far.file("one", "config", "speed"), "sesame 400": far.file("one", "secret", "word"), "blue 644": far.file("one", "about", "color")} {
		if got != want {
			t.Errorf("a file is %q, want %q", got, want)
		}
	}
	if got := far.file("one", "token", "deep/token"); !strings.HasPrefix(got, "e30.") {
		t.Errorf("the token is %q", got)
	}
	if _, is := far.of("one")["scratch"]; is {
		t.Error("a volume without contents was sent")
	}

	cluster.SetConfigMap("settings", map[string]string{"speed": "2"})
	if got := <-far.updated; !slices.Equal(got, []string{"config"}) {
		t.Errorf("%v were sent, want the ConfigMap alone", got)
	}
	changed := pod.DeepCopy()
	changed.Labels["color"] = "red"
	cluster.SetPod(changed)
	if err := p.UpdatePod(t.Context(), changed); err != nil {
		t.Error(err)
	}
	if got := <-far.updated; !slices.Equal(got, []string{"about"}) || far.file("one", "about", "color") != "red 644" {
		t.Errorf("%v were sent, and the color is %q", got, far.file("one", "about", "color"))
	}
}

// A pod whose objects are not there is not created, and no failure of its own.
func TestVolumesThatCannotBeRead(t *testing.T) {
	far, cluster := newTaker(), grouptest.NewCluster("home")
	p, _, _ := join(t, cluster, serve(t, serverOf(t, far, nil)))
	err := p.CreatePod(t.Context(), podWithVolumes("one"))
	if err == nil || errdefs.IsPermanent(err) || errdefs.IsNotFound(err) || far.created != 0 ||
		!strings.Contains(err.Error(), `configmap "settings" not found`) || !strings.Contains(err.Error(), `volume "secret"`) {
		t.Errorf("got %v, of class %s", err, errdefs.ClassOf(err))
	}
}

// More than a message takes is an error that says what to do.
func TestVolumesThatAreTooLarge(t *testing.T) {
	far, cluster := newTaker(), grouptest.NewCluster("home")
	p, _, _ := join(t, cluster, serve(t, serverOf(t, far, nil)))
	pod := aPod("one")
	for i := range 17 {
		name := fmt.Sprint("part-", i)
		cluster.SetConfigMap(name, map[string]string{"data": strings.Repeat("x", 1<<20)})
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}})
	}
	if err := p.CreatePod(t.Context(), pod); !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), "make its ConfigMaps and Secrets smaller") {
		t.Errorf("got %v, of class %s", err, errdefs.ClassOf(err))
	}
	pod.Spec.Volumes = pod.Spec.Volumes[:15]
	if err := p.CreatePod(t.Context(), pod); err != nil || len(far.of("one")) != 15 {
		t.Errorf("%d volumes came, %v", len(far.of("one")), err)
	}
}

// After a restart of either side volumes are sent again: the other may have missed a change.
func TestVolumesAfterARestart(t *testing.T) {
	far, cluster := newTaker(), clusterWithObjects()
	socket := filepath.Join(t.TempDir(), "provider.sock")
	s := serverOf(t, far, nil)
	stop := listen(t, s, socket)
	p, _, leave := join(t, cluster, "unix://"+socket)
	pod := podWithVolumes("one")
	cluster.SetPod(pod)
	if err := p.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	leave()
	cluster.SetConfigMap("settings", map[string]string{"speed": "2"})
	p, np, _ := join(t, cluster, "unix://"+socket)
	all := []string{"about", "config", "secret", "token"}
	if _, err := p.GetPods(t.Context()); err != nil { // as the pod controller does
		t.Fatal(err)
	}
	if got := <-far.updated; !slices.Equal(got, all) || far.file("one", "config", "speed") != "2 644" {
		t.Errorf("after a restart of the virtual kubelet %v were sent", got)
	}
	np.NotifyNodeStatus(t.Context(), func(*corev1.Node) {})
	if got := <-far.updated; !slices.Equal(got, all) {
		t.Errorf("with the connection %v were sent", got)
	}
	stop()
	listen(t, s, socket)
	if got := <-far.updated; !slices.Equal(got, all) {
		t.Errorf("after a restart of the provider %v were sent", got)
	}
}

// A provider that begins again while volumes are on their way to it may have lost them.
func TestVolumesOnTheirWayAtARestart(t *testing.T) {
	far, cluster := newTaker(), clusterWithObjects()
	far.answers = make(chan struct{})
	p, np, _ := join(t, cluster, serve(t, serverOf(t, far, node.NaiveNodeProvider{})))
	pod := podWithVolumes("one")
	cluster.SetPod(pod)
	if err := p.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	cluster.SetConfigMap("settings", map[string]string{"speed": "2"})
	if got := <-far.updated; !slices.Equal(got, []string{"config"}) {
		t.Fatalf("%v were sent, want the ConfigMap alone", got)
	}
	connected := make(chan struct{})
	once := sync.OnceFunc(func() { close(connected) })
	np.NotifyNodeStatus(t.Context(), func(*corev1.Node) { once() })
	<-connected // all volumes are to be sent again by now
	close(far.answers)
	if got := <-far.updated; !slices.Equal(got, []string{"about", "config", "secret", "token"}) {
		t.Errorf("%v were sent again", got)
	}
}

// old is a server of the time before volumes: it has no such method, and its own way with them.
type old struct {
	pb.UnimplementedProviderServer
	requests chan *pb.CreatePodRequest
}

func (*old) GetInfo(context.Context, *pb.GetInfoRequest) (*pb.GetInfoResponse, error) {
	return &pb.GetInfoResponse{Name: "old"}, nil
}

func (*old) WatchNode(_ *pb.WatchNodeRequest, stream grpc.ServerStreamingServer[pb.WatchNodeResponse]) error {
	return stream.Send(&pb.WatchNodeResponse{Node: []byte("{}")})
}

func (o *old) CreatePod(_ context.Context, in *pb.CreatePodRequest) (*pb.CreatePodResponse, error) {
	o.requests <- in
	return &pb.CreatePodResponse{}, nil
}

// A server that does not ask for volumes gets none, and no token is made for it.
func TestServersWithoutVolumes(t *testing.T) {
	far := &old{requests: make(chan *pb.CreatePodRequest, 1)}
	socket := filepath.Join(t.TempDir(), "old.sock")
	grpcServer := grpc.NewServer()
	pb.RegisterProviderServer(grpcServer, far)
	serveOn(t, grpcServer, socket)
	cluster := grouptest.NewCluster("home") // without the objects
	p, _, _ := join(t, cluster, "unix://"+socket)
	if err := p.CreatePod(t.Context(), podWithVolumes("one")); err != nil {
		t.Fatal(err)
	}
	if got := <-far.requests; len(got.GetVolumes()) != 0 || cluster.Tokens() != 0 {
		t.Errorf("%d volumes were sent, %d tokens made", len(got.GetVolumes()), cluster.Tokens())
	}
}

// A client of the time before volumes gets an error for pods that have some.
func TestClientsWithoutVolumes(t *testing.T) {
	far := newTaker()
	s := serverOf(t, far, nil)
	create := func(pod *corev1.Pod, volumes ...*pb.Volume) error {
		_, err := s.CreatePod(t.Context(), &pb.CreatePodRequest{Pod: []byte(encoded(t, pod)), Volumes: volumes})
		return err
	}
	if err := create(aPod("plain")); err != nil {
		t.Error(err)
	}
	if err := create(podWithVolumes("one")); err == nil || !strings.Contains(err.Error(), `what is in volume "config"`) {
		t.Errorf("got %v", err)
	}
	escaping := &pb.Volume{Name: "config", Files: []*pb.VolumeFile{{Path: "../../etc/passwd"}}}
	if err := create(podWithVolumes("one"), escaping); err == nil || !strings.Contains(err.Error(), `"../../etc/passwd"`) || far.created != 1 {
		t.Errorf("got %v, and %d pods", err, far.created)
	}
}

// puller is a taker that is given image pull secrets, too.
type puller struct{ *taker }

func (puller) TakesPullSecrets() bool { return true }

// Image pull secrets come with a pod's creation, and again when they change, to a provider that takes
// them alone. Of a Secret that is another one's nothing is sent, and one may be missing.
func TestPullSecrets(t *testing.T) {
	cluster := clusterWithObjects()
	config := func(text string) {
		cluster.SetSecret("registry", corev1.SecretTypeDockerConfigJson, map[string][]byte{corev1.DockerConfigJsonKey: []byte(text), "other": []byte("x")})
	}
	config("1")
	pod := aPod("one")
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "missing"}, {Name: "registry"}}
	cluster.SetPod(pod)
	const name = "imagePullSecrets/registry"

	far := puller{newTaker()}
	p, _, stop := join(t, cluster, serve(t, serverOf(t, far, nil)))
	if err := p.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if got := far.of("one"); len(got) != 1 || len(got[name]) != 1 || string(got[name][corev1.DockerConfigJsonKey].Data) != "1" {
		t.Errorf("%v was sent", got)
	}
	config("2")
	if got := <-far.updated; !slices.Equal(got, []string{name}) || string(far.of("one")[name][corev1.DockerConfigJsonKey].Data) != "2" {
		t.Errorf("%v were sent again", got)
	}
	stop()

	other := newTaker()
	p, _, _ = join(t, cluster, serve(t, serverOf(t, other, nil)))
	if err := p.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if got := other.of("one"); len(got) != 0 {
		t.Errorf("%v was sent to a provider that takes no pull secrets", got)
	}
}
