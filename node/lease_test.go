package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

// countedLeases counts requests, and may have updates hang until they are given
// up.
type countedLeases struct {
	coordinationv1client.LeaseInterface
	mu    sync.Mutex
	seen  []string
	at    []time.Time // of updates
	hangs bool
}

func (c *countedLeases) record(verb string) (hangs bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, verb)
	if verb == "update" {
		c.at = append(c.at, time.Now())
	}
	return c.hangs
}

func (c *countedLeases) hang(hangs bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hangs = hangs
}

// requests returns those so far, and forgets them.
func (c *countedLeases) requests() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.seen
	c.seen = nil
	return seen
}

func (c *countedLeases) Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error) {
	c.record("get")
	return c.LeaseInterface.Get(ctx, name, opts)
}

func (c *countedLeases) Create(ctx context.Context, l *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	c.record("create")
	return c.LeaseInterface.Create(ctx, l, opts)
}

func (c *countedLeases) Update(ctx context.Context, l *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if c.record("update") {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return c.LeaseInterface.Update(ctx, l, opts)
}

func (r *nodeRig) countedLeases() *countedLeases {
	return &countedLeases{LeaseInterface: r.api.CoordinationV1().Leases(corev1.NamespaceNodeLease)}
}

// A renewal is one update: the lease is read at the start and after an error,
// and not else.
func TestLeaseIsNotReadToRenewIt(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		leases := r.countedLeases()
		r.start(WithNodeEnableLeaseV1(leases, 40))
		wantList(t, "at the start", leases.requests(), "get", "create")
		pass(10 * time.Minute)
		if others := slices.DeleteFunc(leases.requests(), func(verb string) bool { return verb == "update" }); len(others) > 0 {
			t.Errorf("requests besides the updates: %q", others)
		}
		pass(time.Second)
		leases.requests()
		r.api.Fail("update leases", apierrors.NewConflict(fakeapi.Leases.GroupResource(), "vk", errors.New("somebody else wrote it")))
		for len(leases.requests()) == 0 {
			pass(100 * time.Millisecond)
		}
		r.api.Fail("update leases", nil)
		pass(time.Second)
		wantList(t, "after a conflict", leases.requests(), "get", "update")
	})
}

// A lease that others deleted or changed is there again with the next renewal,
// and what they wrote in it stays.
func TestLeaseOfOthers(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		leases := r.countedLeases()
		r.start(WithNodeEnableLeaseV1(leases, 40))
		if err := r.api.Tracker.Delete(fakeapi.Leases, corev1.NamespaceNodeLease, "vk"); err != nil {
			t.Fatal(err)
		}
		pass(11 * time.Second)
		want(t, "holder", ptr.Deref(r.lease().Spec.HolderIdentity, ""), "vk")
		r.end()

		found := r.lease().DeepCopy()
		found.Labels = map[string]string{"foreign": "1"}
		found.Spec.LeaseDurationSeconds = ptr.To[int32](7)
		found.Spec.RenewTime = nil
		if err := r.api.Tracker.Update(fakeapi.Leases, found, corev1.NamespaceNodeLease); err != nil {
			t.Fatal(err)
		}
		r.start(WithNodeEnableLeaseV1(leases, 40))
		pass(time.Second)
		lease := r.lease()
		want(t, "labels", lease.Labels, found.Labels)
		want(t, "duration", *lease.Spec.LeaseDurationSeconds, 40)
		want(t, "renewed", time.Since(lease.Spec.RenewTime.Time) < 2*time.Second, true)
	})
}

// An API server that is away is asked often enough for the lease to be renewed
// within seconds of its return, and less often than ten times a minute.
func TestLeaseWhileTheAPIIsAway(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		leases := r.countedLeases()
		r.start(WithNodeEnableLeaseV1(leases, 40))
		pass(time.Minute)
		away := apierrors.NewServiceUnavailable("away")
		r.api.Fail("update leases", away)
		r.api.Fail("get leases", away)
		pass(time.Minute)
		leases.requests()
		pass(10 * time.Minute)
		if n := len(leases.requests()); n > 140 || n < 85 {
			t.Errorf("%d requests in ten minutes, want one every 4.5 to 7 s", n)
		}
		r.api.Fail("update leases", nil)
		r.api.Fail("get leases", nil)
		pass(7 * time.Second)
		if age := time.Since(r.lease().Spec.RenewTime.Time); age > 7*time.Second {
			t.Errorf("last renewed %v ago", age)
		}
	})
}

// A request that is never answered is given up, and the next one tried.
func TestLeaseRequestThatHangs(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		leases := r.countedLeases()
		r.start(WithNodeEnableLeaseV1(leases, 40))
		leases.hang(true)
		pass(15 * time.Second)
		leases.hang(false)
		answered := time.Now()
		pass(11 * time.Second) // the one that hangs is given up after 10 s
		if !r.lease().Spec.RenewTime.After(answered) {
			t.Errorf("not renewed for %v", time.Since(answered))
		}
	})
}

// A status patch that takes long does not hold up the lease, nor does a ping.
func TestLeaseIsRenewedThoughTheProviderHangs(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		release := make(chan struct{})
		r.start(r.withLease(), WithNodePingTimeout(time.Hour), WithNodeStatusUpdateErrorHandler(func(context.Context, error) error {
			<-release
			return nil
		}))
		r.pinged(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		r.api.Fail("patch nodes/status", errors.New("broken"))
		r.notify(&corev1.Node{Status: corev1.NodeStatus{Phase: corev1.NodeRunning}})
		pass(30 * time.Minute)
		if age := time.Since(r.lease().Spec.RenewTime.Time); age > 11*time.Second {
			t.Errorf("last renewed %v ago", age)
		}
		r.api.Fail("patch nodes/status", nil)
		close(release)
	})
}

// Nodes that were started in the same moment renew their leases, and report
// their statuses, spread over the interval.
func TestNodesThatStartTogetherAreSpread(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		const nodes = 80 // more would overrun the watches of the fake API
		leases := r.countedLeases()
		r.fleet(nodes, WithNodeEnableLeaseV1(leases, 40))
		pass(5 * time.Second)
		r.api.Written()
		most := 0
		for range 60 {
			leases.requests()
			pass(time.Second)
			most = max(most, len(leases.requests()))
		}
		if most > 4*nodes/10 {
			t.Errorf("%d of %d leases were renewed within a second, want about %d", most, nodes, nodes/10)
		}
		most = 0
		for range 5 {
			r.api.Written()
			pass(time.Minute)
			statuses := 0
			for _, write := range r.api.Written() {
				if strings.HasPrefix(write, "patch nodes/status") {
					statuses++
				}
			}
			most = max(most, statuses)
		}
		if most > nodes/2 {
			t.Errorf("%d of %d statuses were reported within a minute, want about %d", most, nodes, nodes/5)
		}
	})
}
