package shard

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		if !l.isMember(name) && (!s.deleted || !watched) {
			s.since = now
		}
		if !l.isMember(name) || now.Before(s.expires(l.LeaseDuration)) {
			listed[name] = observation{withoutVersion(s.lease), s.since, true}
		}
	}
	l.missUnseen(listed, now)
}

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
