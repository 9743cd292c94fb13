package slurm

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/providers/slurm/internal/login"
)

// Sample returns a provider for nodeutil.Capabilities, and for nothing else.
func Sample() nodeutil.Provider { return podgroup.Sample(&backend{}) }

// New returns the provider of a node, which it configures. It runs no command. The provider
// is an io.Closer: closing it leaves the jobs as they are. An error is of class InvalidInput.
func New(init nodeutil.ProviderConfig, c Config) (nodeutil.Provider, node.NodeProvider, error) {
	if err := c.complete(); err != nil {
		return nil, nil, err
	}
	b := newBackend(c, &login.Shell{Environment: c.Environment, SSH: c.SSH.argv()})
	return podgroup.New(init, b, b.options())
}

// backend runs pods as jobs. It is safe for concurrent use.
type backend struct {
	config Config
	runner login.Runner

	mu    sync.Mutex
	ended map[string]time.Time // when a job was first seen to have ended without a word of its script

	removeAt time.Time // not before this are directories removed
	missing  int       // lists in a row without the directory of all pods, and without a pod that needs it
}

// missingAgain is how many lists lack the directory of all pods before a creation makes it: in one of them
// it may be missed.
const missingAgain = 2

// removeAgain is how long directories stay that could not be removed: lists are frequent.
const removeAgain = time.Minute

var (
	_ podgroup.Lister      = (*backend)(nil)
	_ podgroup.Updater     = (*backend)(nil)
	_ podgroup.LogStreamer = (*backend)(nil)
	_ podgroup.Execer      = (*backend)(nil)
	_ podgroup.Meter       = (*backend)(nil)
	_ podgroup.Reporter    = (*backend)(nil)

	_ podgroup.EmptyConfirmer = (*backend)(nil)
)

// newBackend takes a configuration that is complete.
func newBackend(c Config, r login.Runner) *backend {
	return &backend{config: c, runner: r, ended: map[string]time.Time{}, missing: missingAgain}
}

func (b *backend) options() podgroup.Options {
	capacity := corev1.ResourceList{corev1.ResourcePods: b.config.Pods}
	if !b.config.CPU.IsZero() {
		capacity[corev1.ResourceCPU] = b.config.CPU
	}
	if !b.config.Memory.IsZero() {
		capacity[corev1.ResourceMemory] = b.config.Memory
	}
	return podgroup.Options{
		Service: "Slurm", Scheme: "slurm", Place: b.place(),
		Identity: podgroup.Identity{Cluster: b.config.Cluster, MaxTag: 1024},
		Features: b.features(),
		Capacity: capacity,
		Budget:   podgroup.NewBudget(map[podgroup.Action]int{podgroup.AnyAction: b.config.CallsPerMinute}),
		CacheFor: b.config.Refresh.Duration,
	}
}

// place is where the jobs and their directories are.
func (b *backend) place() string {
	if b.config.SSH == nil {
		return b.config.Root
	}
	return strings.TrimPrefix(b.config.SSH.User+"@", "@") + b.config.SSH.Host + ":" + b.config.Root
}

// run runs a command and returns what it has printed.
func (b *backend) run(ctx context.Context, action podgroup.Action, stdin io.Reader, verb string, args ...string) (string, error) {
	var out strings.Builder
	err := b.runner.Run(ctx, login.Command{Verb: verb, Args: args, Stdin: stdin, Stdout: &out})
	return out.String(), classify(action, err)
}

// nameOf returns the name of the job and the directory of a pod: another one if its unit was
// lost, and it is created again.
func nameOf(r *podgroup.Request) string {
	return r.Name + strings.TrimPrefix(r.Token, string(r.Pod.UID))
}

// directory returns that of a name.
func (b *backend) directory(name string) string { return b.config.Root + "/" + name }

// directoryOf returns that of a unit.
func (b *backend) directoryOf(u *podgroup.Unit) string {
	name, _ := u.Data.(string) // List and Create have set it
	return b.directory(name)
}

