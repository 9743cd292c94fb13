package azurebatch

import (
	"context"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/batch/azbatch"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// detail is what lists do not say of a task.
type detail struct {
	seen       time.Time // when a list had it last
	read       time.Time // when the script's file was read last
	tried      time.Time // when it could not be read last
	failing    time.Time // since when it cannot be read
	final      bool      // it will not change any more, or not be there
	containers map[string]written
	offset     int64            // up to which the file was read
	run        string           // of the task, when it was read: see runOf
	failed     *podspec.Failure // of the pod as a whole
	older      *label           // of a task of the older provider
	again      bool             // it is to run once, and runs again
	ended      bool             // it was terminated for that
}

// lastTry is when the script's file was read last, or could not be read.
func (d detail) lastTry() time.Time {
	if d.tried.After(d.read) {
		return d.tried
	}
	return d.read
}

// written is what the script has written of a container: the run, and the one before.
type written struct {
	run       int32
	now, last podgroup.Run
}

const (
	// detailAge is how long what was read of a task that runs is used.
	detailAge = 20 * time.Second
	// maxReads is how many tasks are read for one list, and maxParallel at the same time.
	maxReads    = 40
	maxParallel = 8
	// readTime is how long a list waits for files: a machine that does not answer must not
	// delay what all others do.
	readTime = 10 * time.Second
	// readLife is for how long the file of a task that has ended is tried to be read.
	readLife = 10 * time.Minute
	// detailLife is how long details are kept that no list had.
	detailLife = time.Hour
	// stateFile is what the script writes.
	stateFile = "wd/state.txt"
	// maxState is how much of it is read by one call.
	maxState = 64 << 10
)

// detailOf returns what is known of a task.
func (b *backend) detailOf(id string) detail {
	b.mu.Lock()
	defer b.mu.Unlock()
	if d := b.details[id]; d != nil {
		return *d
	}
	return detail{}
}

// setDetail changes what is known of a task.
func (b *backend) setDetail(id string, change func(*detail)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.details[id]
	if d == nil {
		d = &detail{}
		b.details[id] = d
	}
	change(d)
}

// refresh reads what a list of tasks does not say, the oldest first, as far as it is due, of
// those with the tags of filter. An error is that of tasks of which it is not known whose they
// are.
func (b *backend) refresh(ctx context.Context, tasks []azbatch.Task, filter map[string]string) error {
	var due []*azbatch.Task
	var unknown []*azbatch.Task
	at := time.Now()
	for i := range tasks {
		t := &tasks[i]
		id := deref(t.ID)
		d := b.detailOf(id)
		l := labelOf(t, &d)
		switch {
		case l == nil && olderID.MatchString(id):
			unknown = append(unknown, t)
		case !d.ended && (d.again || b.runsAgain(t, l)):
			d.again = true
			due = append(due, t)
		case l != nil && l.has(filter) && b.needsDetail(t, l) && !d.final && hasStarted(t) &&
			at.Sub(d.tried) >= detailAge && (same(t.State, azbatch.TaskStateCompleted) || at.Sub(d.read) >= detailAge):
			due = append(due, t)
		}
		b.setDetail(id, func(known *detail) { known.seen, known.again = at, d.again })
	}
	b.mu.Lock()
	maps.DeleteFunc(b.details, func(_ string, d *detail) bool { return at.Sub(d.seen) > detailLife })
	b.mu.Unlock()
	slices.SortStableFunc(due, func(x, y *azbatch.Task) int {
		return b.detailOf(deref(x.ID)).lastTry().Compare(b.detailOf(deref(y.ID)).lastTry())
	})
	reading, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	b.parallel(due[:min(len(due), maxReads)], func(t *azbatch.Task) {
		switch {
		case reading.Err() != nil: // in the next list
		case b.detailOf(deref(t.ID)).again:
			b.end(reading, deref(t.ID))
		default:
			b.readState(reading, t)
		}
	})
	var mu sync.Mutex
	var failed error
	b.parallel(unknown, func(t *azbatch.Task) {
		if err := b.readOlder(ctx, deref(t.ID)); err != nil {
			mu.Lock()
			failed = err
			mu.Unlock()
		}
	})
	return failed
}

// parallel calls f with tasks, some at the same time.
func (b *backend) parallel(tasks []*azbatch.Task, f func(*azbatch.Task)) {
	var wg sync.WaitGroup
	turn := make(chan struct{}, maxParallel)
	for _, t := range tasks {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			f(t)
		})
	}
	wg.Wait()
}

func hasStarted(t *azbatch.Task) bool {
	return same(t.State, azbatch.TaskStateRunning) || same(t.State, azbatch.TaskStateCompleted)
}

// end terminates a task that is to run once, and would run again.
func (b *backend) end(ctx context.Context, id string) {
	if err := b.terminate(ctx, id); err != nil {
		log.G(ctx).WithField("task", id).WithError(err).Warn("Cannot terminate a task that Azure Batch has put into the queue again")
		return
	}
	b.setDetail(id, func(d *detail) { d.ended = true })
}

