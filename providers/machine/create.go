package machine

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/providercalls"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine/agent"
)

const (
	// bootPoll is how often machines that start are looked for.
	bootPoll = 2 * time.Second
	// giveTimeout is how long an agent may take to accept its pod.
	giveTimeout = 20 * time.Second
	// The delay before another machine is made for a pod in place of one that did not start.
	firstBootRetry, lastBootRetry = 10 * time.Second, 10 * time.Minute
	// consoleBytes is how much of a console is in the event about it.
	consoleBytes = 512
)

// baseOf is what the names of a pod's machines begin with. It is another one if the pod's machine
// was lost, and it is created again.
func baseOf(r *podgroup.Request) string {
	base := r.Name
	if again := strings.TrimPrefix(r.Token, string(r.Pod.UID)); again != "" {
		base = base[:min(len(base), 44)] + again
	}
	return base
}

// Create implements podgroup.Backend: it makes the machine of a pod, waits until its agent has
// proved who it is, and gives it the pod. Until then the pod has no unit, so that this is called
// again, with all that the pod needs, where it has not come to its end.
func (b *backend) Create(ctx context.Context, r *podgroup.Request) (podgroup.Unit, error) {
	done, err := b.pods.Take(ctx, string(r.Pod.UID))
	if err != nil {
		return podgroup.Unit{}, errdefs.AsUnavailable(err)
	}
	defer done()
	if err := b.start(); err != nil {
		return podgroup.Unit{}, err
	}
	m, err := b.ready(ctx, r)
	if err != nil {
		return podgroup.Unit{}, b.unsent(r.Pod.UID, err)
	}
	return b.give(ctx, m, r.Pod)
}

// ready returns the machine of a pod that is to be given the pod. There is no other such call for it.
func (b *backend) ready(ctx context.Context, r *podgroup.Request) (*member, error) {
	slot, m, err := b.current(ctx, r)
	if err != nil {
		return nil, err
	}
	providercalls.Waits(ctx) // what is done at the same time is bounded here
	if m == nil || b.isRefused(m) {
		assigned, err := b.assign(ctx, slot, r)
		if err != nil {
			return nil, err
		}
		if assigned != nil {
			m = assigned
		}
	}
	name := slot
	if m != nil {
		name = b.seen(m).Name
	}
	if err := b.make(ctx, name, r); err != nil {
		return nil, err
	}
	if m, err = b.await(ctx, name); err != nil {
		return nil, err
	}
	return m, b.alone(ctx, m)
}

// event shows why a pod does not run yet: a machine may take minutes to start.
func (b *backend) event(pod *corev1.Pod, machine string) {
	if b.init.Events == nil {
		return
	}
	if t, _ := b.cfg.typeOf(pod); t != nil {
		machine += " of type " + t.Name
	}
	b.init.Events.Eventf(pod, corev1.EventTypeNormal, "MachineStarting", "Machine %s is made for the pod, which waits until it has started", machine)
}

// current returns the pod's machine, nil if it has none, and the name that one has to be made with.
// The others of the pod are ended first: one that may have been given the pod has to be gone.
func (b *backend) current(ctx context.Context, r *podgroup.Request) (slot string, m *member, err error) {
	if _, err := b.list(ctx); err != nil {
		return "", nil, err
	}
	if err := b.endUnknown(); err != nil {
		return "", nil, err
	}
	base, uid := baseOf(r), r.Pod.UID
	all := b.membersOf(uid)
	b.mu.Lock()
	generation := max(b.generations[uid], 1)
	for _, other := range all {
		of, number, ok := cutGeneration(other.slot())
		if ok && of == base && (number > generation || number == generation && (m == nil || other.record != nil && !m.isAssigned())) {
			generation, m = number, other
		}
	}
	b.mu.Unlock()
	slot = base + "-" + strconv.Itoa(generation)
	var failed error
	if m != nil {
		if failed = b.unusable(m); failed != nil {
			if runsOnce(r.Pod) && b.wasSent(m) {
				return "", nil, errdefs.AsPermanent(fmt.Errorf("%w: its agent was sent the pod, which runs once at the most, and may have run it", failed))
			}
			slot = base + "-" + strconv.Itoa(generation+1)
		}
	}
	for _, other := range all {
		if other == m && failed == nil {
			continue
		}
		if err := b.end(ctx, other); err != nil {
			return "", nil, fmt.Errorf("%w (%s)", err, errorOr(failed, "another machine of the pod takes its place"))
		}
	}
	if failed == nil {
		return slot, m, nil
	}
	b.mu.Lock()
	b.generations[uid] = generation + 1
	b.mu.Unlock()
	delay := min(b.firstRetry<<min(generation-1, 10), lastBootRetry)
	if b.lasted(m) > lastBootRetry {
		return slot, nil, nil
	}
	return "", nil, errdefs.AsRetryAfter(errdefs.AsUnavailable(fmt.Errorf("%w: it is deleted, and another one made", failed)), delay)
}