// Create implements podgroup.Backend.
func (b *backend) Create(ctx context.Context, r *podgroup.Request) (podgroup.Unit, error) {
	flags, err := b.flags(r)
	if err != nil {
		return podgroup.Unit{}, errdefs.AsPermanent(err)
	}
	files, err := b.stage(r)
	if err != nil {
		return podgroup.Unit{}, errdefs.AsPermanent(err)
	}
	if err := b.setUp(ctx); err != nil {
		return podgroup.Unit{}, err
	}
	directory := b.directory(nameOf(r))
	out, err := b.run(ctx, podgroup.ActionCreate, strings.NewReader(files), "create", append([]string{directory}, flags...)...)
	if errdefs.IsPermanent(err) {
		// What was put there for the job may be secret.
		if _, gone := b.run(ctx, podgroup.ActionDelete, nil, "remove", directory); gone != nil {
			err = errdefs.AsPermanent(errors.Join(err, gone))
		}
	}
	return podgroup.Unit{ID: strings.TrimSpace(out), Data: nameOf(r)}, err
}

// setUp makes the directory of all pods, unless there was one: then its file system is not mounted.
func (b *backend) setUp(ctx context.Context) error {
	b.mu.Lock()
	isMade := b.missing < missingAgain
	b.mu.Unlock()
	if isMade {
		return nil
	}
	if _, err := b.run(ctx, podgroup.ActionCreate, nil, "setup", b.config.Root); err != nil {
		return err
	}
	b.setMissing(false)
	return nil
}

// setMissing counts lists without the directory of all pods, up to one that does not count.
func (b *backend) setMissing(missing bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.missing++
	if !missing {
		b.missing = 0
	}
}

// Delete implements podgroup.Backend.
func (b *backend) Delete(ctx context.Context, u *podgroup.Unit, grace time.Duration) error {
	seconds := strconv.Itoa(int(math.Ceil(grace.Seconds())))
	_, err := b.run(ctx, podgroup.ActionDelete, nil, "delete", b.directoryOf(u), u.ID, seconds)
	return err
}

// List implements podgroup.Lister.
func (b *backend) List(ctx context.Context, tags map[string]string, _ string) (podgroup.Page, error) {
	out, err := b.run(ctx, podgroup.ActionList, nil, "list", b.config.Root)
	if err != nil {
		return podgroup.Page{}, err
	}
	l, err := parseListing(out)
	if err != nil {
		return podgroup.Page{}, errdefs.AsUnavailable(err)
	}
	if err := l.checkRoot(tags); err != nil {
		return podgroup.Page{}, errdefs.AsUnavailable(err)
	}
	if b.setMissing(l.missing); l.missing {
		return podgroup.Page{}, nil // ConfirmEmpty decides
	}
	b.askAccounting(ctx, l)
	units, left := l.units(b.settle())
	for i := range left {
		left[i] = b.directory(left[i])
	}
	b.remove(ctx, left)
	return podgroup.Page{Units: units}, nil
}

// ConfirmEmpty implements podgroup.EmptyConfirmer: a pod that was created has a directory.
func (b *backend) ConfirmEmpty(_ context.Context, unitID string, pod *corev1.Pod) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.missing == 0 {
		return nil
	}
	b.missing = 0 // no creation makes it now
	return fmt.Errorf("pod %s/%s was created as job %s, and the directory of pods, %s, is missing: is its file system mounted? "+
		"If it is lost, make an empty one", pod.Namespace, pod.Name, unitID, b.config.Root)
}

// remove removes directories. If that fails, a later list shows them again.
func (b *backend) remove(ctx context.Context, left []string) {
	b.mu.Lock()
	wait := time.Now().Before(b.removeAt)
	b.mu.Unlock()
	if len(left) == 0 || wait {
		return
	}
	if _, err := b.run(ctx, podgroup.ActionDelete, nil, "remove", left...); err != nil {
		log.G(ctx).WithError(err).WithField("directories", left).Warn("Cannot remove what pods have left")
		b.mu.Lock()
		defer b.mu.Unlock()
		b.removeAt = time.Now().Add(removeAgain)
	}
}

// settle returns a function that reports whether the state of a job that has ended without
// a word of its script is final: the file may be seen later than the end, and a controller
// that has just started may not list a job that runs. Jobs that it is not called with are
// forgotten.
func (b *backend) settle() func(j *job) bool {
	b.mu.Lock()
	before := b.ended
	b.ended = map[string]time.Time{}
	b.mu.Unlock()
	return func(j *job) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		since, ok := before[j.id]
		if !ok {
			since = time.Now()
		}
		b.ended[j.id] = since
		if j.state == "" { // it is not listed
			return time.Since(since) >= 3*time.Minute
		}
		return time.Since(since) >= 30*time.Second
	}
}

