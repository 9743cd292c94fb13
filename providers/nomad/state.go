package nomad

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// state is what this process knows of a job beside what Nomad says of it.
type state struct {
	turn   int  // as far as it was opened
	leaves bool // the pod is deleted

	// since is the index of the job whose variables there are, and the maximum while it is not
	// known: none before it deletes them.
	since    uint64
	creating bool          // variables and job are written
	cleaning chan struct{} // while the variables are deleted; closed then
	absent   time.Time     // since when heartbeats have not found it
	clean    bool          // the variables were deleted, and not written again
}

// state returns the state of a job. The caller holds b.mu.
func (b *backend) state(id string) *state {
	if b.states[id] == nil {
		b.states[id] = &state{}
	}
	return b.states[id]
}

// missing drops the state of a job that a list lacks. If it may have variables, the next
// heartbeat asks for it, since a list also lacks what a token may not see. The caller holds b.mu.
func (b *backend) missing(r *record) {
	switch s := b.state(r.id); {
	case s.creating || s.cleaning != nil || r.index < s.since:
	case hasVariables(r.meta) && b.isOfNode(r.meta) && !s.clean:
		b.again[r.id] = r.meta
	default:
		delete(b.states, r.id)
	}
}

// begin begins the creation of a job, once no variables of one before with its ID are being
// deleted. The error is of class Unavailable.
func (b *backend) begin(ctx context.Context, id string) error {
	for {
		b.mu.Lock()
		cleaning := b.state(id).cleaning
		if cleaning == nil {
			b.states[id] = &state{since: math.MaxUint64, creating: true}
		}
		b.mu.Unlock()
		if cleaning == nil {
			return nil
		}
		select {
		case <-cleaning:
		case <-ctx.Done():
			return errdefs.AsUnavailable(fmt.Errorf("the variables of an earlier job %s are being deleted: %w", id, ctx.Err()))
		}
	}
}

// end ends the creation of a job. After an error it is not known whether there is one: if there
// is none, nothing but the next heartbeat deletes its variables.
func (b *backend) end(job *api.Job, index uint64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.state(*job.ID)
	s.creating = false
	if err != nil {
		b.writeTurns(job)
		return
	}
	s.since = index
}

// writeTurns has the next heartbeat write the turns of a job again, if there is one: those that
// Watch has written during its creation may have been deleted by it. The caller holds b.mu.
func (b *backend) writeTurns(job *api.Job) {
	b.state(*job.ID).turn = 0
	b.again[*job.ID] = job.Meta
}

// claim reserves the variables of a job, as of its index, for a deletion, which release ends.
func (b *backend) claim(id string, index uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.state(id)
	if s.creating || s.cleaning != nil || index < s.since {
		return false
	}
	s.cleaning = make(chan struct{})
	return true
}

// release ends what claim began. A job that was found in between has the variables.
func (b *backend) release(id string, found *record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.state(id)
	close(s.cleaning)
	s.cleaning = nil
	if found != nil {
		s.since, s.absent = found.index, time.Time{}
	}
}

// absence is for how long heartbeats have to miss a job before its variables are deleted. A leader
// of Nomad that was just elected does not have the last registrations at first, also those that
// the one before has refused because it lost the leadership.
const absence = 20 * time.Second

// isAbsent records that a heartbeat has not found a job that is claimed, and reports whether that
// counts.
func (b *backend) isAbsent(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.state(id)
	if s.absent.IsZero() {
		s.absent = time.Now()
	}
	return time.Since(s.absent) >= absence
}

// isOver reports whether the pod of a job has ended, or the job is gone.
func (b *backend) isOver(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.records[id]
	if r == nil {
		return true
	}
	u, hasUnit := r.unit()
	return !hasUnit || u.Over()
}

// clean deletes the variables of a job, as of its index, once, unless there is a newer one.
func (b *backend) clean(ctx context.Context, id string, meta map[string]string, index uint64) error {
	if !b.claim(id, index) {
		return nil
	}
	defer b.release(id, nil)
	return b.wipe(ctx, id, meta)
}

// wipe deletes the variables of a job that is claimed, if that was not done. After a failure
// the next heartbeat does it.
func (b *backend) wipe(ctx context.Context, id string, meta map[string]string) error {
	b.mu.Lock()
	s := b.state(id)
	done := s.clean || !hasVariables(meta)
	s.clean = s.clean || !done // before the deletion: what is written during it resets this
	b.mu.Unlock()
	if done {
		return nil
	}
	err := b.deleteVariables(ctx, id, meta)
	if err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		s.clean, b.again[id] = false, meta
	}
	return err
}
