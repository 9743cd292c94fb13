package grouptest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

var (
	// ErrNotFound is the error of a unit that does not exist.
	ErrNotFound = errors.New("there is no such unit")
	// ErrTokenReused is the error of a creation with the token of another one that is not
	// identical, or with the ID of a unit that exists.
	ErrTokenReused = errors.New("the token was used for another creation")
	// ErrBusy is the error of an update of a unit that takes none at the moment.
	ErrBusy = errors.New("the unit takes no updates now")
	// ErrLost is the error of Serve for a call whose answer is to be lost: the codec breaks
	// the connection off.
	ErrLost = errors.New("the answer is lost")
)

// World is a service that runs units. It is safe for concurrent use. The pod of a method is
// the tag podgroup.TagPodName of a unit, in no particular namespace.
type World struct {
	step      time.Duration
	retention time.Duration
	newest    int // units that are kept in spite of retention
	pageLife  time.Duration

	sent, received atomic.Int64 // bytes

	mu      sync.Mutex
	ahead   time.Duration // of the local clock
	next    int
	units   []*Unit
	tokens  map[string]creation
	pages   map[string]page
	faults  map[string][]*fault
	calls   map[string][]time.Time
	quotas  map[string]int
	refused int // calls beyond a quota
	listen  map[chan podgroup.Unit]bool
	hidden  bool // nothing is listed
}

// creation is the request and the result of a token.
type creation struct{ request, id string }

// Unit is a unit of a World.
type Unit struct {
	podgroup.Unit
	// Spec is that with which it was created.
	Spec Spec
	// Changed is when it changed last, and Changes how often it has.
	Changed time.Time
	Changes int

	number                    int
	started, deleted, updated time.Time
	logs                      map[string]*logs
}

// logs are the lines of a container's current run and the one before.
type logs struct{ now, last []Line }

// Line is a line of a log.
type Line struct {
	At   time.Time
	Text string
}

// Spec is what a codec has read from the request for a unit.
type Spec struct {
	// ID is that of the unit, where clients choose it: a second creation with the ID of a unit
	// that exists is ErrTokenReused. Defaults to one of the World's own.
	ID string
	// Token makes the creation idempotent, and Request is what has to be the same in two
	// creations with one token. Without a Token each creation makes a unit.
	Token, Request string
	Tags           map[string]string
	// InitContainers and Containers have a Name and an Image each.
	InitContainers, Containers []podgroup.Container
	// RestartPolicy is the pod's; empty is Always.
	RestartPolicy string
	// Deadline is how long it may run; zero is for ever.
	Deadline time.Duration
	// Grace is how long it takes to stop; zero is a step.
	Grace time.Duration
	// Files are those of its volumes.
	Files map[string]volume.Files
	// Data is what else the codec wants to find again.
	Data any
}

// New returns a World in which each stage of a unit, that is, pending, stopping and
// updating, takes step.
func New(step time.Duration) *World {
	return &World{
		step: step, pageLife: time.Minute, tokens: map[string]creation{}, pages: map[string]page{}, faults: map[string][]*fault{},
		calls: map[string][]time.Time{}, quotas: map[string]int{}, listen: map[chan podgroup.Unit]bool{},
	}
}

// SetRetention has units that have ended vanish after a time. Zero keeps them.
func (w *World) SetRetention(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.retention = d
}

// KeepNewest has SetRetention keep as many of the units that have ended last.
func (w *World) KeepNewest(count int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.newest = count
}

// Advance puts the clock forward.
func (w *World) Advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ahead += d
	w.progress()
}

// Now is the time of the world.
func (w *World) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now()
}

// now is the time of the world. The caller holds w.mu.
func (w *World) now() time.Time { return time.Now().Add(w.ahead) }

// Hide has lists be empty, or undoes that: as if a right were missing.
func (w *World) Hide(hidden bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hidden = hidden
}

// Create creates a unit, or returns the one that was created with the same token.
func (w *World) Create(spec Spec) (Unit, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.progress()
	if known, ok := w.tokens[spec.Token]; ok && spec.Token != "" {
		if known.request != spec.Request {
			return Unit{}, ErrTokenReused
		}
		if u := w.byID(known.id); u != nil {
			return u.clone(), nil
		}
		return Unit{Unit: podgroup.Unit{ID: known.id, Phase: podgroup.Gone}}, nil
	}
	if spec.ID != "" && w.byID(spec.ID) != nil {
		return Unit{}, ErrTokenReused
	}
	w.next++
	if spec.RestartPolicy == "" {
		spec.RestartPolicy = "Always"
	}
	u := &Unit{Spec: spec, number: w.next, logs: map[string]*logs{}}
	u.ID, u.Tags, u.Created, u.Files = cmp.Or(spec.ID, fmt.Sprintf("unit-%06d", w.next)), maps.Clone(spec.Tags), w.now(), spec.Files
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		u.Containers = append(u.Containers, podgroup.Container{Name: c.Name, Image: c.Image, Now: podgroup.Run{Reason: "ContainerCreating"}})
		u.logs[c.Name] = &logs{}
	}
	w.units = append(w.units, u)
	if spec.Token != "" {
		w.tokens[spec.Token] = creation{spec.Request, u.ID}
	}
	w.changed(u)
	w.progress()
	return u.clone(), nil
}

