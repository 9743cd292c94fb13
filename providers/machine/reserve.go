package machine

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// Machines in reserve are made for no pod, so that one need not wait for a start. There is a
// record before the driver is asked for one: a machine in reserve of which there is none may have
// been given a pod of which nothing is known, because the state directory was lost. It is never
// used, and no pod is created before lists have lacked it for a while.

// reserve is how many machines of a kind are in reserve, and what has failed.
type reserve struct {
	ready, notReady int
	failures        int
	again           time.Time // nothing is made before
}

// endUnknown ends the machines in reserve that may have any pod of this node, and returns an error
// until they are gone. A list has just been made.
func (b *backend) endUnknown() error {
	unknown := map[*member]string{} // with the reason, if it is new
	name := ""
	b.mu.Lock()
	for _, m := range b.members {
		if m.isUnknown() && m.machine.State != Ended {
			unknown[m] = ""
			if !m.ending {
				unknown[m] = whyUnknown
			}
			m.ending, name = true, m.machine.Name
		}
	}
	b.mu.Unlock()
	for m, why := range unknown {
		b.endReserve(m, why)
	}
	if len(unknown) == 0 {
		return nil
	}
	return errdefs.AsRetryAfter(errdefs.AsUnavailable(fmt.Errorf("machine %s was in reserve, and may have a pod of this node, of which there is no record: it is ended first", name)), bootPoll)
}

const whyUnknown = "the state directory has no record of it: it may have a pod"

// isUnknown reports whether a machine was in reserve and may have been given a pod since. b.mu is
// held.
func (m *member) isUnknown() bool { return isReserve(m.machine) && m.record == nil && !m.planned }

// endReserve ends a machine in reserve. It is called again until that is gone.
func (b *backend) endReserve(m *member, why string) {
	b.inBackground(m, func(ctx context.Context) {
		if machine := b.seen(m); why != "" {
			b.mu.Lock()
			silent := m.record == nil && m.planned
			b.mu.Unlock()
			if silent { // what it has written may say more
				why += b.console(machine)
			}
			log.G(ctx).WithFields(log.Fields{"machine": machine.Name, "reason": why}).Warn("A machine in reserve is ended")
		}
		b.mu.Lock()
		// A list that lacks it for a moment does not count: it may have any pod.
		waits := m.isUnknown() && m.machine.State != Ended && (m.missing.IsZero() || time.Since(m.missing) < b.cfg.MissingTimeout.Duration)
		machine := m.machine
		b.mu.Unlock()
		switch {
		case !waits:
			b.gone(ctx, m)
		case b.mayBegin():
			_ = b.delete(ctx, machine) // it is tried again
		}
	})
}

// keepReserve makes the machines in reserve that are missing, and ends those that are superfluous.
// A list has just been made.
func (b *backend) keepReserve() {
	if b.init.PodsSynced != nil && !b.init.PodsSynced() {
		return
	}
	uid, err := b.clusterUID.UID(b.ctx)
	if err != nil {
		log.G(b.ctx).WithError(err).Warn("Cannot look after the reserve of machines")
		return
	}
	over := map[*member]string{} // with the reason
	var ready, begin, left []*member
	b.mu.Lock()
	kept, ending := map[string][]*member{}, map[string]int{}
	for _, m := range b.members {
		if !isReserve(m.machine) {
			continue
		}
		key := m.machine.Tags[tagReserve]
		if m.isUnknown() && m.machine.State == Ended { // the driver may list it for long
			if !m.ending {
				left = append(left, m)
			}
			continue
		}
		if why := b.whySuperfluousLocked(m); m.ending || why != "" {
			if !m.ending && m.planned {
				b.failedLocked(m)
			}
			over[m] = why
			if m.machine.State != Ended {
				ending[key]++
			}
			continue
		}
		kept[key] = append(kept[key], m)
		if b.isReadyLocked(m) {
			ready = append(ready, m)
		}
	}
	for i := range b.kinds {
		k := &b.kinds[i]
		all := kept[k.key]
		slices.SortFunc(all, func(x, y *member) int { return cmp.Or(x.stage()-y.stage(), x.since.Compare(y.since)) })
		for n, m := range all {
			if n >= k.count && m.promised == nil && (m.spec == nil || m.listed) {
				over[m] = fmt.Sprintf("there are more than %d", k.count)
			}
		}
		begin = append(begin, b.missingLocked(k, all, ending[k.key], uid)...)
	}
	for m := range over {
		m.ending = true
	}
	b.mu.Unlock()
	for m, why := range over {
		b.endReserve(m, why)
	}
	for _, m := range left {
		b.inBackground(m, func(ctx context.Context) {
			if b.delete(ctx, b.seen(m)) == nil {
				b.mu.Lock()
				defer b.mu.Unlock()
				m.ending = true
			}
		})
	}
	for _, m := range begin {
		b.inBackground(m, func(ctx context.Context) { b.makeInReserve(ctx, m) })
	}
	for _, m := range ready {
		b.inBackground(m, func(ctx context.Context) { b.greets(ctx, m) })
	}
}

