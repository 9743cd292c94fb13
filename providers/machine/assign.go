package machine

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine/agent"
)

// A machine that was in reserve keeps the tags that it was made with. Which pod it has is in its
// record, from before the pod is sent until the machine is gone; setTags has everything else go by
// that.

// greetTimeout is how long an agent may take to show that it can be reached, before it has a pod.
const greetTimeout = 3 * time.Second

// isReserve reports whether a machine was made for no pod, and none has got it.
func isReserve(m Machine) bool { return m.Tags[tagReserve] != "" && uidOf(m) == "" }

// isAssigned reports whether a machine was in reserve until a pod got it. b.mu is held.
func (m *member) isAssigned() bool { return m.record != nil && m.record.Slot != "" }

// setTags sets the tags that the driver has, with those of the pod that has got the machine. b.mu
// is held.
func (m *member) setTags(tags map[string]string) {
	if m.isAssigned() {
		tags = m.record.Tags
	}
	m.machine.Tags = tags
}

// assign gives a pod a machine in reserve, for good; nil if there is none for it.
func (b *backend) assign(ctx context.Context, slot string, r *podgroup.Request) (*member, error) {
	k := b.kindOf(r)
	if k == nil {
		return nil, nil
	}
	owner := podgroup.OwnerOf(r.Pod)
	for ctx.Err() == nil {
		m := b.promise(k, owner)
		if m == nil {
			return nil, nil
		}
		answers, err := b.greets(ctx, m), error(nil)
		if answers {
			err = b.commit(m, slot, r)
		}
		b.mu.Lock()
		if !m.doubtful {
			m.promised = nil
		}
		b.mu.Unlock()
		if answers {
			if err == nil && b.init.Events != nil {
				b.init.Events.Eventf(r.Pod, corev1.EventTypeNormal, "MachineAssigned", "The pod has machine %s, which was in reserve", b.seen(m).Name)
			}
			return m, err
		}
	}
	return nil, errdefs.AsUnavailable(context.Cause(ctx))
}

// promise returns a machine in reserve that no other pod can get from now on, the oldest first;
// nil if there is none.
func (b *backend) promise(k *kind, owner podgroup.Owner) (chosen *member) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.members {
		if m.machine.Tags[tagReserve] != k.key || !b.isReadyLocked(m) || !m.deaf.IsZero() {
			continue
		}
		if m.promised != nil {
			if m.promised.UID == owner.UID { // its record could not be written
				return m
			}
			continue
		}
		if chosen == nil || m.since.Before(chosen.since) {
			chosen = m
		}
	}
	if chosen != nil {
		chosen.promised = &owner
	}
	return chosen
}

// isReadyLocked reports whether a machine is in reserve and can be given a pod. b.mu is held.
func (b *backend) isReadyLocked(m *member) bool {
	if !isReserve(m.machine) || m.record == nil || m.machine.Address == "" || !m.missing.IsZero() || !m.listed {
		return false
	}
	why, _ := b.whyUnusableLocked(m)
	return why == ""
}

// greets reports whether the agent of a machine in reserve can be reached, and is the one that has
// the machine's certificate. Nothing that it sends counts.
func (b *backend) greets(ctx context.Context, m *member) bool {
	machine := b.seen(m)
	err := b.dial(ctx, m)
	if ctx.Err() != nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	m.greeted = err == nil
	switch {
	case err == nil:
		m.deaf = time.Time{}
		b.keepAddressLocked(m)
	case m.deaf.IsZero():
		m.deaf = time.Now()
		log.G(ctx).WithField("machine", machine.Name).WithError(err).Debug("The agent of a machine in reserve cannot be reached") // it may start
	}
	return err == nil
}

// keepAddressLocked records where a machine in reserve is: its agent may have had its certificate before
// the driver has answered. b.mu is held.
func (b *backend) keepAddressLocked(m *member) {
	if m.record.Address == m.machine.Address {
		return
	}
	next := *m.record
	next.Address = m.machine.Address
	if b.records.save(&next) == nil { // else it is tried again
		m.record = &next
	}
}

// agentAddressLocked is where the agent of a machine listens. b.mu is held.
func (b *backend) agentAddressLocked(m *member) string {
	port := b.cfg.AgentPort
	if m.record != nil { // of the configuration that the machine was made with
		port = cmp.Or(m.record.Port, port)
	}
	return net.JoinHostPort(m.machine.Address, strconv.Itoa(port))
}

// dial returns an error if the agent of a machine cannot be reached, or has another certificate.
func (b *backend) dial(ctx context.Context, m *member) error {
	b.mu.Lock()
	name, address := m.machine.Name, b.agentAddressLocked(m)
	b.mu.Unlock()
	pair, err := tls.LoadX509KeyPair(b.authority.path(nodeFile), b.authority.path(nodeKeyFile))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AddCert(b.authority.cert)
	ctx, cancel := context.WithTimeout(ctx, b.greetTimeout)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: agent.ServerName(name), Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"},
	}}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// commit records that a machine in reserve is a pod's. If that cannot be recorded it may be on disk
// all the same, and no other pod gets the machine.
func (b *backend) commit(m *member, slot string, r *podgroup.Request) error {
	if !b.mayBegin() {
		return errdefs.AsUnavailable(errors.New("another process may act for the node"))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	name := m.machine.Name
	if !b.isReadyLocked(m) {
		return errdefs.AsUnavailable(fmt.Errorf("machine %s is not in reserve any more", name))
	}
	if has := b.machineOfLocked(r.Pod.UID); has != nil {
		return errdefs.AsUnavailable(fmt.Errorf("the pod has machine %s now", has.machine.Name))
	}
	next := *m.record
	next.Slot, next.Created, next.Address, next.Tags = slot, time.Now(), m.machine.Address, maps.Clone(m.machine.Tags)
	maps.Copy(next.Tags, r.Tags)
	if err := b.records.save(&next); err != nil {
		m.doubtful = true
		return errdefs.AsUnavailable(err)
	}
	m.record, m.since, m.doubtful = &next, next.Created, false
	m.setTags(next.Tags)
	delete(b.reserves, next.Tags[tagReserve])
	b.wakeLocked()
	log.G(b.ctx).WithFields(log.Fields{"machine": name, "pod": r.Pod.Namespace + "/" + r.Pod.Name}).Info("A pod has got a machine in reserve")
	return nil
}