// Units returns the units that match, in the order of their creation. Matches must not
// change them, nor call the World.
func (w *World) Units(matches func(*Unit) bool) []Unit {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.progress()
	var found []Unit
	for _, u := range w.units {
		if !w.hidden && (matches == nil || matches(u)) {
			found = append(found, u.clone())
		}
	}
	return found
}

// Unit returns a unit by its ID, or ErrNotFound.
func (w *World) Unit(id string) (Unit, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.progress()
	if u := w.byID(id); u != nil {
		return u.clone(), nil
	}
	return Unit{}, ErrNotFound
}

// Delete stops and removes a unit.
func (w *World) Delete(id string) error {
	return w.change(id, func(u *Unit) error {
		if u.deleted.IsZero() {
			u.deleted = w.now()
			if !u.Over() {
				u.Phase = podgroup.Stopping
			}
		}
		return nil
	})
}

// Kill removes a unit at once.
func (w *World) Kill(id string) error {
	return w.change(id, w.kill)
}

func (w *World) kill(u *Unit) error {
	u.deleted = w.now().Add(-max(w.step, u.Spec.Grace))
	return nil
}

// Update changes images and files of a unit that runs, which takes a step. Containers with
// another image are started again.
func (w *World) Update(id string, images map[string]string, files map[string]volume.Files) error {
	return w.change(id, func(u *Unit) error {
		if u.Phase != podgroup.Running {
			return ErrBusy
		}
		if files != nil {
			u.Files = maps.Clone(u.Files)
			if u.Files == nil {
				u.Files = map[string]volume.Files{}
			}
			maps.Copy(u.Files, files)
		}
		for i := range u.Containers {
			c := &u.Containers[i]
			if image := images[c.Name]; image != "" && image != c.Image {
				c.Image = image
				u.restart(c, 0, w.now())
			}
		}
		u.Phase, u.updated = podgroup.Updating, w.now()
		return nil
	})
}

// change calls f with a unit, or returns ErrNotFound.
func (w *World) change(id string, f func(*Unit) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.progress()
	u := w.byID(id)
	if u == nil {
		return ErrNotFound
	}
	err := f(u)
	w.changed(u)
	w.progress()
	return err
}

// Log returns the lines of a container's current run, or of the one before.
func (w *World) Log(id, container string, previous bool) (lines []Line, err error) {
	err = w.change(id, func(u *Unit) error {
		l := u.logs[container]
		if l == nil {
			return ErrNotFound
		}
		if lines = slices.Clone(l.now); previous {
			lines = slices.Clone(l.last)
		}
		return nil
	})
	return lines, err
}

// LogText returns the lines of a log that a query wants.
func (w *World) LogText(id, container string, q podgroup.LogQuery) (string, error) {
	lines, err := w.Log(id, container, q.Previous)
	lines = slices.DeleteFunc(lines, func(l Line) bool { return l.At.Before(q.Since) })
	if q.Tail > 0 {
		lines = lines[max(0, len(lines)-q.Tail):]
	}
	var b strings.Builder
	for _, l := range lines {
		if q.Timestamps {
			b.WriteString(l.At.UTC().Format(time.RFC3339Nano) + " ")
		}
		b.WriteString(l.Text + "\n")
	}
	return b.String(), err
}

// byID returns a unit, or nil. The caller holds w.mu.
func (w *World) byID(id string) *Unit {
	i := slices.IndexFunc(w.units, func(u *Unit) bool { return u.ID == id })
	if i < 0 {
		return nil
	}
	return w.units[i]
}

// clone returns a copy that does not change any more.
func (u *Unit) clone() Unit {
	c := *u
	c.Containers, c.Events, c.Files, c.Tags = slices.Clone(u.Containers), slices.Clone(u.Events), maps.Clone(u.Files), maps.Clone(u.Tags)
	c.logs = nil
	return c
}

// Subscribe returns a channel with each change of a unit from now on, and a function that
// ends it. A subscriber that does not read loses events: the channel is closed then, as a
// service breaks off a stream.
func (w *World) Subscribe() (events <-chan podgroup.Unit, stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ch := make(chan podgroup.Unit, 1000)
	w.listen[ch] = true
	return ch, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.drop(ch)
	}
}

// BreakStreams ends all subscriptions.
func (w *World) BreakStreams() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.listen {
		w.drop(ch)
	}
}

// drop ends a subscription. The caller holds w.mu.
func (w *World) drop(ch chan podgroup.Unit) {
	if w.listen[ch] {
		delete(w.listen, ch)
		close(ch)
	}
}

// changed reports a change of a unit. The caller holds w.mu.
func (w *World) changed(u *Unit) {
	u.Changed = w.now()
	u.Changes++
	for ch := range w.listen {
		select {
		case ch <- u.clone().Unit:
		default:
			w.drop(ch)
		}
	}
}
