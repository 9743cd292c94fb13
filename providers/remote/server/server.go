package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/providercalls"
	"github.com/virtual-kubelet/virtual-kubelet/internal/turns"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote/internal/wire"
	pb "github.com/virtual-kubelet/virtual-kubelet/providers/remote/v1alpha1"
	"github.com/virtual-kubelet/virtual-kubelet/trace"
)

// Options say what a Server reports of its provider.
type Options struct {
	// Name and Version are those of the provider, for logs and the node's labels.
	Name, Version string
	// Node is the node as the provider has made it (see nodeutil.ProviderConfig). A virtual
	// kubelet for a node of another name is refused, unless it has none.
	Node *corev1.Node
}

// Server answers virtual kubelets for a provider. Its methods may be called concurrently.
type Server struct {
	pb.UnimplementedProviderServer

	ctx        context.Context // ends the watches
	opts       Options
	provider   nodeutil.Provider
	able       []string
	byUID      node.PodUIDLifecycleHandler // nil without
	taker      VolumeTaker                 // nil without
	logStreams logStreamer                 // nil without
	ping       func(context.Context) error
	pods       changes
	node       nodeState
	cluster    cluster
	turns      turns.Turns // of pods, by namespace and name
	created    creations
	listed     atomic.Bool // GetPods was called
}

// capabilityNode is the name of what a node.NodeProvider can do.
const capabilityNode = "node-status"

// New returns the server for a provider. The provider's notifications are taken, and watches
// last, until ctx ends. A nil NodeProvider means that the node is always well.
func New(ctx context.Context, provider nodeutil.Provider, nodeProvider node.NodeProvider, opts Options) *Server {
	s := &Server{ctx: ctx, opts: opts, provider: provider, able: nodeutil.Capabilities(provider)}
	s.able = slices.DeleteFunc(s.able, func(c string) bool { return c == capabilityNode }) // it is nodeProvider's
	s.byUID, _ = unwrapped(provider).(node.PodUIDLifecycleHandler)
	if s.taker = takerOf(unwrapped(provider)); s.taker != nil {
		s.able = append(s.able, capabilityVolumes)
		if takesPullSecrets(s.taker) {
			s.able = append(s.able, capabilityPullSecrets)
		}
	}
	if streams, ok := unwrapped(provider).(logStreamer); ok && !lacks(provider, capabilityLogStreams) {
		s.logStreams, s.able = streams, append(s.able, capabilityLogStreams)
	}
	s.ping = func(ctx context.Context) error { return ctx.Err() }
	s.node.node, s.node.changed = cmp.Or(opts.Node, &corev1.Node{}).DeepCopy(), make(chan struct{})
	if nodeProvider != nil {
		s.able = append(s.able, capabilityNode)
		s.ping = nodeProvider.Ping
		nodeProvider.NotifyNodeStatus(ctx, s.node.update)
	}
	s.pods.start()
	if notifier, ok := unwrapped(provider).(node.PodNotifier); ok {
		notifier.NotifyPods(ctx, s.pods.record)
	}
	s.cluster.restore(ctx, provider, s.getPods) // may be the first call beside NotifyPods
	return s
}

// capabilityLogStreams is that of a provider which is a logStreamer.
const capabilityLogStreams = "log-streams"

func lacks(provider nodeutil.Provider, capability string) bool {
	limited, ok := unwrapped(provider).(nodeutil.Limited)
	return ok && limited.Lacks(capability)
}

// unwrapped is what nodeutil.AsProvider was given, which has the optional interfaces.
func unwrapped(p nodeutil.Provider) any {
	if partial, ok := p.(interface {
		Unwrap() node.PodLifecycleHandler
	}); ok {
		return partial.Unwrap()
	}
	return p
}

// Register adds the server to a gRPC server, which has to have been made with
// ServerOptions.
func (s *Server) Register(to grpc.ServiceRegistrar) { pb.RegisterProviderServer(to, s) }

// ServerOptions are what a gRPC server for the Server needs: the limit of messages, pings to and of
// quiet clients, errors for panics of the provider, the refusal of other nodes, and spans that belong to
// those of the virtual kubelet (package trace).
func (s *Server) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(s.interceptCall), grpc.ChainStreamInterceptor(s.interceptStream),
		// What a virtual kubelet that is gone without a word has begun is to end: the default is
		// two hours.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.MaxRecvMsgSize(wire.MaxMessage), grpc.MaxSendMsgSize(wire.MaxMessage),
		grpc.ConnectionTimeout(20 * time.Second),
	}
}

// GetInfo implements the protocol, as the other methods do.
func (s *Server) GetInfo(ctx context.Context, in *pb.GetInfoRequest) (*pb.GetInfoResponse, error) {
	err := s.isFor(in.GetNodeName())
	if err == nil {
		err = s.isOf(ctx)
	}
	if err != nil && !errdefs.IsUnavailable(err) {
		err = errdefs.AsPermanent(err)
	}
	if err != nil {
		return nil, wire.ToStatus(err)
	}
	return &pb.GetInfoResponse{Name: s.opts.Name, Version: s.opts.Version, Capabilities: s.able}, nil
}

