package shard

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// withoutVersion returns the lease as it is to be created again.
func withoutVersion(lease *coordinationv1.Lease) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: lease.Name, Labels: lease.Labels, Annotations: lease.Annotations},
		Spec:       lease.Spec,
	}
}

// keepDeleted adds the leases to listed that somebody has deleted: members that leave
// delete none that others have seen. A shard may have been claimed or renewed just before
// its lease was deleted, so that the lease lasts from when it was first missed; and
// once more if this member has not looked for a while, since it may have been made
// again meanwhile. l.mu is held.
func (l *ledger) keepDeleted(listed map[string]observation, now time.Time) {
	watched := now.Sub(l.listed) < l.renewDeadline()
	l.listed = now
	for name, s := range l.seen {
		if _, found := listed[name]; found {
			continue
		}
		if (l.isMember(name) || l.isSurplus(name)) && !now.Before(s.expires(l.LeaseDuration)) {
			continue // another member may have removed it
		}
		if !l.isMember(name) && (!s.deleted || !watched) {
			s.since = now
		}
		if !s.deleted {
			s.lease, s.deleted = withoutVersion(s.lease), true
		}
		listed[name] = s
	}
	l.missUnseen(listed, now)
}

// findUnlabelled looks for a lease that is not listed, since it lacks the label, but is there:
// the error of a write says so. If it is, its holder writes the label again, and others wait
// for as long as it lasts from now on. It returns the error.
func (l *ledger) findUnlabelled(ctx context.Context, name string, err error) error {
	missed := l.get(name).deleted
	if !apierrors.IsAlreadyExists(err) && !(missed && (apierrors.IsConflict(err) || apierrors.IsNotFound(err))) {
		return err
	}
	list, listErr := l.Leases.List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})
	if listErr != nil {
		return fmt.Errorf("cannot read lease %s: %w", name, listErr)
	}
	i := slices.IndexFunc(list.Items, func(lease coordinationv1.Lease) bool { return lease.Name == name })
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case i >= 0 && !l.labelled(&list.Items[i]):
		found := observation{&list.Items[i], time.Now(), true}
		log.G(ctx).WithFields(log.Fields{"lease": name, "holder": found.holder()}).Warn("A lease lacks the label by which processes that share shards find it; its holder sets it again, or another process once it has expired")
		l.seen[name] = found
	case i < 0 && missed:
		s := l.seen[name]
		s.lease = withoutVersion(s.lease)
		l.seen[name] = s
	}
	return err
}

// labelled reports whether a lease is one of those that are listed.
func (l *ledger) labelled(lease *coordinationv1.Lease) bool { return lease.Labels[Label] == l.Name }

// missUnseen adds the leases of shards that this member has never seen. They were
// deleted before it came, unless no shard has a lease yet.
func (l *ledger) missUnseen(listed map[string]observation, now time.Time) {
	first := true
	for name := range listed {
		first = first && l.isMember(name)
	}
	for shard := range l.Shards {
		name := l.shardName(shard)
		if _, found := listed[name]; !found && !first {
			listed[name] = observation{&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, now, true}
		}
	}
}