// askAccounting adds what sacct knows of jobs that squeue has forgotten.
func (b *backend) askAccounting(ctx context.Context, l *listing) {
	jobs := l.forgotten()
	if !b.config.Accounting || len(jobs) == 0 {
		return
	}
	if out, err := b.run(ctx, podgroup.ActionList, nil, "ended", strings.Join(jobs, ",")); err == nil { // else their state is unknown
		l.addAccounting(out)
	}
}

// Update implements podgroup.Updater.
func (b *backend) Update(ctx context.Context, u *podgroup.Unit, change podgroup.Change) error {
	if change.Images {
		return podgroup.NotSupportedf("Slurm has no other image for a job that runs")
	}
	files, names := stageVolumes(change.Pod, change.Files)
	_, err := b.run(ctx, podgroup.ActionUpdate, strings.NewReader(files), "update", append([]string{b.directoryOf(u)}, names...)...)
	return err
}

// Exec implements podgroup.Execer.
func (b *backend) Exec(ctx context.Context, u *podgroup.Unit, container string, command []string, attach api.AttachIO) error {
	call := rand.Text()
	c := login.Command{Verb: "exec", Stdin: attach.Stdin(), Args: []string{b.directoryOf(u), container, u.ID, "", call}}
	if out := attach.Stdout(); out != nil {
		c.Stdout = out
	}
	if attach.TTY() {
		c.Args[3], c.Resize = "1", attach.Resize()
	} else if stderr := attach.Stderr(); stderr != nil {
		c.Stderr = stderr
	}
	c.Args = append(c.Args, command...)
	err := b.runner.Run(ctx, c)
	if ended, ok := errors.AsType[*login.Error](err); ok && (b.hasExited(ctx, u, call, ended.Code) || !ended.Unreachable) {
		return podgroup.ExitError(ended.Code)
	}
	return classify(podgroup.ActionExec, err)
}

// hasExited reports whether an exit code that ssh has for its own failures, too, is the command's.
func (b *backend) hasExited(ctx context.Context, u *podgroup.Unit, call string, code int) bool {
	const ambiguous = 255
	if code != ambiguous {
		return false
	}
	out, err := b.run(ctx, podgroup.ActionExec, nil, "exited", b.directoryOf(u), call)
	return err == nil && strings.TrimSpace(out) == strconv.Itoa(ambiguous)
}

// Report implements podgroup.Reporter: the node has what the nodes of the partition have
// that are not down.
func (b *backend) Report(ctx context.Context, n *corev1.Node) error {
	out, err := b.run(ctx, podgroup.ActionReport, nil, "report", b.config.Partition)
	if err != nil {
		return err
	}
	found := b.capacityOf(out)
	maps.Copy(found, b.options().Capacity)
	n.Status.Capacity, n.Status.Allocatable = found, found.DeepCopy()
	return nil
}

// capacityOf adds up the nodes that sinfo prints. A node of several partitions is there
// several times.
func (b *backend) capacityOf(out string) corev1.ResourceList {
	var cpus, megabytes int64
	gres := map[string]int64{}
	seen := map[string]bool{}
	for line := range strings.Lines(out) {
		fields := strings.Split(strings.TrimSpace(line), "|")
		if len(fields) < 5 || seen[fields[0]] {
			continue
		}
		seen[fields[0]] = true
		if state := strings.ToLower(fields[3]); strings.Contains(state, "down") || strings.Contains(state, "drain") || strings.Contains(state, "fail") || strings.Contains(state, "unknown") || strings.HasSuffix(state, "*") {
			continue
		}
		count := func(text string) int64 {
			n, _ := strconv.ParseInt(strings.TrimRight(text, "+"), 10, 64) // what is no number counts for nothing
			return n
		}
		cpus += count(fields[1])
		megabytes += count(fields[2])
		for one := range strings.SplitSeq(fields[4], ",") { // gpu:a100:4(S:0-1)
			one, _, _ = strings.Cut(one, "(")
			if parts := strings.Split(one, ":"); len(parts) > 1 {
				gres[parts[0]] += count(parts[len(parts)-1])
			}
		}
	}
	list := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(cpus, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(megabytes<<20, resource.BinarySI),
	}
	for name, of := range b.config.GRES {
		kind, _, _ := strings.Cut(of, ":")
		if n := gres[kind]; n > 0 {
			list[name] = *resource.NewQuantity(n, resource.DecimalSI)
		}
	}
	return list
}

// tagsOf reads the tags of a unit.
func tagsOf(text string) (tags map[string]string) {
	_ = json.Unmarshal([]byte(text), &tags) // others write comments, too
	return tags
}