// isFor returns an error if the provider runs the pods of another node.
func (s *Server) isFor(node string) error {
	if s.opts.Node != nil && s.opts.Node.Name != "" && node != s.opts.Node.Name {
		return fmt.Errorf("this provider runs the pods of node %q, not of %q", s.opts.Node.Name, node)
	}
	return nil
}

// Ping implements the protocol.
func (s *Server) Ping(ctx context.Context, _ *pb.PingRequest) (*pb.PingResponse, error) {
	return &pb.PingResponse{}, wire.ToStatus(s.ping(ctx))
}

// CreatePod implements the protocol. A creation whose connection broke may be under way still
// when it comes again, which GetPod did not show: if it succeeds meanwhile, that was it.
func (s *Server) CreatePod(ctx context.Context, in *pb.CreatePodRequest) (*pb.CreatePodResponse, error) {
	pod, err := decodePod(in.GetPod())
	if err != nil {
		return nil, wire.ToStatus(err)
	}
	create, err := s.creation(pod, in.GetVolumes())
	if err != nil {
		return nil, wire.ToStatus(err)
	}
	came := s.created.now()
	done, err := s.turn(ctx, pod.Namespace, pod.Name)
	if err != nil {
		return nil, wire.ToStatus(err)
	}
	defer done()
	if !s.created.since(came, pod) {
		call, returned := s.lasting(ctx)
		defer returned()
		if err := create(call, pod); err != nil {
			return nil, wire.ToStatus(err)
		}
		s.created.record(pod)
	}
	return &pb.CreatePodResponse{}, nil
}

// UpdatePod implements the protocol.
func (s *Server) UpdatePod(ctx context.Context, in *pb.UpdatePodRequest) (*pb.UpdatePodResponse, error) {
	return &pb.UpdatePodResponse{}, wire.ToStatus(s.change(ctx, in.GetPod(), s.provider.UpdatePod))
}

// DeletePod implements the protocol.
func (s *Server) DeletePod(ctx context.Context, in *pb.DeletePodRequest) (*pb.DeletePodResponse, error) {
	return &pb.DeletePodResponse{}, wire.ToStatus(s.change(ctx, in.GetPod(), s.provider.DeletePod))
}

// change calls a method of the provider that changes a pod.
func (s *Server) change(ctx context.Context, data []byte, call func(context.Context, *corev1.Pod) error) error {
	pod, err := decodePod(data)
	if err != nil {
		return err
	}
	done, err := s.turn(ctx, pod.Namespace, pod.Name)
	if err != nil {
		return err
	}
	defer done()
	lasting, returned := s.lasting(ctx)
	defer returned()
	return call(lasting, pod)
}

// lasting returns the context of a provider's call that ends with ctx while the call runs, and then with the server (see
// node.PodLifecycleHandler). returned is to be called when the call has.
func (s *Server) lasting(ctx context.Context) (_ context.Context, returned func() bool) {
	call := providercalls.NewLasting(ctx, s.ctx)
	return call, context.AfterFunc(ctx, func() { call.End(context.Cause(ctx)) })
}

// getPods calls GetPods, the first time with a context that goes on.
func (s *Server) getPods(ctx context.Context) ([]*corev1.Pod, error) {
	if s.listed.CompareAndSwap(false, true) {
		call, returned := s.lasting(ctx)
		defer returned()
		context.AfterFunc(s.ctx, func() { _ = call.Err() }) // also for those that keep its channel alone
		ctx = call
	}
	return s.provider.GetPods(ctx)
}

// turn waits until no other call changes the pod: one whose connection has broken may
// still be under way when it comes again.
func (s *Server) turn(ctx context.Context, namespace, name string) (done func(), err error) {
	if done, err = s.turns.Take(ctx, namespace+"/"+name); err != nil {
		return nil, errdefs.AsUnavailable(fmt.Errorf("another call for the pod is under way: %w", err))
	}
	if err := ctx.Err(); err != nil { // a later call may have had its turn: what this one wants is over
		done()
		return nil, err
	}
	return done, nil
}

// interceptCall refuses calls for other nodes, and makes an error of a panic of the provider,
// which would end the process.
func (s *Server) interceptCall(ctx context.Context, in any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (out any, err error) {
	defer recovered(ctx, info.FullMethod, &err)
	if info.FullMethod != pb.Provider_GetInfo_FullMethodName { // which refuses for good
		if err := s.checkCaller(ctx); err != nil {
			return nil, err
		}
	}
	ctx, span := trace.StartSpan(wire.TraceOf(ctx), path.Base(info.FullMethod))
	defer span.End()
	out, err = handler(ctx, in)
	span.SetStatus(err)
	return out, err
}

func (s *Server) interceptStream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer recovered(stream.Context(), info.FullMethod, &err)
	if err := s.checkCaller(stream.Context()); err != nil {
		return err
	}
	return handler(service, traced{stream, wire.TraceOf(stream.Context())})
}