// slot is the name that a pod's machine was made with or, if it was in reserve, would have been.
// b.mu is held.
func (m *member) slot() string {
	if m.record != nil && m.record.Slot != "" {
		return m.record.Slot
	}
	return m.machine.Name
}

// lasted is for how long a machine that was lost had run.
func (b *backend) lasted(m *member) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !m.isReplaced() {
		return 0
	}
	return m.record.Replaced.At.Sub(m.record.Created)
}

func errorOr(err error, otherwise string) string {
	if err != nil {
		return err.Error()
	}
	return otherwise
}

// isRefused reports whether the driver was asked for a machine, and has not made it as far as is
// known.
func (b *backend) isRefused(m *member) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return m.isRefused()
}

// isRefused is the same. b.mu is held.
func (m *member) isRefused() bool { return m.refused && !m.listed && m.record == nil }

func cutGeneration(name string) (base string, generation int, ok bool) {
	i := strings.LastIndexByte(name, '-')
	if i < 0 {
		return "", 0, false
	}
	generation, err := strconv.Atoi(name[i+1:])
	return name[:i], generation, err == nil && generation > 0
}

// unusable returns why a pod that is in no machine cannot be given to this one; nil if it can.
func (b *backend) unusable(m *member) error {
	b.mu.Lock()
	why, silent := b.whyUnusableLocked(m)
	machine := m.machine
	b.mu.Unlock()
	switch {
	case why == "":
		return nil
	case silent: // what it has written may say more
		why += b.console(machine)
	}
	return errors.New(why)
}

// whyUnusableLocked is empty for a machine that can be used; silent is one that has not asked for its
// certificate. b.mu is held.
func (b *backend) whyUnusableLocked(m *member) (why string, silent bool) {
	name, tag := m.machine.Name, m.machine.Tags[tagAuthority]
	switch age := time.Since(m.since); {
	case m.isReplaced():
		why = fmt.Sprintf("machine %s was lost", name)
	case !m.machine.TakenAt.IsZero():
		why = fmt.Sprintf("machine %s will be taken", name)
	case m.machine.State == Ended || m.machine.State == Ending || m.ending:
		why, silent = fmt.Sprintf("machine %s has ended", name), m.record == nil && !m.ending
	case tag != "" && tag != b.authority.fingerprint():
		why = fmt.Sprintf("machine %s trusts another certificate authority than the one in the state directory", name)
	case m.record != nil && !m.missing.IsZero() && (m.listed || age > b.cfg.BootTimeout.Duration) && time.Since(m.missing) > b.cfg.MissingTimeout.Duration:
		why = fmt.Sprintf("machine %s is gone", name)
	case m.spec != nil && !m.listed: // the driver is still asked for it
	case m.record == nil && min(age, time.Since(b.answering)) > b.cfg.BootTimeout.Duration:
		why, silent = fmt.Sprintf("the agent of machine %s has not asked for its certificate within %v", name, b.cfg.BootTimeout.Duration), true
	case m.missing.IsZero() && m.machine.Address == "" && age > b.cfg.BootTimeout.Duration:
		why = fmt.Sprintf("machine %s has had no address for %v", name, b.cfg.BootTimeout.Duration)
	case m.record != nil && m.link != nil && m.link.silentFor() > b.cfg.UnreachableTimeout.Duration:
		why = fmt.Sprintf("the agent of machine %s cannot be reached", name)
	}
	return why, silent
}

