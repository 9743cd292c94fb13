package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote/internal/wire"
	pb "github.com/virtual-kubelet/virtual-kubelet/providers/remote/v1alpha1"
)

// changes has the last status of each pod that the provider reported, in the order of
// the reports. A watch reads from it what it has not sent yet: a slow one misses states
// in between, and costs no memory.
type changes struct {
	epoch string // of this process: tokens of others say nothing

	mu      sync.Mutex
	last    int64 // the number of the last report
	dropped int64 // the highest number of a report that is not kept any more
	swept   time.Time
	pods    map[podKey]*change
	changed chan struct{} // closed with the next report
}

type podKey struct {
	namespace, name string
	uid             types.UID
}

type change struct {
	number int64
	at     time.Time
	pod    *corev1.Pod // name, namespace, UID and status alone; never changed
}

func keyOf(pod *corev1.Pod) podKey { return podKey{pod.Namespace, pod.Name, pod.UID} }

func (c *changes) start() {
	c.epoch, c.pods, c.changed = rand.Text(), map[podKey]*change{}, make(chan struct{})
}

// keepFor is for how long a report is kept for a virtual kubelet that was away. One that has
// missed others gets the list of all pods. sweepInterval is the least time between two looks
// for reports that are older.
const (
	keepFor       = 10 * time.Minute
	sweepInterval = time.Minute
)

// record takes a report of the provider.
func (c *changes) record(pod *corev1.Pod) {
	kept := &corev1.Pod{Status: *pod.Status.DeepCopy()}
	kept.Namespace, kept.Name, kept.UID = pod.Namespace, pod.Name, pod.UID
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	now := time.Now()
	c.pods[keyOf(pod)] = &change{c.last, now, kept}
	if now.Sub(c.swept) >= sweepInterval {
		c.swept = now
		for key, change := range c.pods {
			if now.Sub(change.at) > keepFor {
				c.dropped = max(c.dropped, change.number)
				delete(c.pods, key)
			}
		}
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// lastNumber returns the number of the last report.
func (c *changes) lastNumber() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// after returns the reports that are younger than a number, oldest first, and a channel that
// is closed when there are more. It is not ok if some of them are not kept any more.
func (c *changes) after(number int64) (found []*change, more <-chan struct{}, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if number < c.dropped {
		return nil, nil, false
	}
	for _, change := range c.pods {
		if change.number > number {
			found = append(found, change)
		}
	}
	slices.SortFunc(found, func(a, b *change) int { return int(a.number - b.number) })
	return found, c.changed, true
}

// gone returns the pods, with their last statuses, that have ended by the report of a number,
// and are not in a list that is younger. A virtual kubelet that was away when they ended, and
// to a process before this one, has not seen that.
func (c *changes) gone(listed []*corev1.Pod, number int64) (pods []*corev1.Pod) {
	held := map[podKey]bool{}
	for _, pod := range listed {
		held[keyOf(pod)] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, change := range c.pods {
		phase := change.pod.Status.Phase
		if change.number <= number && !held[key] && (phase == corev1.PodSucceeded || phase == corev1.PodFailed) {
			pods = append(pods, change.pod)
		}
	}
	return pods
}

func (c *changes) token(number int64) string { return c.epoch + "/" + strconv.FormatInt(number, 10) }

// since returns the number that a token of this process has. It is not ok if not all later
// reports are kept.
func (c *changes) since(token string) (number int64, ok bool) {
	epoch, text, _ := strings.Cut(token, "/")
	number, err := strconv.ParseInt(text, 10, 64)
	c.mu.Lock()
	defer c.mu.Unlock()
	return number, err == nil && epoch == c.epoch && number >= c.dropped
}

// WatchPods implements the protocol.
func (s *Server) WatchPods(in *pb.WatchPodsRequest, stream grpc.ServerStreamingServer[pb.WatchPodsResponse]) error {
	if !slices.Contains(s.able, "notify") {
		return wire.ToStatus(fmt.Errorf("this provider is asked with ListPods: %w", errors.ErrUnsupported))
	}
	ctx := stream.Context()
	send := func(pod *corev1.Pod, token string) error {
		status, err := json.Marshal(pod.Status)
		if err != nil {
			return wire.ToStatus(err)
		}
		return stream.Send(&pb.WatchPodsResponse{Pod: refTo(pod), Status: status, ResumeToken: token})
	}
	sent, resumed := s.pods.since(in.GetResumeToken())
	if !resumed {
		sent = s.pods.lastNumber() // a report that comes while the list is read is sent, too
		pods, err := s.getPods(ctx)
		if err != nil {
			return wire.ToStatus(err)
		}
		if slices.Contains(s.able, "pods-by-uid") { // else a later pod of the name might be meant
			pods = slices.Concat(pods, s.pods.gone(pods, sent))
		}
		for _, pod := range pods {
			if err := send(pod, ""); err != nil {
				return err
			}
		}
	}
	if err := stream.Send(&pb.WatchPodsResponse{Synced: true, ResumeToken: s.pods.token(sent)}); err != nil {
		return err
	}
	for {
		found, more, ok := s.pods.after(sent)
		if !ok { // it was too slow, and begins again
			return wire.ToStatus(errdefs.AsUnavailable(fmt.Errorf("the watch has not read for %v, and has missed statuses", keepFor)))
		}
		for _, change := range found {
			if err := send(change.pod, s.pods.token(change.number)); err != nil {
				return err
			}
			sent = change.number
		}
		if len(found) > 0 {
			continue
		}
		select {
		case <-more:
		case <-ctx.Done():
			return wire.ToStatus(context.Cause(ctx))
		case <-s.ctx.Done():
			return wire.ToStatus(errEnds)
		}
	}
}

// errEnds ends the watches of a server that ends.
var errEnds = errdefs.AsUnavailable(errors.New("the provider ends"))

// nodeState is the node with all that the provider has reported.
type nodeState struct {
	mu      sync.Mutex
	node    *corev1.Node // never changed
	changed chan struct{}
}

// update takes a report of the provider.
func (n *nodeState) update(reported *corev1.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.node = n.node.DeepCopy()
	node.OverlayNode(n.node, reported.DeepCopy())
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *nodeState) now() (*corev1.Node, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.node, n.changed
}

// WatchNode implements the protocol.
func (s *Server) WatchNode(_ *pb.WatchNodeRequest, stream grpc.ServerStreamingServer[pb.WatchNodeResponse]) error {
	for {
		current, changed := s.node.now()
		data, err := json.Marshal(current)
		if err != nil {
			return wire.ToStatus(err)
		}
		if err := stream.Send(&pb.WatchNodeResponse{Node: data}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return wire.ToStatus(context.Cause(stream.Context()))
		case <-s.ctx.Done():
			return wire.ToStatus(errEnds)
		}
	}
}