// traced is a stream whose context knows the caller's span.
type traced struct {
	grpc.ServerStream
	ctx context.Context
}

func (t traced) Context() context.Context { return t.ctx }

// checkCaller refuses a virtual kubelet for another node, which may have met another provider
// at this address. It is to lose no pod by that: nothing is NOT_FOUND.
func (s *Server) checkCaller(ctx context.Context) error {
	for _, name := range metadata.ValueFromIncomingContext(ctx, wire.NodeKey) {
		if err := s.isFor(name); err != nil {
			return wire.ToStatus(errdefs.AsUnavailable(err))
		}
	}
	return wire.ToStatus(errdefs.AsUnavailable(s.isOf(ctx)))
}

func recovered(ctx context.Context, method string, err *error) {
	if r := recover(); r != nil {
		*err = wire.ToStatus(providercalls.Panicked(ctx, method, r))
	}
}

// GetPod implements the protocol.
func (s *Server) GetPod(ctx context.Context, in *pb.GetPodRequest) (*pb.GetPodResponse, error) {
	ref := in.GetPod()
	pod, err := s.get(ctx, ref.GetNamespace(), ref.GetName(), types.UID(ref.GetUid()))
	if err != nil {
		return nil, wire.ToStatus(err)
	}
	data, err := json.Marshal(pod)
	return &pb.GetPodResponse{Pod: data}, wire.ToStatus(err)
}

// get returns a pod with its status, or an error of class NotFound. A status that cannot be
// had is no reason to show no pod, if the pod has one.
func (s *Server) get(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error) {
	var pod *corev1.Pod
	var status *corev1.PodStatus
	var err, noStatus error
	if s.byUID != nil && uid != "" {
		if pod, err = s.byUID.GetPodByUID(ctx, namespace, name, uid); err == nil && pod != nil {
			status, noStatus = s.byUID.GetPodStatusByUID(ctx, namespace, name, uid)
		}
	} else if pod, err = s.provider.GetPod(ctx, namespace, name); err == nil && pod != nil {
		status, noStatus = s.provider.GetPodStatus(ctx, namespace, name)
	}
	switch {
	case err != nil:
		return nil, err
	case pod == nil || uid != "" && pod.UID != "" && pod.UID != uid:
		return nil, errdefs.NotFoundf("pod %s/%s is not held", namespace, name)
	case noStatus != nil && (pod.Status.Phase == "" || errdefs.IsOnlyNotFound(noStatus)):
		return nil, noStatus
	case status != nil:
		pod = pod.DeepCopy()
		pod.Status = *status
	}
	return pod, nil
}

// pageBytes is the size in bytes after which a page of ListPods ends.
const pageBytes = 1 << 20

// ListPods implements the protocol.
func (s *Server) ListPods(_ *pb.ListPodsRequest, stream grpc.ServerStreamingServer[pb.ListPodsResponse]) error {
	pods, err := s.getPods(stream.Context())
	if err != nil {
		return wire.ToStatus(err)
	}
	page, size := &pb.ListPodsResponse{}, 0
	for _, pod := range pods {
		data, err := json.Marshal(pod)
		if err != nil {
			return wire.ToStatus(err)
		}
		if size += len(data); size > pageBytes && len(page.Pods) > 0 {
			if err := stream.Send(page); err != nil {
				return err
			}
			page, size = &pb.ListPodsResponse{}, len(data)
		}
		page.Pods = append(page.Pods, data)
	}
	return stream.Send(page)
}

func decodePod(data []byte) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := json.Unmarshal(data, pod); err != nil {
		return nil, errdefs.InvalidInputf("the pod cannot be read: %w", err)
	}
	if pod.Namespace == "" || pod.Name == "" {
		return nil, errdefs.InvalidInput("the pod has no name or no namespace")
	}
	return pod, checkNames(pod)
}

// checkNames refuses names that lead elsewhere as a part of a path. No API server has accepted them, but
// providers make files and directories by them.
func checkNames(pod *corev1.Pod) error {
	names := []string{pod.Namespace, pod.Name, string(pod.UID)}
	for i := range pod.Spec.Volumes {
		names = append(names, pod.Spec.Volumes[i].Name)
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			names = append(names, containers[i].Name)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		names = append(names, pod.Spec.EphemeralContainers[i].Name)
	}
	for _, name := range names {
		if wrong := content.IsPathSegmentName(name); len(wrong) > 0 {
			return errdefs.InvalidInputf("%q cannot be the name of a pod, or of what is in it: it %s", name, strings.Join(wrong, ", "))
		}
	}
	return nil
}

func refTo(pod *corev1.Pod) *pb.PodRef {
	return &pb.PodRef{Namespace: pod.Namespace, Name: pod.Name, Uid: string(pod.UID)}
}
