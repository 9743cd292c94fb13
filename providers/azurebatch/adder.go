package azurebatch

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/batch/azbatch"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

const (
	// maxTasks and maxBody are how many tasks a call may add, and how many bytes it may have:
	// a MiB, less what is around them.
	maxTasks = 100
	maxBody  = 1<<20 - 4096
	// gatherTime is how long a call waits for more tasks.
	gatherTime = 20 * time.Millisecond
	// addTimeout is the timeout of a call, which goes on when the callers have gone.
	addTimeout = 50 * time.Second
)

// adder adds tasks, many by one call: those that callers add meanwhile. It has no goroutine:
// one of the callers makes the call for all, and hands over to the next.
type adder struct {
	send func(ctx context.Context, tasks []azbatch.CreateTaskContent) map[string]error

	mu      sync.Mutex
	leads   bool // one of the callers gathers
	waiting []*addition
}

// addition is a task that a caller adds.
type addition struct {
	task   azbatch.CreateTaskContent
	size   int
	lead   chan struct{} // closed when its caller is to make the next call
	result chan error    // has room for one
}

// add adds a task, and returns the error of it alone.
func (a *adder) add(ctx context.Context, task *azbatch.CreateTaskContent) error {
	text, err := json.Marshal(task)
	if err != nil {
		return err
	}
	one := &addition{task: *task, size: len(text), lead: make(chan struct{}), result: make(chan error, 1)}
	a.mu.Lock()
	a.waiting = append(a.waiting, one)
	if !a.leads {
		a.leads = true
		close(one.lead)
	}
	a.mu.Unlock()
	select {
	case err := <-one.result:
		return err
	case <-one.lead:
		return a.leadFor(ctx, one)
	case <-ctx.Done():
		return a.leave(ctx, one)
	}
}

// leadFor makes a call with the task of its caller and of others.
func (a *adder) leadFor(ctx context.Context, one *addition) error {
	if periodic.Sleep(ctx, gatherTime) != nil {
		return a.leave(ctx, one)
	}
	a.mu.Lock()
	batch, size := []*addition{one}, one.size
	a.waiting = slices.DeleteFunc(a.waiting, func(other *addition) bool {
		if other == one {
			return true
		}
		if len(batch) == maxTasks || size+other.size+1 > maxBody {
			return false
		}
		batch, size = append(batch, other), size+other.size+1
		return true
	})
	a.passOn()
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), addTimeout) // the others have not given up
	defer cancel()
	tasks := make([]azbatch.CreateTaskContent, len(batch))
	for i, other := range batch {
		tasks[i] = other.task
	}
	results := a.send(ctx, tasks)
	for _, other := range batch {
		other.result <- results[*other.task.ID]
	}
	return <-one.result
}

// leave withdraws a task that is not in a call yet, and returns the error of its caller, who has given up.
func (a *adder) leave(ctx context.Context, one *addition) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := errdefs.AsUnavailable(ctx.Err())
	if slices.Contains(a.waiting, one) {
		err = podgroup.NotCreated(err)
	}
	a.waiting = slices.DeleteFunc(a.waiting, func(other *addition) bool { return other == one })
	select {
	case <-one.lead:
		if len(one.result) == 0 {
			a.passOn()
		}
	default:
	}
	return err
}

// passOn has the next caller make a call. The caller holds a.mu.
func (a *adder) passOn() {
	if a.leads = len(a.waiting) > 0; a.leads {
		close(a.waiting[0].lead)
	}
}

// taskExists is the error of a task whose ID is taken.
type taskExists struct{ error }

// Unwrap returns the error with its class.
func (e *taskExists) Unwrap() error { return e.error }

var errNoResult = errors.New("it is not known whether Azure Batch has added the task")

// sendTasks adds tasks by one call, and returns the error of each by its ID.
func (b *backend) sendTasks(ctx context.Context, tasks []azbatch.CreateTaskContent) map[string]error {
	results := map[string]error{}
	answered, err := b.client.CreateTaskCollection(ctx, b.cfg.JobID, azbatch.TaskGroup{Value: tasks}, nil)
	if refusal, ok := errors.AsType[*azcore.ResponseError](err); ok && len(tasks) > 1 &&
		(refusal.StatusCode == http.StatusBadRequest || refusal.StatusCode == http.StatusRequestEntityTooLarge) {
		// They are too large together, or one of them is the reason: the others are not to fail with it.
		half := len(tasks) / 2
		maps.Copy(results, b.sendTasks(ctx, tasks[:half]))
		maps.Copy(results, b.sendTasks(ctx, tasks[half:]))
		return results
	}
	err = classify(podgroup.ActionCreate, err)
	for _, task := range tasks {
		results[*task.ID] = err
		if err == nil { // until its result is there
			results[*task.ID] = errdefs.AsUnavailable(errNoResult)
		}
	}
	for _, one := range answered.Value {
		results[deref(one.TaskID)] = resultOf(&one)
	}
	return results
}

// resultOf returns the error of a task of a call that was not refused.
func resultOf(one *azbatch.TaskAddResult) error {
	if same(one.Status, azbatch.TaskAddStatusSuccess) {
		return nil
	}
	if one.Error == nil {
		return errdefs.AsUnavailable(errNoResult)
	}
	status := 400
	if same(one.Status, azbatch.TaskAddStatusServerError) {
		status = 500
	}
	err := answer(podgroup.ActionCreate, deref(one.Error.Code), status, 0, textOf(one.Error))
	if deref(one.Error.Code) == "TaskExists" {
		return &taskExists{err}
	}
	return err
}
