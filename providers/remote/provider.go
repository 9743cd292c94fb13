package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/clusteruid"
	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote/internal/wire"
	pb "github.com/virtual-kubelet/virtual-kubelet/providers/remote/v1alpha1"
)

// Provider hands the pods of a node to a provider that is another process. Make it with
// New.
type Provider struct {
	cfg    Config
	conn   *grpc.ClientConn
	client pb.ProviderClient
	able   []string
	base   *corev1.Node // as it was before the provider had a say

	// Sessions have a connection of their own: many of them keep no other calls waiting.
	sessionConn *grpc.ClientConn
	sessions    pb.ProviderClient

	volumes *volumes // nil for a provider that is not sent them

	closing sync.Once
	closed  error
}

// New reads Config.ClusterUID, connects to a provider, and completes init.Node with what that says of
// its node. It waits until the API server and the provider answer, for each Config.StartTimeout at
// most. The provider that it returns can do what that one says, and is an io.Closer. A connection
// that is lost is made again: calls fail with class Unavailable meanwhile, which makes the node
// NotReady and loses no pod. ctx is for the time of the call.
func New(ctx context.Context, init nodeutil.ProviderConfig, cfg Config) (nodeutil.Provider, node.NodeProvider, error) {
	if err := cfg.Complete(); err != nil {
		return nil, nil, errdefs.InvalidInputf("remote config: %w", err)
	}
	creds, err := cfg.credentials()
	if err != nil {
		return nil, nil, errdefs.InvalidInputf("remote config: %w", err)
	}
	if cfg.ClusterUID == "" {
		if cfg.ClusterUID, err = readClusterUID(ctx, init, cfg.StartTimeout.Duration); err != nil {
			return nil, nil, err
		}
	}
	p := &Provider{cfg: cfg, base: init.Node.DeepCopy()}
	for _, conn := range []**grpc.ClientConn{&p.conn, &p.sessionConn} {
		if *conn, err = grpc.NewClient(cfg.Address, append(dialOptions(init.Node.Name, cfg.ClusterUID), grpc.WithTransportCredentials(creds))...); err != nil {
			return nil, nil, errdefs.InvalidInputf("remote config: address: %w", err)
		}
	}
	p.client, p.sessions = pb.NewProviderClient(p.conn), pb.NewProviderClient(p.sessionConn)
	if err := p.await(ctx, init.Node); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("the provider at %s: %w", cfg.Address, err), p.Close())
	}
	if !p.Lacks(capabilityVolumes) {
		if p.volumes, err = newVolumes(p, init); err != nil {
			return nil, nil, errors.Join(err, p.Close())
		}
	}
	return nodeutil.AsProvider(p.withOptional()), p, nil
}

// await meets the provider. A server that ends in the middle of it is waited for, as one that is not there yet.
func (p *Provider) await(ctx context.Context, n *corev1.Node) error {
	log.G(ctx).WithFields(log.Fields{"address": p.cfg.Address, "timeout": p.cfg.StartTimeout.Duration.String()}).Info("Waiting for the provider")
	ctx, cancel := context.WithTimeout(ctx, p.cfg.StartTimeout.Duration)
	defer cancel()
	var last error // of a server that answered
	for {
		err := p.meet(ctx, n)
		late := ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) // a server may see it first
		switch {
		case err == nil:
			return nil
		case late && last != nil:
			return fmt.Errorf("%w; before: %w", err, last)
		case late || !mayPass(err):
			return err
		}
		if last == nil || last.Error() != err.Error() {
			log.G(ctx).WithError(err).WithField("address", p.cfg.Address).Warn("The provider is not ready yet")
		}
		last = err
		if periodic.Sleep(ctx, readDelay) != nil {
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}

// mayPass reports whether a start that has failed may succeed a little later: the server is ending, or beginning.
func mayPass(err error) bool {
	if strings.Contains(err.Error(), "larger than max") { // a message, in gRPC's words: it has the code of an overload
		return false
	}
	return errdefs.IsUnavailable(err) || errors.Is(err, io.EOF) || errors.Is(err, context.Canceled)
}

// readDelay is how long after a failure the UID of the cluster, or the provider, is asked again.
const readDelay = 2 * time.Second

// readClusterUID returns the UID of the cluster, or nothing without a client or the right to read it.
// An API server that does not answer is waited for, as long as for the provider: without the UID the
// provider may be that of a node of the same name in another cluster, whose pods this one would delete.
func readClusterUID(ctx context.Context, init nodeutil.ProviderConfig, patience time.Duration) (types.UID, error) {
	if init.Client == nil {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	reader := clusteruid.New(init.Client.CoreV1())
	for {
		uid, err := reader.UID(ctx)
		if clusteruid.IsLasting(err) {
			log.G(ctx).WithError(err).Info("The provider does not know which cluster this is, and does not refuse a node of the same name in another one")
			return "", nil
		}
		if err == nil || periodic.Sleep(ctx, readDelay) != nil {
			return uid, err
		}
	}
}

// dialOptions are those of a connection that notices a dead peer, and is made again soon. It
// goes nowhere but to the address, and its calls say for which node, of which cluster, and in which
// trace they are.
func dialOptions(nodeName string, clusterUID types.UID) []grpc.DialOption {
	caller := []string{wire.NodeKey, nodeName}
	if clusterUID != "" {
		caller = append(caller, wire.ClusterKey, string(clusterUID))
	}
	named := func(ctx context.Context) context.Context {
		return wire.WithTrace(metadata.AppendToOutgoingContext(ctx, caller...))
	}
	again := backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 10 * time.Second}
	return []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: 10 * time.Second}),
		// The pings of the node keep a healthy connection busier than that.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(wire.MaxMessage), grpc.MaxCallSendMsgSize(wire.MaxMessage)),
		grpc.WithIdleTimeout(0), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, in, out any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return invoke(named(ctx), method, in, out, cc, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return open(named(ctx), desc, cc, method, opts...)
		}),
	}
}

