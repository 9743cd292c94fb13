package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/providercalls"
	"github.com/virtual-kubelet/virtual-kubelet/internal/turns"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote/internal/wire"
	pb "github.com/virtual-kubelet/virtual-kubelet/providers/remote/v1alpha1"
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

	opts     Options
	provider nodeutil.Provider
	able     []string
	byUID    node.PodUIDLifecycleHandler // nil without
	ping     func(context.Context) error
	pods     changes
	node     nodeState
	turns    turns.Turns // of pods, by namespace and name
}

// New returns the server for a provider. The provider's notifications are taken until ctx
// ends. A nil NodeProvider means that the node is always well.
func New(ctx context.Context, provider nodeutil.Provider, nodeProvider node.NodeProvider, opts Options) *Server {
	s := &Server{opts: opts, provider: provider, able: nodeutil.Capabilities(provider)}
	s.byUID, _ = unwrapped(provider).(node.PodUIDLifecycleHandler)
	s.ping = func(ctx context.Context) error { return ctx.Err() }
	s.node.changed = make(chan struct{})
	if nodeProvider != nil {
		s.ping = nodeProvider.Ping
		nodeProvider.NotifyNodeStatus(ctx, s.node.update)
	}
	s.pods.start()
	if notifier, ok := unwrapped(provider).(node.PodNotifier); ok {
		notifier.NotifyPods(ctx, s.pods.record)
	}
	return s
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

// Register adds the server to a gRPC server, which should have been made with
// ServerOptions.
func (s *Server) Register(to grpc.ServiceRegistrar) { pb.RegisterProviderServer(to, s) }

// ServerOptions are what a gRPC server for a Server needs: limits of messages, and of
// streams per connection.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(recoverCall), grpc.ChainStreamInterceptor(recoverStream),
		grpc.MaxRecvMsgSize(wire.MaxMessage), grpc.MaxSendMsgSize(wire.MaxMessage),
		grpc.MaxConcurrentStreams(4096), grpc.ConnectionTimeout(20 * time.Second),
	}
}

// GetInfo implements the protocol, as the other methods do.
func (s *Server) GetInfo(_ context.Context, in *pb.GetInfoRequest) (*pb.GetInfoResponse, error) {
	if s.opts.Node != nil && s.opts.Node.Name != "" && in.GetNodeName() != s.opts.Node.Name {
		return nil, wire.ToStatus(errdefs.AsPermanent(fmt.Errorf("this provider runs the pods of node %q, not of %q", s.opts.Node.Name, in.GetNodeName())))
	}
	return &pb.GetInfoResponse{Name: s.opts.Name, Version: s.opts.Version, Capabilities: s.able}, nil
}

// Ping implements the protocol.
func (s *Server) Ping(ctx context.Context, _ *pb.PingRequest) (*pb.PingResponse, error) {
	return &pb.PingResponse{}, wire.ToStatus(s.ping(ctx))
}

// CreatePod implements the protocol: a pod that the provider has already is not created
// again.
func (s *Server) CreatePod(ctx context.Context, in *pb.CreatePodRequest) (*pb.CreatePodResponse, error) {
	pod, err := decodePod(in.GetPod())
	if err != nil {
		return nil, wire.ToStatus(err)
	}
	done, err := s.turn(ctx, pod)
	if err != nil {
		return nil, wire.ToStatus(err)
	}
	defer done()
	switch held, err := s.get(ctx, pod.Namespace, pod.Name, pod.UID); {
	case err != nil && !errdefs.IsOnlyNotFound(err):
		return nil, wire.ToStatus(fmt.Errorf("whether the pod is there already: %w", err))
	case err == nil && held != nil && held.UID == pod.UID:
		return &pb.CreatePodResponse{}, nil
	}
	return &pb.CreatePodResponse{}, wire.ToStatus(s.provider.CreatePod(ctx, pod))
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
	done, err := s.turn(ctx, pod)
	if err != nil {
		return err
	}
	defer done()
	return call(ctx, pod)
}

// turn waits until no other call changes the pod: one whose connection has broken may
// still be under way when it comes again.
func (s *Server) turn(ctx context.Context, pod *corev1.Pod) (done func(), err error) {
	if done, err = s.turns.Take(ctx, pod.Namespace+"/"+pod.Name); err != nil {
		return nil, errdefs.AsUnavailable(fmt.Errorf("another call for the pod is under way: %w", err))
	}
	return done, nil
}

// recoverCall makes an error of a panic of the provider, which would end the process.
func recoverCall(ctx context.Context, in any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (out any, err error) {
	defer recovered(ctx, info.FullMethod, &err)
	return handler(ctx, in)
}

func recoverStream(s any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer recovered(stream.Context(), info.FullMethod, &err)
	return handler(s, stream)
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

// get returns a pod with its status, or an error of class NotFound.
func (s *Server) get(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error) {
	var pod *corev1.Pod
	var status *corev1.PodStatus
	var errs [2]error
	if s.byUID != nil && uid != "" {
		if pod, errs[0] = s.byUID.GetPodByUID(ctx, namespace, name, uid); errs[0] == nil && pod != nil {
			status, errs[1] = s.byUID.GetPodStatusByUID(ctx, namespace, name, uid)
		}
	} else if pod, errs[0] = s.provider.GetPod(ctx, namespace, name); errs[0] == nil && pod != nil {
		status, errs[1] = s.provider.GetPodStatus(ctx, namespace, name)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	if pod == nil || uid != "" && pod.UID != "" && pod.UID != uid {
		return nil, errdefs.NotFoundf("pod %s/%s is not held", namespace, name)
	}
	if status != nil {
		pod = pod.DeepCopy()
		pod.Status = *status
	}
	return pod, nil
}

// pageBytes is the size in bytes after which a page of ListPods ends.
const pageBytes = 1 << 20

// ListPods implements the protocol.
func (s *Server) ListPods(_ *pb.ListPodsRequest, stream grpc.ServerStreamingServer[pb.ListPodsResponse]) error {
	pods, err := s.list(stream.Context())
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

// list returns the provider's pods, and lets go of what was kept of others.
func (s *Server) list(ctx context.Context) ([]*corev1.Pod, error) {
	pods, err := s.provider.GetPods(ctx)
	if err == nil {
		s.pods.prune(pods, time.Now())
	}
	return pods, err
}

func decodePod(data []byte) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := json.Unmarshal(data, pod); err != nil {
		return nil, errdefs.InvalidInputf("the pod cannot be read: %w", err)
	}
	if pod.Namespace == "" || pod.Name == "" {
		return nil, errdefs.InvalidInput("the pod has no name or no namespace")
	}
	return pod, nil
}

func refTo(pod *corev1.Pod) *pb.PodRef {
	return &pb.PodRef{Namespace: pod.Namespace, Name: pod.Name, Uid: string(pod.UID)}
}
