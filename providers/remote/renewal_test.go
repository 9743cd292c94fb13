package remote

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	pb "github.com/virtual-kubelet/virtual-kubelet/providers/remote/v1alpha1"
)

// receiver is a server that takes volumes, and fails where fail says so.
type receiver struct {
	pb.ProviderClient
	mu       sync.Mutex
	failed   error
	got      []*pb.UpdateVolumesRequest
	creation chan struct{} // CreatePod waits for it, unless it is nil
	hangs    string        // the pod whose updates hang
}

// fail has calls fail; nil undoes that.
func (r *receiver) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = err
}

func (r *receiver) CreatePod(context.Context, *pb.CreatePodRequest, ...grpc.CallOption) (*pb.CreatePodResponse, error) {
	if r.creation != nil {
		<-r.creation
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return &pb.CreatePodResponse{}, r.failed
}

func (r *receiver) UpdateVolumes(ctx context.Context, in *pb.UpdateVolumesRequest, _ ...grpc.CallOption) (*pb.UpdateVolumesResponse, error) {
	if r.hangs != "" && in.GetPod().GetName() == r.hangs {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, in)
	return &pb.UpdateVolumesResponse{}, r.failed
}

// take returns what has come since the last call.
func (r *receiver) take() []*pb.UpdateVolumesRequest {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	got := r.got
	r.got = nil
	return got
}

// renewing runs a test with a pod that runs, in virtual time.
func renewing(t *testing.T, change func(*nodeutil.ProviderConfig), test func(p *Provider, far *receiver, cluster *grouptest.Cluster, pod *corev1.Pod)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		far, cluster := &receiver{}, grouptest.NewCluster("home")
		cluster.SetConfigMap("settings", map[string]string{"speed": "1"})
		init := cluster.Config()
		if change != nil {
			change(&init)
		}
		p := &Provider{client: far}
		p.cfg.CallTimeout.Duration = time.Minute
		var err error
		if p.volumes, err = newVolumes(p, init); err != nil {
			t.Fatal(err)
		}
		defer p.volumes.stop()
		pod := grouptest.NewPod("one")
		pod.Status.Phase = corev1.PodRunning
		pod.Spec.Volumes = []corev1.Volume{
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}},
			{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}}}}},
		}
		cluster.SetPod(pod)
		test(p, far, cluster, pod)
	})
}

