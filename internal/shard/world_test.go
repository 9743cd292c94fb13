package shard_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/internal/shard"
)

// world has the leases as an API server would, and sees which process serves what.
type world struct {
	t     *testing.T
	count int // of shards

	mu      sync.Mutex
	random  *rand.Rand
	version int
	leases  map[string]*coordinationv1.Lease
	shown   map[string]int // the version since which a lease is listed
	members []*process     // all that have ever been
	serving map[int]string // who serves a shard
	moves   int            // how often one was given away or lost
	ended   map[error]int  // how often, by the cause
}

func newWorld(t *testing.T, count int, seed uint64) *world {
	return &world{t: t, count: count, random: rand.New(rand.NewPCG(seed, 0)), leases: map[string]*coordinationv1.Lease{}, shown: map[string]int{}, serving: map[int]string{}, ended: map[error]int{}}
}

func (w *world) intn(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(n)
}

// loads are how many shards each serves, and unserved those that nobody does.
func (w *world) loads() (loads map[string]int, unserved []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	loads = map[string]int{}
	for i := range w.count {
		if who := w.serving[i]; who != "" {
			loads[who]++
		} else {
			unserved = append(unserved, i)
		}
	}
	return loads, unserved
}

// The ways to the API server.
const (
	wayOpen    = iota
	wayRefused // requests fail
	wayHangs   // requests are not answered
	wayDeaf    // requests are granted, and the answers lost
)

// process is one that takes part.
type process struct {
	*world
	name   string
	cancel context.CancelFunc
	over   chan struct{}
	way    int  // guarded by world.mu
	dead   bool // guarded by world.mu
	saw    sight
}

// sight is what a process has seen of the leases; it is guarded by world.mu.
type sight struct {
	at      time.Time // of its last list
	version int       // of the world then
	shards  int       // leases of them, in the last list
	any     bool      // whether there has been one in any list
}

// join starts a process.
func (w *world) join(name string) *process {
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{world: w, name: name, cancel: cancel, over: make(chan struct{})}
	w.mu.Lock()
	w.members = append(w.members, p)
	w.mu.Unlock()
	go func() {
		defer close(p.over)
		err := shard.Run(ctx, shard.Config{Leases: p, Name: "vk", Identity: name, Shards: w.count, Serve: p.serve})
		if err != nil {
			w.t.Error(err)
		}
	}()
	return p
}

// serve is what a process does for a shard: it sees to it that nobody else does.
func (p *process) serve(ctx context.Context, shard int) {
	p.mu.Lock()
	if other := p.world.serving[shard]; other != "" && !p.dead {
		p.t.Errorf("%s serves shard %d, while %s does", p.name, shard, other)
	}
	if !p.dead {
		p.world.serving[shard] = p.name
	}
	p.mu.Unlock()
	<-ctx.Done()
	time.Sleep(time.Duration(p.intn(2000)) * time.Millisecond) // what is under way
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.dead {
		delete(p.world.serving, shard)
		p.moves++
		p.ended[context.Cause(ctx)]++
	}
}

// end stops the process in good order.
func (p *process) end() {
	p.cancel()
	<-p.over
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
}

// kill ends the process from one moment to the next.
func (p *process) kill() {
	p.mu.Lock()
	p.dead = true
	for shard, who := range p.world.serving {
		if who == p.name {
			delete(p.world.serving, shard)
		}
	}
	p.mu.Unlock()
	p.cancel()
	<-p.over
}

func (p *process) setWay(way int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.way = way
}

var errUnreachable = errors.New("the API server cannot be reached")

// request has f done by the API server.
func request[T any](ctx context.Context, p *process, f func() (T, error)) (result T, err error) {
	time.Sleep(time.Duration(p.intn(200)) * time.Millisecond)
	p.mu.Lock()
	way := p.way
	if p.dead {
		way = wayRefused
	}
	if way == wayOpen || way == wayDeaf {
		result, err = f()
	}
	p.mu.Unlock()
	switch way {
	case wayRefused:
		return result, errUnreachable
	case wayHangs, wayDeaf:
		<-ctx.Done()
		return result, context.Cause(ctx)
	}
	time.Sleep(time.Duration(p.intn(200)) * time.Millisecond)
	return result, err
}

var leases = coordinationv1.Resource("leases")

// List implements shard.Leases.
func (p *process) List(ctx context.Context, opts metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	byLabel, err := labels.Parse(opts.LabelSelector)
	if err != nil {
		return nil, err
	}
	byName, err := fields.ParseSelector(opts.FieldSelector)
	if err != nil {
		return nil, err
	}
	return request(ctx, p, func() (*coordinationv1.LeaseList, error) {
		list := &coordinationv1.LeaseList{}
		for _, lease := range p.leases {
			if byLabel.Matches(labels.Set(lease.Labels)) && byName.Matches(fields.Set{metav1.ObjectNameField: lease.Name}) {
				list.Items = append(list.Items, *lease.DeepCopy())
			}
		}
		if byName.Empty() {
			p.see(list.Items)
		}
		return list, nil
	})
}