// meet asks the provider what it can do, and how its node is.
func (p *Provider) meet(ctx context.Context, n *corev1.Node) error {
	info, err := p.client.GetInfo(ctx, &pb.GetInfoRequest{NodeName: n.Name}, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("it does not say what it can do: %w", wire.FromStatus(err))
	}
	p.able = info.GetCapabilities()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := p.client.WatchNode(ctx, &pb.WatchNodeRequest{})
	if err != nil {
		return wire.FromStatus(err)
	}
	far, err := receiveNode(stream)
	if err != nil {
		return fmt.Errorf("it does not say how its node is: %w", err)
	}
	node.OverlayNode(n, p.ours(far))
	log.G(ctx).WithFields(log.Fields{"name": info.GetName(), "version": info.GetVersion(), "address": p.cfg.Address, "capabilities": p.able}).Info("Connected to the provider")
	return nil
}

// ours is the node as the provider sees it, with what this process has put on it: labels,
// annotations, taints and the port. The provider's report is complete.
func (p *Provider) ours(far *corev1.Node) *corev1.Node {
	n := far.DeepCopy()
	n.Name = p.base.Name
	with := func(ours, far map[string]string) map[string]string {
		all := map[string]string{}
		maps.Copy(all, ours)
		maps.Copy(all, far)
		return all
	}
	n.Labels, n.Annotations = with(p.base.Labels, far.Labels), with(p.base.Annotations, far.Annotations)
	n.Spec.Taints = slices.Clone(far.Spec.Taints)
	for _, ours := range p.base.Spec.Taints {
		if !slices.ContainsFunc(far.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&ours) }) {
			n.Spec.Taints = append(n.Spec.Taints, ours)
		}
	}
	if n.Spec.Taints == nil {
		n.Spec.Taints = []corev1.Taint{} // which takes back
	}
	n.Status.DaemonEndpoints = corev1.NodeDaemonEndpoints{}
	return n
}

// withOptional returns p with the methods that the provider has: those which the pod
// controller looks for.
func (p *Provider) withOptional() node.PodLifecycleHandler {
	notifies, byUID := !p.Lacks("notify"), !p.Lacks("pods-by-uid")
	switch {
	case notifies && byUID:
		return struct {
			*Provider
			watcher
			finder
		}{p, watcher{p}, finder{p}}
	case notifies:
		return struct {
			*Provider
			watcher
		}{p, watcher{p}}
	case byUID:
		return struct {
			*Provider
			finder
		}{p, finder{p}}
	default:
		return p
	}
}

// Lacks implements nodeutil.Limited. A nil Provider stands for any: it lacks nothing.
func (p *Provider) Lacks(capability string) bool {
	return p != nil && !slices.Contains(p.able, capability)
}

// Close implements io.Closer. Calls that are under way fail.
func (p *Provider) Close() error {
	p.closing.Do(func() {
		p.volumes.stop()
		p.closed = errors.Join(p.conn.Close(), p.sessionConn.Close())
	})
	return p.closed
}

var _ io.Closer = (*Provider)(nil)

// CreatePod implements node.PodLifecycleHandler.
func (p *Provider) CreatePod(ctx context.Context, pod *corev1.Pod) error {
	data, err := encodeToHold(pod)
	if err != nil {
		return err
	}
	request := &pb.CreatePodRequest{Pod: data}
	created, err := p.volumes.addTo(ctx, request, pod)
	if err != nil {
		return err
	}
	if err = checkSize(request); err == nil {
		_, err = p.client.CreatePod(ctx, request)
	}
	created(err)
	return wire.FromStatus(err)
}

// UpdatePod implements node.PodLifecycleHandler.
func (p *Provider) UpdatePod(ctx context.Context, pod *corev1.Pod) error {
	data, err := encodeToHold(pod)
	if err != nil {
		return err
	}
	_, err = p.client.UpdatePod(ctx, &pb.UpdatePodRequest{Pod: data})
	p.volumes.podChanged(pod)
	return wire.FromStatus(err)
}

