package nomad

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// streamSilence is how long a stream may be silent; Nomad sends a heartbeat every 30 s.
const streamSilence = 90 * time.Second

// batch is a line of the event stream: all events of one index, or a heartbeat.
type batch struct {
	Index  uint64
	Events []event
	Error  json.RawMessage
}

// event is a change. The client's own type would lose digits of times, and hide heartbeats.
type event struct {
	Topic      api.Topic
	Type, Key  string
	FilterKeys []string
	Payload    json.RawMessage
}

// Watch implements podgroup.Watcher. Nomad keeps some events only, and does not say when
// those after an index are gone: so all jobs are listed once the stream is open.
func (b *backend) Watch(ctx context.Context, position string, changed func(podgroup.Unit)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(streamSilence, func() {
		cancel(errdefs.AsUnavailable(errors.New("the event stream of Nomad is silent, without heartbeats")))
	})
	defer silence.Stop()
	topics := url.Values{"topic": {string(api.TopicJob), string(api.TopicAllocation), string(api.TopicEvaluation)}, "index": {position}}
	stream, err := b.api.Raw().Response("/v1/event/stream?"+topics.Encode(), query(ctx))
	if err != nil {
		return classify(podgroup.ActionWatch, err)
	}
	defer stream.Close()
	silence.Reset(streamSilence)
	index, err := b.relist(ctx, changed)
	if err != nil {
		return err
	}
	b.sweepIfDue(ctx, true)
	decoder := json.NewDecoder(stream)
	for {
		var next batch
		if err := decoder.Decode(&next); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return errdefs.AsUnavailable(err)
		}
		silence.Reset(streamSilence)
		if len(next.Error) > 0 && string(next.Error) != "null" {
			return errdefs.AsUnavailable(errors.New("the server of Nomad has ended the event stream: it was too slow, or rights have changed"))
		}
		if len(next.Events) > 0 && next.Index < index {
			continue // the list has it
		}
		if len(next.Events) == 0 { // a heartbeat
			b.tryAgain(ctx, changed)
			b.sweepIfDue(ctx, false)
		}
		for i := range next.Events {
			if err := b.apply(ctx, &next.Events[i], changed); err != nil {
				return err
			}
		}
	}
}

// relist lists the jobs, and reports all that it finds, and what is gone.
func (b *backend) relist(ctx context.Context, changed func(podgroup.Unit)) (index uint64, err error) {
	records, index, err := b.list(ctx)
	if err != nil {
		return 0, err
	}
	b.mu.Lock()
	before := b.records
	b.records = records
	all := make([]*record, 0, len(records))
	for _, r := range records {
		all = append(all, r)
	}
	for id, r := range before {
		if records[id] == nil {
			b.missing(r)
		}
	}
	b.mu.Unlock()
	for id, r := range before {
		if records[id] == nil {
			changed(podgroup.Unit{ID: id, Tags: r.meta, Created: r.created, Phase: podgroup.Gone})
		}
	}
	for _, r := range all {
		b.report(ctx, r.id, changed)
	}
	return index, nil
}

// apply changes the records by an event, and reports the unit.
func (b *backend) apply(ctx context.Context, e *event, changed func(podgroup.Unit)) error {
	ours := func(key string) bool { return strings.HasPrefix(key, b.cfg.JobPrefix) }
	if !ours(e.Key) && !slices.ContainsFunc(e.FilterKeys, ours) {
		return nil
	}
	var payload struct {
		Job        *api.Job
		Allocation *api.Allocation
		Evaluation *api.Evaluation
	}
	if err := json.Unmarshal(e.Payload, &payload); err != nil {
		return errdefs.AsUnavailable(err)
	}
	switch e.Topic {
	case api.TopicJob:
		if payload.Job != nil {
			b.setJob(recordOf(payload.Job))
			b.report(ctx, e.Key, changed)
		}
	case api.TopicAllocation:
		if a := payload.Allocation; a != nil && ours(a.JobID) {
			return b.setAlloc(ctx, a, changed)
		}
	case api.TopicEvaluation:
		eval := payload.Evaluation
		if eval == nil || !ours(eval.JobID) {
			return nil
		}
		if e.Type == "JobDeregistered" { // the only event of a job that is removed
			return b.deregistered(ctx, eval.JobID, changed)
		}
		b.setTrouble(ctx, eval, changed)
	}
	return nil
}

// setJob sets what a job says of itself.
func (b *backend) setJob(found *record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.records[found.id]; known != nil && known.index == found.index {
		found.alloc, found.moved, found.trouble = known.alloc, known.moved, known.trouble
	}
	b.records[found.id] = found
}

// deregistered asks for a job that was stopped, or removed, which events do not tell apart.
func (b *backend) deregistered(ctx context.Context, id string, changed func(podgroup.Unit)) error {
	b.mu.Lock()
	known := b.records[id]
	b.mu.Unlock()
	if known == nil {
		return nil
	}
	return b.ask(ctx, id, known.meta, true, changed)
}