// see records what a list has shown. p.mu is held.
func (p *process) see(list []coordinationv1.Lease) {
	if p.way != wayOpen {
		return
	}
	shards := 0
	for i := range list {
		if isShard(list[i].Name) {
			shards++
		}
	}
	p.saw = sight{time.Now(), p.version, shards, p.saw.any || shards > 0}
}

// misses is how many leases of shards were missing when the process looked last.
func (p *process) misses() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count - p.saw.shards
}

// Create implements shard.Leases.
func (p *process) Create(ctx context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return request(ctx, p, func() (*coordinationv1.Lease, error) {
		switch {
		case lease.ResourceVersion != "" || lease.UID != "":
			p.t.Errorf("%s creates lease %s with version %q and UID %q", p.name, lease.Name, lease.ResourceVersion, lease.UID)
		case p.leases[lease.Name] != nil:
			return nil, apierrors.NewAlreadyExists(leases, lease.Name)
		}
		lease = lease.DeepCopy()
		lease.UID = types.UID(fmt.Sprint("uid-", p.version+1))
		return p.put(lease), nil
	})
}

// Update implements shard.Leases.
func (p *process) Update(ctx context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return request(ctx, p, func() (*coordinationv1.Lease, error) {
		switch before := p.leases[lease.Name]; {
		case before == nil:
			return nil, apierrors.NewNotFound(leases, lease.Name)
		case before.ResourceVersion != lease.ResourceVersion:
			return nil, apierrors.NewConflict(leases, lease.Name, errors.New("it was written meanwhile"))
		}
		return p.put(lease), nil
	})
}

// Delete implements shard.Leases.
func (p *process) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	_, err := request(ctx, p, func() (struct{}, error) {
		switch before := p.leases[name]; {
		case before == nil:
			return struct{}{}, apierrors.NewNotFound(leases, name)
		case before.ResourceVersion != *opts.Preconditions.ResourceVersion:
			return struct{}{}, apierrors.NewConflict(leases, name, errors.New("it was written meanwhile"))
		}
		delete(p.leases, name)
		return struct{}{}, nil
	})
	return err
}

// put stores a lease. w.mu is held.
func (w *world) put(lease *coordinationv1.Lease) *coordinationv1.Lease {
	w.version++
	lease = lease.DeepCopy()
	lease.ResourceVersion = strconv.Itoa(w.version)
	if before := w.leases[lease.Name]; before == nil || !listed(before) {
		w.shown[lease.Name] = w.version
	}
	w.leases[lease.Name] = lease
	return lease.DeepCopy()
}

// listed reports whether processes find a lease.
func listed(lease *coordinationv1.Lease) bool { return lease.Labels[shard.Label] == "vk" }

func isShard(name string) bool { return strings.HasPrefix(name, "vk-shard-") }

// surplus is how many leases there are of shards that there are not.
func (w *world) surplus() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range w.leases {
		if number, err := strconv.Atoi(strings.TrimPrefix(name, "vk-shard-")); err == nil && number >= w.count {
			n++
		}
	}
	return n
}

// delete deletes leases as somebody does who takes no part, and returns how many.
func (w *world) delete(which func(lease *coordinationv1.Lease) bool) (deleted int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(w.leases)) {
		if which(w.leases[name]) {
			delete(w.leases, name)
			deleted++
		}
	}
	return deleted
}

// unlabel takes the label from leases as somebody does who takes no part, and returns of how
// many.
func (w *world) unlabel(which func(lease *coordinationv1.Lease) bool) (unlabelled int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(w.leases)) {
		if lease := w.leases[name].DeepCopy(); which(lease) && listed(lease) {
			delete(lease.Labels, shard.Label)
			w.put(lease)
			unlabelled++
		}
	}
	return unlabelled
}

// wasSeen reports whether all processes have seen the lease of a shard since it was
// listed, but for those that have not looked for so long that they trust nothing
// that they have seen: when it is deleted again before, they cannot know. w.mu is held.
func (w *world) wasSeen(lease *coordinationv1.Lease) bool {
	shown := w.shown[lease.Name]
	return !slices.ContainsFunc(w.members, func(p *process) bool {
		long := p.saw.any && time.Since(p.saw.at) > 11*time.Second
		return !p.dead && p.saw.version < shown && !long
	})
}

// known reports whether a process that starts can know that shards are served: none
// is, or the lease of one is listed.
func (w *world) known() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.serving) == 0 || slices.ContainsFunc(slices.Collect(maps.Values(w.leases)), func(lease *coordinationv1.Lease) bool {
		return ofShards(lease) && listed(lease)
	})
}

// wantBalance fails the test unless the processes serve all shards, and each has
// its share.
func (w *world) wantBalance(what string, processes ...*process) {
	w.t.Helper()
	loads, unserved := w.loads()
	if len(unserved) > 0 {
		w.t.Errorf("%s: nobody serves the shards %v", what, unserved)
	}
	var counts []int
	for _, p := range processes {
		counts = append(counts, loads[p.name])
		delete(loads, p.name)
	}
	if len(loads) > 0 {
		w.t.Errorf("%s: shards are served by %v, who are not there", what, loads)
	}
	if slices.Max(counts)-slices.Min(counts) > 1 {
		w.t.Errorf("%s: the shares are %v", what, counts)
	}
}

func nameOf(i int) string { return fmt.Sprint("process-", i) }