// stage is the order in which machines in reserve are kept: those that have started first. b.mu is
// held.
func (m *member) stage() int {
	switch {
	case m.promised != nil:
		return 0
	case m.record != nil:
		return 1
	}
	return 2
}

// whySuperfluousLocked returns why a machine in reserve is to be ended; empty if it is not. b.mu is
// held.
func (b *backend) whySuperfluousLocked(m *member) string {
	if m.ending {
		return ""
	}
	why, _ := b.whyUnusableLocked(m)
	known := slices.ContainsFunc(b.kinds, func(k kind) bool { return k.key == m.machine.Tags[tagReserve] })
	switch {
	case m.isUnknown():
		return whyUnknown
	case why != "":
		return why
	case m.listed && !m.missing.IsZero() && time.Since(m.missing) > b.cfg.MissingTimeout.Duration:
		return "it is gone"
	case !known && m.spec == nil:
		return "the configuration has no such machines in reserve any more"
	case !m.deaf.IsZero() && time.Since(m.deaf) > b.cfg.UnreachableTimeout.Duration && !b.guards:
		return "its agent cannot be reached"
	case m.doubtful && (!b.wants(*m.promised) || b.machineOfLocked(m.promised.UID) != nil):
		return "it may be recorded as that of a pod that does not need it"
	}
	return ""
}

// machineOfLocked returns a machine of a pod; nil if it has none, but for one that was lost or that
// the driver has not made. b.mu is held.
func (b *backend) machineOfLocked(uid types.UID) *member {
	for _, m := range b.members {
		if uidOf(m.machine) == uid && !m.isReplaced() && !m.isRefused() {
			return m
		}
	}
	return nil
}

// missingLocked returns the machines of a kind that the driver is to be asked for, now or again. Where
// machines are not ended that are to be, no more are made than there shall be: all are paid for. b.mu
// is held.
func (b *backend) missingLocked(k *kind, all []*member, ending int, uid types.UID) (begin []*member) {
	state := b.reserveLocked(k.key)
	was := *state
	may := !b.refusesPodLocked(k)
	state.ready, state.notReady = 0, 0
	for _, m := range all {
		switch {
		case b.reserveStateLocked(m) == reserveReady:
			state.ready++
			if time.Since(m.since) > lastBootRetry {
				state.failures = 0
			}
		default:
			state.notReady++
		}
		if may && m.spec != nil && !m.listed && !time.Now().Before(state.again) {
			begin = append(begin, m)
		}
	}
	for n := len(all) + max(0, ending-k.count); may && n < k.count && !time.Now().Before(state.again); n++ {
		m, err := b.planInReserveLocked(k, uid)
		if err != nil {
			log.G(b.ctx).WithError(err).Warn("Cannot record a machine that is to be in reserve; trying again")
			state.fail(b.firstRetry)
			break
		}
		state.notReady++
		begin = append(begin, m)
	}
	if state.ready != was.ready || state.notReady != was.notReady {
		log.G(b.ctx).WithFields(log.Fields{"type": k.name(), "ready": state.ready, "notReady": state.notReady, "wanted": k.count}).Info("Machines are in reserve")
	}
	return begin
}