// console returns the end of a machine's console, for an error. The machine may write anything.
func (b *backend) console(m Machine) string {
	ctx, cancel := context.WithTimeout(b.ctx, 10*time.Second)
	defer cancel()
	text, err := b.driver.Console(ctx, m, consoleBytes)
	if err != nil || text == "" {
		return ""
	}
	return fmt.Sprintf("; its console ends with %q", text)
}

// end ends a machine that may have been given the pod that is to be given to another one, and
// returns an error until it is gone.
func (b *backend) end(ctx context.Context, m *member) error {
	machine := b.seen(m)
	if machine.State != Ended {
		if err := b.delete(ctx, machine); err != nil {
			return err
		}
		list, err := b.list(ctx)
		if err != nil {
			return err
		}
		// A list may lack a machine that still runs, and with it the pod.
		if left, ok := list[machine.Name]; ok && left.State != Ended || !ok && b.answers(ctx, m) {
			return errdefs.AsRetryAfter(errdefs.AsUnavailable(fmt.Errorf("machine %s has not ended yet", machine.Name)), bootPoll)
		}
	}
	b.mu.Lock()
	kept := m.isReplaced() // until another machine has the pod
	b.mu.Unlock()
	if kept {
		return nil
	}
	return b.forget(machine.Name)
}

// make has the driver make a machine, if there is none, and its pod is still there when it is its
// turn. A driver that is slow goes on when ctx has ended.
func (b *backend) make(ctx context.Context, name string, r *podgroup.Request) error {
	b.mu.Lock()
	m := b.members[name]
	there := m != nil && (m.made || m.listed || m.spec == nil)
	b.mu.Unlock()
	if there {
		return nil
	}
	b.event(r.Pod, name)
	answer := b.making.DoChan(name, func() (any, error) {
		done, err := b.creations.take(b.ctx)
		if err != nil {
			return nil, errdefs.AsUnavailable(errClosed)
		}
		defer done()
		if !b.wants(podgroup.OwnerOf(r.Pod)) {
			return nil, errdefs.AsUnavailable(errors.New("the pod is not there any more"))
		}
		m, spec, err := b.plan(name, r)
		if err != nil {
			return nil, err
		}
		b.mu.Lock()
		m.refused = false // while it is asked again
		b.mu.Unlock()
		late, cancel := context.WithTimeoutCause(b.ctx, creationTimeout, errors.New("the driver has not made it in "+creationTimeout.String()))
		defer cancel()
		made, err := b.driver.Create(late, spec)
		return nil, b.accept(ctx, m, made, err)
	})
	select {
	case a := <-answer:
		return a.Err
	case <-ctx.Done():
		return errdefs.AsRetryAfter(errdefs.AsUnavailable(fmt.Errorf("machine %s is being made", name)), time.Second)
	}
}

// plan returns what a machine is made with: the same again where an answer was lost.
func (b *backend) plan(name string, r *podgroup.Request) (*member, Spec, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.members[name]
	if m != nil && m.spec != nil {
		return m, *m.spec, nil
	}
	for _, other := range b.members {
		if uidOf(other.machine) == r.Pod.UID && other.isAssigned() && !other.isReplaced() && !other.ending {
			return nil, Spec{}, errdefs.AsUnavailable(fmt.Errorf("the pod has machine %s now", other.machine.Name))
		}
	}
	spec, err := b.newSpec(name, r.Tags)
	if err != nil {
		return nil, Spec{}, err
	}
	spec.CPU, spec.Memory = r.Size.CPU.MilliValue(), r.Size.Memory.Value()
	if chosen, why := b.cfg.typeOf(r.Pod); chosen != nil {
		spec.setType(chosen)
	} else if why != "" {
		return nil, Spec{}, errdefs.AsPermanent(fmt.Errorf("there is not: %s", why))
	}
	// An agent may ask before the driver has answered.
	m = &member{since: time.Now(), spec: spec, machine: Machine{Name: name, Tags: spec.Tags}}
	b.members[name] = m
	return m, *spec, nil
}