// DeletePod implements node.PodLifecycleHandler.
func (p *Provider) DeletePod(ctx context.Context, pod *corev1.Pod) error {
	data, err := encode(pod)
	if err != nil {
		return err
	}
	_, err = p.client.DeletePod(ctx, &pb.DeletePodRequest{Pod: data})
	return wire.FromStatus(err)
}

func encode(pod *corev1.Pod) ([]byte, error) {
	data, err := json.Marshal(pod)
	if err != nil {
		return nil, errdefs.AsPermanent(fmt.Errorf("the pod cannot be sent: %w", err))
	}
	return data, nil
}

// encodeToHold is encode for a pod that the provider is to hold. It has to come back, with its
// status and perhaps in another encoding, in a message: one that does not would fail the list of
// all pods.
func encodeToHold(pod *corev1.Pod) ([]byte, error) {
	data, err := encode(pod)
	if err == nil && len(data) > wire.MaxPod {
		err = tooLarge("the pod with its environment", wire.MaxPod)
	}
	return data, err
}

// GetPod implements node.PodLifecycleHandler.
func (p *Provider) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return p.get(ctx, namespace, name, "")
}

// GetPodStatus implements node.PodLifecycleHandler.
func (p *Provider) GetPodStatus(ctx context.Context, namespace, name string) (*corev1.PodStatus, error) {
	return statusOf(p.get(ctx, namespace, name, ""))
}

// finder implements node.PodUIDLifecycleHandler.
type finder struct{ p *Provider }

// GetPodByUID implements node.PodUIDLifecycleHandler.
func (f finder) GetPodByUID(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error) {
	return f.p.get(ctx, namespace, name, uid)
}

// GetPodStatusByUID implements node.PodUIDLifecycleHandler.
func (f finder) GetPodStatusByUID(ctx context.Context, namespace, name string, uid types.UID) (*corev1.PodStatus, error) {
	return statusOf(f.p.get(ctx, namespace, name, uid))
}

func statusOf(pod *corev1.Pod, err error) (*corev1.PodStatus, error) {
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

func (p *Provider) get(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error) {
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, p.cfg.CallTimeout.Duration)
	defer cancel()
	out, err := p.client.GetPod(ctx, &pb.GetPodRequest{Pod: &pb.PodRef{Namespace: namespace, Name: name, Uid: string(uid)}})
	if err != nil {
		return nil, p.unlessLate(caller, err)
	}
	pod, err := readPod(out.GetPod())
	if err != nil {
		return nil, err
	}
	if pod.Namespace != namespace || pod.Name != name || uid != "" && pod.UID != "" && pod.UID != uid {
		return nil, fmt.Errorf("asked for pod %s/%s, the provider answered with %s/%s", namespace, name, pod.Namespace, pod.Name)
	}
	return pod, nil
}

// GetPods implements node.PodLifecycleHandler.
func (p *Provider) GetPods(ctx context.Context) ([]*corev1.Pod, error) {
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, p.cfg.CallTimeout.Duration)
	defer cancel()
	stream, err := p.client.ListPods(ctx, &pb.ListPodsRequest{})
	if err != nil {
		return nil, wire.FromStatus(err)
	}
	var pods []*corev1.Pod
	size := 0
	for {
		page, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			p.volumes.adopt(pods)
			return pods, nil
		}
		if err != nil {
			return nil, p.unlessLate(caller, err)
		}
		for _, data := range page.GetPods() {
			if size += len(data); size > maxList {
				return nil, fmt.Errorf("the list of the provider's pods has more than %d bytes", maxList)
			}
			pod, err := readPod(data)
			if err != nil {
				return nil, err
			}
			pods = append(pods, pod)
		}
	}
}

// maxList is the size in bytes of the longest list that is read.
const maxList = 1 << 30

// unlessLate returns the error of a call. One that took too long, although its caller would
// have waited, says nothing of a pod.
func (p *Provider) unlessLate(caller context.Context, err error) error {
	if err = wire.FromStatus(err); errors.Is(err, context.DeadlineExceeded) && caller.Err() == nil {
		return errdefs.AsUnavailable(fmt.Errorf("the provider did not answer within %v", p.cfg.CallTimeout.Duration))
	}
	return err
}

// readPod decodes a pod that the provider sent.
func readPod(data []byte) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := json.Unmarshal(data, pod); err != nil {
		return nil, fmt.Errorf("the provider sent a pod that cannot be read: %w", err)
	}
	if pod.Namespace == "" || pod.Name == "" {
		return nil, errors.New("the provider sent a pod without name or namespace")
	}
	return pod, nil
}

// Ping implements node.NodeProvider.
func (p *Provider) Ping(ctx context.Context) error {
	_, err := p.client.Ping(ctx, &pb.PingRequest{})
	return wire.FromStatus(err)
}