// refusesPodLocked reports whether the driver makes no machine for a pod that could be in reserve of a
// kind: what there is of a quota is the pod's. b.mu is held.
func (b *backend) refusesPodLocked(k *kind) bool {
	for _, m := range b.members {
		if m.isRefused() && !isReserve(m.machine) && m.spec.Type == k.name() && m.spec.CPU <= k.limit.CPU.MilliValue() && m.spec.Memory <= k.limit.Memory.Value() {
			return true
		}
	}
	return false
}

// reserveLocked returns the state of a kind. b.mu is held.
func (b *backend) reserveLocked(key string) *reserve {
	if b.reserves[key] == nil {
		b.reserves[key] = &reserve{}
	}
	return b.reserves[key]
}

// failedLocked counts a machine in reserve that has not started, or not lasted. b.mu is held.
func (b *backend) failedLocked(m *member) {
	if m.record == nil || time.Since(m.since) < lastBootRetry {
		b.reserveLocked(m.machine.Tags[tagReserve]).fail(b.firstRetry)
	}
}

// fail delays the next machine, twice as long as the last time.
func (r *reserve) fail(first time.Duration) {
	if now := time.Now(); !now.Before(r.again) { // else it is one of those that were begun together
		r.again = now.Add(min(first<<min(r.failures, 10), lastBootRetry))
		r.failures++
	}
}

// planInReserveLocked records a machine that is to be made. b.mu is held.
func (b *backend) planInReserveLocked(k *kind, uid types.UID) (*member, error) {
	name := "reserve-" + strings.ToLower(rand.Text())
	tags := map[string]string{podgroup.TagClusterUID: string(uid), tagReserve: k.key}
	split(tags, podgroup.TagClusterName, b.cfg.Cluster)
	split(tags, podgroup.TagNodeName, b.node)
	spec, err := b.newSpec(name, tags)
	if err != nil {
		return nil, err
	}
	spec.CPU, spec.Memory = k.limit.CPU.MilliValue(), k.limit.Memory.Value()
	if k.of != nil {
		spec.setType(k.of)
	}
	m := &member{since: time.Now(), spec: spec, planned: true, machine: Machine{Name: name, Tags: spec.Tags}}
	if err := b.records.save(&record{Name: name, Tags: spec.Tags, Created: m.since}); err != nil {
		return nil, errors.Join(err, b.records.remove(name))
	}
	b.members[name] = m
	return m, nil
}

// split sets a tag, whose value goes on in others where it is too long, as podgroup's do.
func split(tags map[string]string, key, value string) {
	for n := 1; ; n++ {
		numbered := key
		if n > 1 {
			numbered += "." + strconv.Itoa(n)
		}
		tags[numbered] = value[:min(maxTag, len(value))]
		if len(value) <= maxTag {
			return
		}
		value = value[maxTag:]
	}
}

// makeInReserve has the driver make a machine, unless it is busy with others: pods come first, also
// where it hangs.
func (b *backend) makeInReserve(ctx context.Context, m *member) {
	for _, places := range []limiter{b.inReserve, b.creations} {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		default:
			return
		}
	}
	b.mu.Lock()
	spec := m.spec
	// A pod may have been refused since this began.
	isOfAPod := slices.ContainsFunc(b.kinds, func(k kind) bool { return k.key == m.machine.Tags[tagReserve] && b.refusesPodLocked(&k) })
	b.mu.Unlock()
	if spec == nil || isOfAPod || !b.mayBegin() {
		return
	}
	late, cancel := context.WithTimeoutCause(ctx, creationTimeout, errors.New("the driver has not made it in "+creationTimeout.String()))
	defer cancel()
	made, err := b.driver.Create(late, *spec)
	if err = b.accept(ctx, m, made, err); err == nil {
		return
	}
	log.G(ctx).WithError(err).Warn("Cannot make a machine that is to be in reserve; trying again")
	b.mu.Lock()
	b.reserveLocked(spec.Tags[tagReserve]).fail(b.firstRetry)
	b.mu.Unlock()
	if errdefs.IsPermanent(err) {
		if err := b.forget(spec.Name); err != nil {
			log.G(ctx).WithError(err).Warn("Cannot remove the record of a machine")
		}
	}
}