// newSpec returns a machine to be made that has a token, and these tags among others.
func (b *backend) newSpec(name string, identity map[string]string) (*Spec, error) {
	token := rand.Text() + rand.Text()
	tags := maps.Clone(identity)
	tags[tagMachine], tags[tagToken], tags[tagAuthority] = name, digestOf(token), b.authority.fingerprint()
	data, err := json.Marshal(agent.Bootstrap{
		Machine: name, Node: b.node, URL: b.cfg.Bootstrap.URL, CA: b.authority.pem(), Token: token, Port: b.cfg.AgentPort, Time: time.Now().UTC(),
	})
	if err != nil {
		return nil, err
	}
	return &Spec{Name: name, Tags: tags, UserData: string(data)}, nil
}

// setType has a machine be one of a type.
func (s *Spec) setType(t *TypeConfig) {
	s.Type, s.Arguments, s.CPU, s.Memory = t.Name, t.Arguments, t.CPU.MilliValue(), t.Memory.Value()
	s.Tags[tagType] = t.Name
}

// accept takes the driver's answer to a creation.
func (b *backend) accept(ctx context.Context, m *member, made Machine, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := m.machine.Name
	switch {
	case errdefs.IsPermanent(err):
		delete(b.members, name)
		return fmt.Errorf("machine %s cannot be made: %w", name, err)
	case err != nil:
		m.refused = true
		return fmt.Errorf("machine %s cannot be made: %w", name, err)
	case made.Name != name:
		m.refused = true
		return errdefs.AsUnavailable(fmt.Errorf("the driver was asked for machine %s, and has answered with %q", name, clip(made.Name, 100)))
	}
	if made.Tags[tagToken] != "" {
		m.setTags(made.Tags) // it was made before this process began, with another token
	}
	m.machine.ID, m.made, m.spec, m.refused = made.ID, true, nil, false
	if !m.listed { // a list is newer
		m.since = time.Now()
		m.machine.State, m.machine.Address = made.State, made.Address
	}
	log.G(ctx).WithFields(log.Fields{"machine": name, "id": made.ID}).Info("Made a machine")
	b.wakeLocked()
	return nil
}

// await waits until the agent of a machine has its certificate, and the machine an address.
func (b *backend) await(ctx context.Context, name string) (*member, error) {
	poll := time.NewTicker(bootPoll)
	defer poll.Stop()
	for {
		b.mu.Lock()
		m, changed := b.members[name], b.changed
		ready := m != nil && m.record != nil && m.machine.Address != ""
		b.mu.Unlock()
		switch {
		case m == nil:
			return nil, errdefs.AsUnavailable(fmt.Errorf("machine %s is gone", name))
		case ready:
			return m, nil
		}
		select {
		case <-changed:
		case <-poll.C:
			if _, err := b.listAfter(ctx, time.Now().Add(-bootPoll)); err != nil && ctx.Err() == nil {
				log.G(ctx).WithError(err).Debug("Cannot look for a machine that starts")
			}
			if err := b.unusable(m); err != nil {
				return nil, errdefs.AsUnavailable(err)
			}
			if err := b.back(m); err != nil {
				return nil, err
			}
		case <-b.ctx.Done():
			return nil, errdefs.AsUnavailable(errClosed)
		case <-ctx.Done():
			return nil, errdefs.AsRetryAfter(errdefs.AsUnavailable(fmt.Errorf("machine %s starts: its agent has no certificate yet", name)), time.Second)
		}
	}
}

// alone returns an error if another machine that may have the pod is there: one that was lost may
// have come back since then. It is ended when the creation is begun again.
func (b *backend) alone(ctx context.Context, m *member) error {
	if b.rival(m, false) == "" {
		return nil
	}
	if _, err := b.list(ctx); err != nil {
		return err
	}
	return b.back(m)
}