// ask asks for a job, reports it, and deletes its variables if it is gone. If it was not removed
// for sure, heartbeats ask until it has been absent for a while.
func (b *backend) ask(ctx context.Context, id string, meta map[string]string, removed bool, changed func(podgroup.Unit)) error {
	claimed := b.isOfNode(meta) && b.claim(id, math.MaxUint64) // first, so that nobody creates it in the meantime
	job, err := b.job1(ctx, id)
	isGone := err == nil && job == nil && (removed || claimed && b.isAbsent(id))
	if isGone && claimed {
		if err := b.wipe(ctx, id, meta); err != nil {
			logFailure(ctx, id, err)
		}
	}
	if claimed {
		b.release(id, job)
	}
	switch {
	case err != nil:
		return err
	case job != nil:
		b.setJob(job)
		b.report(ctx, id, changed)
	case !isGone:
		b.askAgain(id, meta)
	default:
		if known := b.forget(id); known != nil {
			changed(podgroup.Unit{ID: id, Tags: known.meta, Created: known.created, Phase: podgroup.Gone})
		}
	}
	return nil
}

// askAgain has the next heartbeat ask for a job, unless it does already.
func (b *backend) askAgain(id string, meta map[string]string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.again[id] == nil {
		b.again[id] = meta
	}
}

// tryAgain goes on with the jobs for which something has failed.
func (b *backend) tryAgain(ctx context.Context, changed func(podgroup.Unit)) {
	b.mu.Lock()
	again := b.again
	b.again = map[string]map[string]string{}
	b.mu.Unlock()
	for id, meta := range again {
		if err := b.ask(ctx, id, meta, false, changed); err != nil {
			b.askAgain(id, meta)
			logFailure(ctx, id, err)
		}
	}
}

// job1 requests one job; nil if there is none.
func (b *backend) job1(ctx context.Context, id string) (*record, error) {
	job, _, err := b.api.Jobs().Info(id, query(ctx))
	if isStatus(err, http.StatusNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, classify(podgroup.ActionWatch, err)
	}
	return recordOf(job), nil
}

// forget forgets a job that is gone, and returns what was known of it.
func (b *backend) forget(id string) *record {
	b.mu.Lock()
	defer b.mu.Unlock()
	known := b.records[id]
	delete(b.records, id)
	if s := b.state(id); !s.creating && s.cleaning == nil {
		delete(b.states, id)
	}
	return known
}

func (b *backend) setAlloc(ctx context.Context, a *api.Allocation, changed func(podgroup.Unit)) error {
	b.mu.Lock()
	known := b.records[a.JobID]
	b.mu.Unlock()
	if known == nil { // of a job that is gone, or whose event is still to come
		return nil
	}
	b.mu.Lock()
	next := *known
	next.add(a)
	b.records[a.JobID] = &next
	b.mu.Unlock()
	b.report(ctx, a.JobID, changed)
	return nil
}

func (b *backend) setTrouble(ctx context.Context, e *api.Evaluation, changed func(podgroup.Unit)) {
	trouble, ok := placement(e)
	if !ok {
		return
	}
	b.mu.Lock()
	known := b.records[e.JobID]
	if known != nil {
		next := *known
		next.trouble = trouble
		b.records[e.JobID] = &next
	}
	b.mu.Unlock()
	if known != nil {
		b.report(ctx, e.JobID, changed)
	}
}

// report reports the unit of a job, and does what Nomad does not: it lets init containers
// start whose turn it is, removes a job that has stopped and whose pod is deleted, and stops
// one whose pod has failed, so that it does not go on elsewhere.
func (b *backend) report(ctx context.Context, id string, changed func(podgroup.Unit)) {
	b.mu.Lock()
	r := b.records[id]
	b.mu.Unlock()
	if r == nil {
		return
	}
	u, ok := r.unit()
	if ok {
		changed(u)
	}
	if !b.isOfNode(r.meta) { // others have jobs with the prefix, which Nomad stops and moves as they want it
		return
	}
	if err := b.goOn(ctx, r, u.Over(), ok); err != nil && !errdefs.IsNotFound(err) {
		b.askAgain(id, r.meta)
		logFailure(ctx, id, err)
	}
}

// goOn does for report what a job needs that has a unit or not, which may be over.
func (b *backend) goOn(ctx context.Context, r *record, over, hasUnit bool) (err error) {
	b.mu.Lock()
	leaves := b.state(r.id).leaves
	b.mu.Unlock()
	if over || r.stopped && !hasUnit { // what it has of Secrets shall not outlive it
		if err := b.clean(ctx, r.id, r.meta, r.index); err != nil {
			return err
		}
	} else if !r.runsAgain() {
		err = b.openTurns(ctx, r)
	}
	remove := r.stopped && (!hasUnit || over && leaves)
	if remove || !r.stopped && r.displaced() != nil && (over || r.moved || r.runsAgain()) {
		_, _, failed := b.api.Jobs().Deregister(r.id, remove, write(ctx))
		err = errors.Join(err, classify(podgroup.ActionDelete, failed))
	}
	return err
}

// logFailure logs what the next heartbeat tries again; and Nomad removes dead jobs itself after
// some hours.
func logFailure(ctx context.Context, id string, err error) {
	if ctx.Err() != nil {
		return
	}
	log.G(ctx).WithError(err).WithField("job", id).Warn("Cannot go on with a job")
}