// runOf distinguishes the runs of a task. Batch counts only those that a user has caused.
func runOf(t *azbatch.Task) string {
	var text string
	if info := t.ExecutionInfo; info != nil {
		text = strconv.Itoa(int(deref(info.RequeueCount))) + " " + deref(info.StartTime).UTC().Format(time.RFC3339)
	}
	if t.NodeInfo != nil {
		text += " " + deref(t.NodeInfo.NodeID)
	}
	return text
}

// readState reads what is new in what the script of a task has written. On another machine
// the file begins again.
func (b *backend) readState(ctx context.Context, t *azbatch.Task) {
	id, completed := deref(t.ID), same(t.State, azbatch.TaskStateCompleted)
	run := runOf(t)
	d := b.detailOf(id)
	if d.run != run {
		d = detail{run: run, failing: d.failing}
	}
	for {
		text, err := b.readRange(ctx, id, stateFile, d.offset, maxState)
		gone := errdefs.IsNotFound(err) || errdefs.IsConflict(err) // with the machine; or it is not there yet
		if completed && !d.failing.IsZero() && time.Since(d.failing) >= readLife {
			gone = true // a pod must not run for ever because of it
		}
		if err != nil && !gone {
			log.G(ctx).WithField("task", id).WithError(err).Debug("Cannot read what the containers of a task do")
			b.setDetail(id, func(known *detail) {
				known.tried = time.Now()
				if known.failing.IsZero() {
					known.failing = known.tried
				}
			})
			return
		}
		whole := text[:strings.LastIndexByte(text, '\n')+1]
		d.containers, d.failed = parseState(d.containers, whole, d.failed)
		if d.offset += int64(len(whole)); len(text) < maxState || whole == "" {
			break
		}
	}
	b.setDetail(id, func(known *detail) {
		if known.run == run && known.offset > d.offset { // another reader was faster
			return
		}
		known.read, known.final, known.failing = time.Now(), completed, time.Time{}
		known.containers, known.failed, known.offset, known.run = d.containers, d.failed, d.offset, run
	})
}

// parseState adds what a script has written (run.sh) to what is known, and returns both.
func parseState(known map[string]written, text string, failed *podspec.Failure) (map[string]written, *podspec.Failure) {
	all := maps.Clone(known)
	if all == nil {
		all = map[string]written{}
	}
	for line := range strings.Lines(text) {
		words := strings.SplitN(strings.TrimSpace(line), " ", 8)
		if len(words) < 4 {
			continue
		}
		w := all[words[0]]
		run, err := strconv.ParseInt(words[1], 10, 32)
		if err != nil {
			continue
		}
		w.run = int32(run)
		if w.now.State == podgroup.Terminated {
			w.last = w.now
		}
		switch {
		case words[2] == "running":
			w.now = podgroup.Run{State: podgroup.Executing, Started: parseTime(words[3])}
		case words[2] == "exited" && len(words) >= 7:
			code, _ := strconv.ParseInt(words[3], 10, 32)
			w.now = podgroup.Run{State: podgroup.Terminated, ExitCode: int32(code), Reason: words[4], Started: parseTime(words[5]), Finished: parseTime(words[6])}
			if len(words) == 8 {
				w.now.Message = words[7]
			}
			if words[0] == "-" { // the pod as a whole
				failed = &podspec.Failure{Reason: words[4], Message: w.now.Message}
				continue
			}
		default:
			continue
		}
		all[words[0]] = w
	}
	return all, failed
}

func parseTime(text string) time.Time {
	t, _ := time.Parse(time.RFC3339, text)
	return t
}

// olderID is the ID of a task of the older provider, the MD5 sum of namespace and name, and
// olderPod its variable with the pod in JSON.
var olderID = regexp.MustCompile(`^[0-9a-f]{32}$`)

const olderPod = "virtualkubelet_pod"

// readOlder reads which pod a task of the older provider runs, if it is one.
func (b *backend) readOlder(ctx context.Context, id string) error {
	t, err := b.show(ctx, id, []string{"id", "environmentSettings"})
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	older := &label{Tags: map[string]string{}}
	for _, e := range t.EnvironmentSettings {
		var pod corev1.Pod
		if deref(e.Name) == olderPod && json.Unmarshal([]byte(deref(e.Value)), &pod) == nil {
			older.Tags = map[string]string{
				podgroup.TagNamespace: pod.Namespace, podgroup.TagPodName: pod.Name, podgroup.TagUID: string(pod.UID),
				podgroup.TagCreationTimestamp: pod.CreationTimestamp.UTC().Format(time.RFC3339),
			}
			older.Init, older.Containers, older.Restart = namesOf(pod.Spec.InitContainers), namesOf(pod.Spec.Containers), pod.Spec.RestartPolicy
		}
	}
	b.setDetail(id, func(d *detail) { d.older = older })
	return nil
}
