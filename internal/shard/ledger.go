package shard

import (
	"context"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Leases is what is used of a client's LeaseInterface.
type Leases interface {
	List(ctx context.Context, opts metav1.ListOptions) (*coordinationv1.LeaseList, error)
	Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

const (
	// Label is on all leases; its value is Config.Name.
	Label = "virtual-kubelet.io/shards"
	// AnnotationCount is the annotation with how many shards the holder of a lease goes by.
	AnnotationCount = "virtual-kubelet.io/shard-count"
)

// ledger is what a member has seen of the leases of all. It is safe for
// concurrent use, but for refresh beside anything else.
type ledger struct {
	*Config

	mu     sync.Mutex
	seen   map[string]observation // by the lease's name
	listed time.Time              // when refresh last worked
}

// observation is a lease in one of its versions, or one that was deleted.
type observation struct {
	lease   *coordinationv1.Lease
	since   time.Time // when this version was first seen, or the lease first missed
	deleted bool      // the lease was not listed when that was last done; with a version: it has lost its label
}

// expires is when the lease ends unless it is renewed.
func (s observation) expires(otherwise time.Duration) time.Time {
	if seconds := s.lease.Spec.LeaseDurationSeconds; seconds != nil {
		return s.since.Add(time.Duration(*seconds) * time.Second)
	}
	return s.since.Add(otherwise)
}

func (s observation) holder() string {
	if s.lease == nil {
		return ""
	}
	return ptr.Deref(s.lease.Spec.HolderIdentity, "")
}

func (l *ledger) shardName(shard int) string { return l.Name + "-shard-" + strconv.Itoa(shard) }

// memberName is the name of a member's own lease. Identities may be no names.
func (l *ledger) memberName(identity string) string {
	sum := fnv.New64a()
	sum.Write([]byte(identity))
	return fmt.Sprintf("%s-member-%016x", l.Name, sum.Sum64())
}

// isMember reports whether a lease is that of a member.
func (l *ledger) isMember(name string) bool { return strings.HasPrefix(name, l.Name+"-member-") }

// refresh reads all leases.
func (l *ledger) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.requestTimeout())
	defer cancel()
	list, err := l.Leases.List(ctx, metav1.ListOptions{LabelSelector: Label + "=" + l.Name})
	if err != nil {
		return fmt.Errorf("cannot list the leases of the shards: %w", err)
	}
	now := time.Now()
	seen := make(map[string]observation, len(list.Items))
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range list.Items {
		lease := &list.Items[i]
		s, known := l.seen[lease.Name]
		if !known || s.deleted || s.lease.ResourceVersion != lease.ResourceVersion {
			s = observation{lease: lease, since: now}
		}
		seen[lease.Name] = s
	}
	l.keepDeleted(seen, now)
	l.seen = seen
	return nil
}

// get returns what was seen of a lease.
func (l *ledger) get(name string) observation {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen[name]
}

// renew is hold for a lease that this member had when it was last seen.
func (l *ledger) renew(ctx context.Context, name string) error {
	if l.get(name).holder() != l.Identity {
		return fmt.Errorf("lease %s is not held: it cannot be renewed", name)
	}
	return l.hold(ctx, name)
}

// hold writes a lease as held by this member as of now: it is claimed, or
// renewed. It fails with a conflict if somebody has written it since it was seen.
func (l *ledger) hold(ctx context.Context, name string) error {
	s := l.get(name)
	now := metav1.NowMicro()
	next := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if s.lease != nil {
		next = s.lease.DeepCopy()
	}
	if s.holder() != l.Identity {
		next.Spec.HolderIdentity, next.Spec.AcquireTime = ptr.To(l.Identity), &now
		next.Spec.LeaseTransitions = ptr.To(ptr.Deref(next.Spec.LeaseTransitions, 0) + 1)
	}
	next.Spec.RenewTime = &now
	next.Spec.LeaseDurationSeconds = ptr.To(int32(l.LeaseDuration / time.Second))
	metav1.SetMetaDataLabel(&next.ObjectMeta, Label, l.Name)
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, AnnotationCount, strconv.Itoa(l.Shards))
	err := l.write(ctx, next)
	if err == nil || s.holder() != l.Identity {
		return err
	}
	// One that was renewed without its label is found by the failure. With the next look at all
	// leases it could be too late for its holder.
	found := l.get(name)
	if found.holder() != l.Identity || !found.deleted || found.lease.ResourceVersion == "" || found.lease.ResourceVersion == next.ResourceVersion {
		return err
	}
	next.ResourceVersion, next.UID = found.lease.ResourceVersion, found.lease.UID
	return l.write(ctx, next)
}

// release writes a lease as held by nobody, if it is this member's. One that was
// deleted is left so: others may have claimed it and lost it since.
func (l *ledger) release(ctx context.Context, name string) error {
	s := l.get(name)
	if s.holder() != l.Identity || s.deleted {
		return nil
	}
	next := s.lease.DeepCopy()
	next.Spec.HolderIdentity = nil
	return l.write(ctx, next)
}

func (l *ledger) write(ctx context.Context, next *coordinationv1.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, l.requestTimeout())
	defer cancel()
	var written *coordinationv1.Lease
	var err error
	if next.ResourceVersion == "" {
		written, err = l.Leases.Create(ctx, next, metav1.CreateOptions{})
	} else {
		written, err = l.Leases.Update(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil {
		return l.findUnlabelled(ctx, next.Name, fmt.Errorf("cannot write lease %s: %w", next.Name, err))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[next.Name] = observation{lease: written, since: time.Now()}
	return nil
}

// remove deletes a lease in the version in which it was seen.
func (l *ledger) remove(ctx context.Context, name string) error {
	s := l.get(name)
	if s.lease == nil || s.deleted {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.requestTimeout())
	defer cancel()
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &s.lease.ResourceVersion}}
	err := l.Leases.Delete(ctx, name, options)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("cannot delete lease %s: %w", name, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.seen, name)
	return nil
}

// members are the identities of those that are alive and go by the same number
// of shards. mixed says that there are also leases, which have not expired, of
// somebody who goes by another number.
func (l *ledger) members(now time.Time) (members []string, mixed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, s := range l.seen {
		if s.holder() == "" || !now.Before(s.expires(l.LeaseDuration)) {
			continue
		}
		switch count, counted := s.lease.Annotations[AnnotationCount]; {
		case count == strconv.Itoa(l.Shards):
			if l.isMember(name) {
				members = append(members, s.holder())
			}
		case counted || l.labelled(s.lease): // else it may be of something else
			mixed = true
		}
	}
	return members, mixed
}

// isSurplus reports whether a lease is that of a shard which there is not, by this member's
// number of them: members that went by a larger one have left it.
func (l *ledger) isSurplus(name string) bool {
	number, found := strings.CutPrefix(name, l.Name+"-shard-")
	shard, err := strconv.Atoi(number)
	return found && err == nil && shard >= l.Shards
}

// dead are the leases of members, and of shards that there are not, which nobody has renewed
// for long.
func (l *ledger) dead(now time.Time) (names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, s := range l.seen {
		if (l.isMember(name) || l.isSurplus(name)) && now.After(s.expires(l.LeaseDuration).Add(2*l.LeaseDuration)) {
			names = append(names, name)
		}
	}
	return names
}
