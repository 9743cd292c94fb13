package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/clusteruid"
	"github.com/virtual-kubelet/virtual-kubelet/internal/turns"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// The keys of tags beside podgroup's.
const (
	// tagMachine is the machine's name.
	tagMachine = "MachineName"
	// tagToken is the SHA-256 of its token, and tagAuthority the authority that its agent trusts.
	tagToken, tagAuthority = "TokenSHA256", "Authority"
	// tagType is the type of the machine, if it has one.
	tagType = "MachineType"
	// tagReserve is the kind of a machine that was made for no pod yet: see reserve.go.
	tagReserve = "Reserve"
	// maxTag is how long a value may be.
	maxTag = 128
)

// Sample returns a provider for nodeutil.Capabilities, and for nothing else.
func Sample() nodeutil.Provider { return podgroup.Sample(&backend{}) }

// New returns the provider of a node, which it configures. It opens the state directory and the
// port for machines, and asks the driver nothing; a nil driver is that of the configuration. The
// provider is an io.Closer: closing it leaves the machines as they are.
func New(init nodeutil.ProviderConfig, c Config, driver Driver) (nodeutil.Provider, node.NodeProvider, error) {
	b, err := newBackend(init, c, driver)
	if err != nil {
		return nil, nil, err
	}
	p, n, err := podgroup.New(init, b, b.options())
	if err != nil {
		return nil, nil, errors.Join(err, b.Close())
	}
	return p, n, nil
}

// backend gives each pod a machine. It is safe for concurrent use.
type backend struct {
	cfg          Config
	driver       Driver
	init         nodeutil.ProviderConfig
	node         string
	records      records
	authority    *authority
	listener     net.Listener
	clusterUID   *clusteruid.Reader
	pingInterval time.Duration // of agents
	firstRetry   time.Duration // firstBootRetry
	greetTimeout time.Duration
	making       singleflight.Group // by name
	pods         turns.Turns        // creations, by UID
	creations    limiter
	inReserve    limiter // those of creations that are for the reserve
	deletions    limiter
	lists        turns.Turns // of one thing
	last         listing     // lists guards it
	kinds        []kind      // of machines in reserve
	metrics      *reserveMetrics
	requestAgain func(context.Context, *corev1.Pod) (*podgroup.Request, error)

	ctx     context.Context // ends with the backend
	cancel  context.CancelFunc
	begin   sync.Mutex
	begun   bool       // begin guards it
	closing sync.Mutex // work begins before ctx ends
	work    sync.WaitGroup

	notifying   sync.Mutex // units are reported in the order of their changes
	mu          sync.Mutex
	answering   time.Time          // since when machines can ask for certificates
	members     map[string]*member // by name
	generations map[types.UID]int  // of the machines of pods that have not been given to one
	changed     chan struct{}      // closed when something has
	guards      bool               // most agents are out of reach
	notify      func(podgroup.Unit)
	unseen      []podgroup.Unit     // that have gone while there was no watch
	reserves    map[string]*reserve // by the key of the kind
}

// member is a machine of this node.
type member struct {
	machine Machine
	record  *record       // nil until its agent has a certificate
	link    *link         // nil until the agent is needed
	since   time.Time     // when it was made, or is known first
	spec    *Spec         // while it is being made
	made    bool          // the driver has answered
	refused bool          // with an error, the last time
	listed  bool          // a list has had it
	missing time.Time     // since when lists lack it
	ending  bool          // it is being deleted
	silent  bool          // it is being deleted because its agent could not be reached
	busy    bool          // something goes on in the background for it
	warned  bool          // that lists lack it, and its agent answers
	astray  bool          // the same was warned of when it was to be ended
	asked   bool          // its agent was asked to end the pod, since the machine will be taken
	cancel  func()        // ends the creation of another machine in its place
	grace   time.Duration // of the deletion of its pod that came meanwhile
	again   time.Time     // when that is begun again at the earliest
	orphan  int           // for how many lists in a row it has had no pod
	hurry   chan struct{}
	hurried sync.Once

	// Of one in reserve:
	planned  bool            // its record was there before it was made: it has had no pod
	promised *podgroup.Owner // no other pod may get it
	doubtful bool            // that this pod has got it may be recorded, or not
	deaf     time.Time       // since when its agent cannot be reached
	greeted  bool            // its agent was reached when it was tried last
}

