package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote/internal/wire"
	pb "github.com/virtual-kubelet/virtual-kubelet/providers/remote/v1alpha1"
)

// watcher implements node.PodNotifier.
type watcher struct{ p *Provider }

// NotifyPods implements node.PodNotifier.
func (w watcher) NotifyPods(ctx context.Context, notify func(*corev1.Pod)) {
	var token string
	odd := rate.Sometimes{First: 10, Interval: time.Minute} // a provider may send any number of them
	// It ends with ctx.
	go w.p.again(ctx, "statuses of pods", func(ctx context.Context) error {
		stream, err := w.p.client.WatchPods(ctx, &pb.WatchPodsRequest{ResumeToken: token}, grpc.WaitForReady(true))
		if err != nil {
			return err
		}
		for {
			in, err := stream.Recv()
			if err != nil {
				return err
			}
			if ref := in.GetPod(); ref != nil {
				pod := &corev1.Pod{}
				pod.Namespace, pod.Name, pod.UID = ref.GetNamespace(), ref.GetName(), types.UID(ref.GetUid())
				if err := json.Unmarshal(in.GetStatus(), &pod.Status); err != nil || pod.Namespace == "" || pod.Name == "" {
					// One status that makes no sense does not keep the others from coming.
					odd.Do(func() {
						log.G(ctx).WithFields(log.Fields{"namespace": pod.Namespace, "pod": pod.Name}).WithError(err).Warn("The provider sent a status that cannot be read")
					})
				} else {
					notify(pod)
				}
			}
			if in.GetResumeToken() != "" {
				token = in.GetResumeToken()
			}
		}
	})
}

// NotifyNodeStatus implements node.NodeProvider.
func (p *Provider) NotifyNodeStatus(ctx context.Context, notify func(*corev1.Node)) {
	// It ends with ctx.
	go p.again(ctx, "changes of the node", func(ctx context.Context) error {
		info, err := p.client.GetInfo(ctx, &pb.GetInfoRequest{NodeName: p.base.Name}, grpc.WaitForReady(true))
		if err != nil {
			return err
		}
		if !slices.Equal(slices.Sorted(slices.Values(info.GetCapabilities())), slices.Sorted(slices.Values(p.able))) {
			log.G(ctx).WithFields(log.Fields{"before": p.able, "now": info.GetCapabilities()}).Warn("The provider can do something else than at the start: restart the virtual kubelet, which goes by that")
		}
		p.volumes.sendAgain()
		stream, err := p.client.WatchNode(ctx, &pb.WatchNodeRequest{})
		if err != nil {
			return err
		}
		for {
			n, err := receiveNode(stream)
			if err != nil {
				return err
			}
			if !p.Lacks("node-status") {
				notify(p.ours(n))
			}
		}
	})
}

func receiveNode(stream grpc.ServerStreamingClient[pb.WatchNodeResponse]) (*corev1.Node, error) {
	in, err := stream.Recv()
	if err != nil {
		return nil, wire.FromStatus(err)
	}
	n := &corev1.Node{}
	if err := json.Unmarshal(in.GetNode(), n); err != nil {
		return nil, fmt.Errorf("the provider sent a node that cannot be read: %w", err)
	}
	return n, nil
}

// The delays between two attempts of a watch.
const (
	firstDelay   = 100 * time.Millisecond
	longestDelay = 15 * time.Second
)

// again runs a watch until ctx ends, with delays that grow while it does not last.
func (p *Provider) again(ctx context.Context, what string, watch func(ctx context.Context) error) {
	delay := firstDelay
	for {
		began := time.Now()
		err := wire.FromStatus(watch(ctx))
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > longestDelay {
			delay = firstDelay
		}
		log.G(ctx).WithField("retryAfter", delay.String()).WithError(err).Warnf("The provider sends no %s", what)
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return
		}
		delay = min(2*delay, longestDelay)
	}
}