func create(t *testing.T, p *Provider, pod *corev1.Pod) {
	t.Helper()
	if err := p.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// Tokens come before they expire, as long as the pod is there, and nothing is kept of it later.
func TestTokensAreRenewed(t *testing.T) {
	renewing(t, nil, func(p *Provider, far *receiver, cluster *grouptest.Cluster, pod *corev1.Pod) {
		create(t, p, pod)
		for hour := range 3 {
			time.Sleep(time.Hour)
			got := far.take()
			if len(got) == 0 || len(got) > 2 || len(got[0].GetVolumes()) != 1 || got[0].GetVolumes()[0].GetName() != "token" {
				t.Errorf("in hour %d came %v", hour, got)
			}
		}
		cluster.RemovePod(pod)
		time.Sleep(time.Hour)
		if got := far.take(); len(got) != 0 || len(p.volumes.pods) != 0 {
			t.Errorf("%d updates came for a pod that has gone; %d pods are remembered", len(got), len(p.volumes.pods))
		}
	})
}

// A change that the provider does not take is tried again, with one event an hour; a provider
// that is away makes none.
func TestUpdatesThatFail(t *testing.T) {
	renewing(t, nil, func(p *Provider, far *receiver, cluster *grouptest.Cluster, pod *corev1.Pod) {
		create(t, p, pod)
		synctest.Wait()
		far.fail(status.Error(codes.Unavailable, "away"))
		cluster.SetConfigMap("settings", map[string]string{"speed": "2"})
		time.Sleep(10 * time.Minute)
		if got := far.take(); len(got) < 3 || len(cluster.Events.Events) != 0 {
			t.Errorf("there were %d attempts, %d events", len(got), len(cluster.Events.Events))
		}
		far.fail(status.Error(codes.Unknown, "the disk is full"))
		time.Sleep(30 * time.Minute)
		if got := far.take(); len(got) < 3 || len(cluster.Events.Events) != 1 {
			t.Errorf("there were %d attempts, %d events", len(got), len(cluster.Events.Events))
		}
		if event := <-cluster.Events.Events; !strings.Contains(event, "The volumes keep their previous contents: the disk is full") {
			t.Errorf("the event is %q", event)
		}
		far.fail(nil)
		time.Sleep(lastVolumesRetry)
		if got := far.take(); len(got) != 1 {
			t.Errorf("then %d updates came", len(got))
		}
	})
}

// What cannot be read stays as it is, and keeps nothing else from being updated.
func TestVolumeThatCannotBeRead(t *testing.T) {
	renewing(t, nil, func(p *Provider, far *receiver, cluster *grouptest.Cluster, pod *corev1.Pod) {
		create(t, p, pod)
		cluster.FailObject("settings", errors.New("no rights"))
		time.Sleep(time.Hour)
		got := far.take()
		if len(got) == 0 || got[0].GetVolumes()[0].GetName() != "token" {
			t.Errorf("came %v", got)
		}
		if event := <-cluster.Events.Events; !strings.Contains(event, "no rights") {
			t.Errorf("the event is %q", event)
		}
	})
}

// After a creation whose answer was lost, it is not known which contents the provider has.
func TestCreationThatComesAgain(t *testing.T) {
	renewing(t, nil, func(p *Provider, far *receiver, _ *grouptest.Cluster, pod *corev1.Pod) {
		far.fail(status.Error(codes.Unavailable, "the connection broke"))
		if err := p.CreatePod(t.Context(), pod); !errdefs.IsUnavailable(err) {
			t.Errorf("got %v", err)
		}
		far.take()
		far.fail(nil)
		create(t, p, pod)
		if got := far.take(); len(got) != 1 || len(got[0].GetVolumes()) != 2 {
			t.Errorf("came %v", got)
		}
	})
}

// While another process may have the node, nothing is sent.
func TestNothingIsSentWithoutTheNode(t *testing.T) {
	var away atomic.Bool
	renewing(t, func(init *nodeutil.ProviderConfig) { init.MayBegin = func() bool { return !away.Load() } }, func(p *Provider, far *receiver, cluster *grouptest.Cluster, pod *corev1.Pod) {
		create(t, p, pod)
		synctest.Wait()
		away.Store(true)
		cluster.SetConfigMap("settings", map[string]string{"speed": "2"})
		time.Sleep(10 * time.Minute)
		if got := far.take(); len(got) != 0 {
			t.Errorf("came %v", got)
		}
		away.Store(false)
		time.Sleep(lastVolumesRetry)
		if got := far.take(); len(got) != 1 {
			t.Errorf("came %v", got)
		}
	})
}

// While a pod is being created it is sent nothing else, and a provider that hangs in the updates of
// some pods gets those of the others.
func TestPodsDoNotWaitForEachOther(t *testing.T) {
	renewing(t, nil, func(p *Provider, far *receiver, cluster *grouptest.Cluster, pod *corev1.Pod) {
		far.hangs, far.creation = "hanging", make(chan struct{})
		hanging := pod.DeepCopy()
		hanging.Name, hanging.UID = "hanging", "hanging"
		cluster.SetPod(hanging)
		created := make(chan error)
		go func() { created <- p.CreatePod(t.Context(), pod) }()
		synctest.Wait()
		cluster.SetConfigMap("settings", map[string]string{"speed": "2"})
		time.Sleep(10 * time.Minute)
		if got := far.take(); len(got) != 0 {
			t.Errorf("while the pod is created came %v", got)
		}
		close(far.creation)
		if err := <-created; err != nil {
			t.Error(err)
		}
		if got := far.take(); len(got) != 1 || got[0].GetVolumes()[0].GetName() != "config" {
			t.Errorf("then came %v", got)
		}
		cluster.SetConfigMap("settings", map[string]string{"speed": "3"})
		if got := far.take(); len(got) != 1 {
			t.Errorf("while another pod's update hangs came %v", got)
		}
	})
}

// A pod that names a large object many times does not fill the memory, and what fits is sent.
func TestObjectThatIsNamedManyTimes(t *testing.T) {
	renewing(t, nil, func(p *Provider, far *receiver, cluster *grouptest.Cluster, pod *corev1.Pod) {
		create(t, p, pod)
		far.take()
		cluster.SetConfigMap("large", map[string]string{"data": strings.Repeat("x", 1<<20)})
		pod = pod.DeepCopy()
		for i := range 40 {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("large-", i), VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "large"}}}})
		}
		found, _, _, err := p.volumes.read(t.Context(), pod, nil)
		if !errdefs.IsInvalidInput(err) || len(found) > 18 {
			t.Errorf("%d volumes were read, %v", len(found), err)
		}
		cluster.SetPod(pod)
		p.volumes.podChanged(pod)
		time.Sleep(time.Hour)
		sent := 0
		for _, request := range far.take() {
			sent += len(request.GetVolumes())
		}
		if sent < 40 {
			t.Errorf("%d volumes were sent", sent)
		}
	})
}

// Nothing is kept of a pod that could not be created, and may never be.
func TestPodThatIsNeverCreated(t *testing.T) {
	renewing(t, nil, func(p *Provider, _ *receiver, cluster *grouptest.Cluster, pod *corev1.Pod) {
		cluster.FailObject("settings", errors.New("no rights"))
		if err := p.CreatePod(t.Context(), pod); err == nil {
			t.Error("it was created")
		}
		made := cluster.Tokens()
		if _, err := p.volumes.sources.Tokens.Token(t.Context(), pod, "", nil); err != nil || cluster.Tokens() != made+1 {
			t.Errorf("%d tokens were made, %v: the first is remembered", cluster.Tokens(), err)
		}
	})
}