// back returns an error if lists have another machine that may have the pod.
func (b *backend) back(m *member) error {
	if name := b.rival(m, true); name != "" {
		return errdefs.AsRetryAfter(errdefs.AsUnavailable(fmt.Errorf("machine %s, which was lost, is back: it is ended first", name)), bootPoll)
	}
	return nil
}

// rival returns the name of another machine that may have the pod of one: of all that are known,
// or of those that are there.
func (b *backend) rival(m *member, there bool) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, other := range b.members {
		if other != m && other.record != nil && uidOf(other.machine) == uidOf(m.machine) && (!there || other.isThere()) {
			return name
		}
	}
	return ""
}

// isThere reports whether something may run in a machine, going by the last list. b.mu is held.
func (m *member) isThere() bool { return m.missing.IsZero() && m.machine.State != Ended }

// give gives the pod to its machine. It is not given to another one unless this one is gone.
func (b *backend) give(ctx context.Context, m *member, pod *corev1.Pod) (podgroup.Unit, error) {
	err := b.unsent(pod.UID, b.reach(ctx, m))
	if err == nil {
		err = b.linkTo(m).give(ctx, pod)
	}
	if err != nil {
		if errdefs.IsPermanent(err) || errors.Is(err, errTooMany) {
			b.abandon(m)
			return podgroup.Unit{}, err
		}
		return podgroup.Unit{}, fmt.Errorf("machine %s does not take the pod: %w", b.seen(m).Name, err)
	}
	unit, err := b.setGiven(ctx, m)
	if len(unit.Containers) > 0 {
		b.publish(m) // what the agent has reported until now was not
	}
	return unit, err
}

// setGiven records that a machine has its pod, which may have ended since.
func (b *backend) setGiven(ctx context.Context, m *member) (podgroup.Unit, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	given := b.givenLocked(m)
	if err := b.records.save(given); err != nil {
		return podgroup.Unit{}, errdefs.AsUnavailable(err)
	}
	m.record = given
	delete(b.generations, uidOf(m.machine))
	b.settleLocked(ctx, m)
	return b.unitLocked(m), nil
}

// givenLocked returns the record of a machine that has its pod. b.mu is held.
func (b *backend) givenLocked(m *member) *record {
	given := *m.record
	given.Given, given.Address, given.Tags = true, m.machine.Address, m.machine.Tags
	given.Past = b.pastLocked(uidOf(m.machine))
	return &given
}

// reach waits until the agent of a machine answers, as long as the machine can be used: one may end,
// or be taken, right after its agent was seen.
func (b *backend) reach(ctx context.Context, m *member) error {
	for {
		late, cancel := context.WithTimeout(ctx, bootPoll)
		_, err := b.linkTo(m).connected(late)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		if b.ctx.Err() != nil {
			return errdefs.AsUnavailable(errClosed)
		}
		if why := b.unusable(m); why != nil {
			return errdefs.AsUnavailable(why)
		}
	}
}

// setSent records that a pod may have reached the agent of its machine: the agent's answer may get lost,
// and the machine, or what the agent knows, too.
func (b *backend) setSent(m *member, sent bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := *m.record
	next.Sent = sent
	if err := b.records.save(&next); err != nil {
		return errdefs.AsUnavailable(err)
	}
	m.record = &next
	return nil
}

// wasSent reports whether the agent of a machine may have run its pod.
func (b *backend) wasSent(m *member) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return m.record != nil && m.record.Sent
}

// unsent marks the error of what comes before a pod is sent: a machine without its pod is no unit of it. Of
// a machine that may have the pod since an earlier creation it leaves the error as it is.
func (b *backend) unsent(uid types.UID, err error) error {
	for _, m := range b.membersOf(uid) {
		if b.wasSent(m) {
			return err
		}
	}
	return podgroup.NotCreated(err)
}

// errClosed is the error of what the end of the provider breaks off.
var errClosed = errors.New("the provider is closed")

// errTooMany is the error of a machine that has other pods than its own.
var errTooMany = errors.New("the machine has another pod than its own")