var (
	_ podgroup.Watcher     = (*backend)(nil)
	_ podgroup.Updater     = (*backend)(nil)
	_ podgroup.LogStreamer = (*backend)(nil)
	_ podgroup.Execer      = (*backend)(nil)
	_ podgroup.Attacher    = (*backend)(nil)
	_ podgroup.Forwarder   = (*backend)(nil)
	_ podgroup.Meter       = (*backend)(nil)
	_ podgroup.Replacer    = (*backend)(nil)
)

func newBackend(init nodeutil.ProviderConfig, c Config, driver Driver) (*backend, error) {
	if driver != nil && c.Exec == nil && c.Qemu == nil && len(c.EC2) == 0 {
		c.Exec = &ExecConfig{Command: []string{"none"}} // which is not run
	}
	if err := c.complete(); err != nil {
		return nil, err
	}
	b := &backend{
		cfg: c, driver: driver, init: init, node: init.Node.Name,
		records: records{filepath.Join(c.StateDir, "machines")}, clusterUID: clusteruid.New(init.Client.CoreV1()),
		members: map[string]*member{}, generations: map[types.UID]int{}, changed: make(chan struct{}),
		kinds: c.kinds(), reserves: map[string]*reserve{},
		pingInterval: pingInterval, firstRetry: firstBootRetry, greetTimeout: greetTimeout, creations: make(limiter, creations), inReserve: make(limiter, creationsInReserve), deletions: make(limiter, deletions),
	}
	_, err := b.load() // what is wrong with it shows at the start
	if err != nil {
		return nil, err
	}
	if b.authority, err = openAuthority(c.StateDir); err != nil {
		return nil, err
	}
	if b.driver == nil {
		if b.driver, err = newDriver(c); err != nil {
			return nil, err
		}
	}
	if b.listener, err = net.Listen("tcp", c.Bootstrap.Listen); err != nil {
		return nil, errors.Join(fmt.Errorf("machines cannot reach the node: %w", err), b.closeDriver())
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.metrics = newReserveMetrics(init.Metrics)
	return b, nil
}

func (b *backend) options() podgroup.Options {
	capacity := corev1.ResourceList{corev1.ResourceCPU: *b.cfg.CPU, corev1.ResourceMemory: *b.cfg.Memory, corev1.ResourcePods: *b.cfg.Pods}
	maps.Copy(capacity, b.cfg.Resources)
	return podgroup.Options{
		Service: "Machines", Scheme: "machine",
		Identity:      podgroup.Identity{Cluster: b.cfg.Cluster, MaxTag: maxTag},
		MaxName:       56,            // with a generation
		CreateTimeout: createTimeout, // less than what makes a call of the provider a slow one
		Capacity:      capacity,
		Features: podgroup.Features{
			// What the engine in the machine does not have, it refuses itself.
			Fields: []string{
				"restartPolicy", "initContainers", "initContainers.restartPolicy", "containers", "securityContext", "hostname", "hostAliases",
				"dnsConfig", "setHostnameAsFQDN", "shareProcessNamespace",
				"volumes.emptyDir", "volumes.configMap", "volumes.secret", "volumes.downwardAPI", "volumes.projected",
			},
			// Volumes are read before a machine is made, which then waits for none of them. From
			// then on the connection with the agent reads them, and sends what has changed.
			Renew: nil,
			Check: func(pod *corev1.Pod) []string {
				if _, why := b.cfg.typeOf(pod); why != "" {
					return []string{why}
				}
				return nil
			},
		},
	}
}

// load returns all records, which have to be of this node: it would end the machines of another one.
func (b *backend) load() ([]*record, error) {
	known, err := b.records.load()
	for _, r := range known {
		if cluster, node := joined(r.Tags, podgroup.TagClusterName), joined(r.Tags, podgroup.TagNodeName); cluster != b.cfg.Cluster || node != b.node {
			err = fmt.Errorf("machine %s is one of node %q of cluster %q: give each node a directory of its own; or remove the record %s once the machine is gone", r.Name, node, cluster, b.records.path(r.Name))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the state directory of machines cannot be used: %w", err)
	}
	return known, nil
}

// start reads the records and begins what goes on in the background, with the first call: before,
// another process may act for the node, and write records.
func (b *backend) start() error {
	b.begin.Lock()
	defer b.begin.Unlock()
	if b.begun {
		return nil
	}
	known, err := b.load()
	if err = errors.Join(err, b.records.clean()); err != nil {
		return errdefs.AsUnavailable(err)
	}
	b.metrics.set(b, true)
	b.mu.Lock()
	b.answering = time.Now() // those that have started meanwhile ask again
	for _, r := range known {
		r.noLaterThan(time.Now())
		m := &member{since: r.Created, machine: Machine{Name: r.Name, Tags: r.Tags, Address: r.Address, Created: r.Created}}
		m.planned = isReserve(m.machine)
		if r.Key != "" {
			m.record = r
		}
		b.members[r.Name] = m
	}
	b.mu.Unlock()
	b.begun = true
	b.goOn(func(ctx context.Context) {
		if err := b.serve(ctx, b.listener); err != nil && ctx.Err() == nil {
			log.G(ctx).WithError(err).Error("Machines can no longer reach the node: restart it")
		}
	})
	b.goOn(b.watchMachines)
	return nil
}

// goOn runs something until the backend is closed, which waits for it.
func (b *backend) goOn(run func(ctx context.Context)) {
	b.closing.Lock()
	defer b.closing.Unlock()
	if b.ctx.Err() == nil {
		b.work.Go(func() { run(b.ctx) })
	}
}

// inBackground runs something for a machine, unless that goes on already: a driver that is slow, or
// hangs, holds up nothing else.
func (b *backend) inBackground(m *member, run func(ctx context.Context)) {
	b.mu.Lock()
	busy := m.busy
	m.busy = true
	b.mu.Unlock()
	if busy {
		return
	}
	b.goOn(func(ctx context.Context) {
		defer func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			m.busy = false
		}()
		run(ctx)
	})
}

// Close implements io.Closer.
func (b *backend) Close() error {
	b.closing.Lock()
	b.cancel()
	b.closing.Unlock()
	b.metrics.set(b, false)
	err := b.listener.Close()
	b.work.Wait()
	if errors.Is(err, net.ErrClosed) { // what serves it may have been first
		err = nil
	}
	return errors.Join(err, b.closeDriver())
}

// closeDriver closes a driver that is an io.Closer.
func (b *backend) closeDriver() error {
	if closer, ok := b.driver.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// newDriver returns the driver of a configuration.
func newDriver(c Config) (Driver, error) {
	switch {
	case len(c.EC2) > 0:
		return nil, errdefs.InvalidInput("machine config: ec2: this program does not have the driver of Amazon EC2, which is the module providers/machine/ec2: give New the driver that ec2.New returns")
	case c.Qemu != nil:
		return newQemu(c.Qemu, c.StateDir)
	}
	return NewExec(c.Exec.Command)
}

// wake wakes those that wait for something to change.
func (b *backend) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wakeLocked()
}

func (b *backend) wakeLocked() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// mayBegin reports whether this process may act for the node of its own accord.
func (b *backend) mayBegin() bool { return b.init.MayBegin == nil || b.init.MayBegin() }

// machineName is what names of machines are like: records are files of these names.
var machineName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// isOurs reports whether a machine belongs to a pod of this node, or is in its reserve, going by its
// tags.
func (b *backend) isOurs(m Machine, clusterUID types.UID) bool {
	return machineName.MatchString(m.Name) && m.Tags[tagMachine] == m.Name && (m.Tags[podgroup.TagUID] != "" || m.Tags[tagReserve] != "") &&
		joined(m.Tags, podgroup.TagClusterName) == b.cfg.Cluster && joined(m.Tags, podgroup.TagNodeName) == b.node &&
		m.Tags[podgroup.TagClusterUID] == string(clusterUID)
}

// joined returns a value that podgroup has split into several tags.
func joined(tags map[string]string, key string) string {
	value, more := tags[key], true
	for n := 2; more; n++ {
		var part string
		part, more = tags[key+"."+strconv.Itoa(n)]
		value += part
	}
	return value
}

// membersOf returns the machines of a pod.
func (b *backend) membersOf(uid types.UID) (all []*member) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.members {
		if uidOf(m.machine) == uid {
			all = append(all, m)
		}
	}
	return all
}

func uidOf(m Machine) types.UID { return types.UID(m.Tags[podgroup.TagUID]) }

// seen returns a machine as it was seen last.
func (b *backend) seen(m *member) Machine {
	b.mu.Lock()
	defer b.mu.Unlock()
	return m.machine
}

// forget drops a machine that is gone, with its record. It fails if that cannot be written.
func (b *backend) forget(name string) error {
	if err := b.records.remove(name); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if m := b.members[name]; m != nil && m.link != nil {
		m.link.stop()
	}
	delete(b.members, name)
	b.wakeLocked()
	return nil
}
