package fargate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// An account may register and deregister a task definition a second, 20 at once.
const modifyPerSecond, modifyBurst = 1, 15

// sweepEvery is how often definitions are looked for that no task has: of creations that
// failed, or left over by a process that ended.
const sweepEvery = 30 * time.Minute

// usage is which definitions are in use, by family.
type usage struct {
	known map[string]bool            // families that have an active revision
	tasks map[string]map[string]bool // the tasks of each, that have not been deleted
	plans map[string]int             // creations under way

	listing map[string]map[string]bool // tasks of a list that is being read
	prefix  string                     // of the families of this node, once one is known
	swept   time.Time
}

func newUsage() usage {
	return usage{known: map[string]bool{}, tasks: map[string]map[string]bool{}, plans: map[string]int{}, listing: map[string]map[string]bool{}}
}

// familyOf returns the family of the ARN of a definition.
func familyOf(definition string) string {
	_, name, _ := strings.Cut(definition, "task-definition/")
	family, _, _ := strings.Cut(name, ":")
	return family
}

func addTask(to map[string]map[string]bool, family, task string) {
	if to[family] == nil {
		to[family] = map[string]bool{}
	}
	to[family][task] = true
}

// ensureDefinition registers the definition of a plan, unless it is there. Concurrent calls of
// one family register it once.
func (b *backend) ensureDefinition(ctx context.Context, p *plan) error {
	family := *p.definition.Family
	b.mu.Lock()
	known := b.uses.known[family]
	b.mu.Unlock()
	if known {
		return nil
	}
	_, err, _ := b.registering.Do(family, func() (any, error) {
		_, err := b.api.DescribeTaskDefinition(ctx, &ecs.DescribeTaskDefinitionInput{TaskDefinition: &family})
		if err = classify(podgroup.ActionLog, err); errdefs.IsNotFound(err) {
			if err := b.modify.Wait(ctx); err != nil {
				return nil, errdefs.AsRetryAfter(errdefs.AsUnavailable(fmt.Errorf("more pods than an account may register task definitions for at once: %w", err)), time.Minute)
			}
			_, err = b.api.RegisterTaskDefinition(ctx, p.definition)
			return nil, classify(podgroup.ActionCreate, err)
		}
		return nil, err
	})
	if err == nil {
		b.mu.Lock()
		b.uses.known[family] = true
		b.mu.Unlock()
	}
	return err
}

// begin notes that a definition is about to be used; the result ends that.
func (b *backend) begin(r *podgroup.Request, family string) (end func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uses.prefix = b.familyPrefix(r.Tags)
	b.uses.plans[family]++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.uses.plans[family]--; b.uses.plans[family] == 0 {
			delete(b.uses.plans, family)
		}
	}
}

// forget notes that there is no active definition of a family.
func (b *backend) forget(family string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.uses.known, family)
}

// release notes that a task was deleted, and deletes its definition if no other has it. What
// fails, or has to wait, is left to sweep.
func (b *backend) release(ctx context.Context, task, definition string) {
	family := familyOf(definition)
	b.mu.Lock()
	delete(b.uses.tasks[family], task)
	used := len(b.uses.tasks[family]) > 0 || b.uses.plans[family] > 0
	b.mu.Unlock()
	if !used {
		_ = b.deleteDefinition(ctx, family, definition)
	}
}

// deleteDefinition deletes a revision; tasks that have it go on.
func (b *backend) deleteDefinition(ctx context.Context, family, revision string) error {
	if !b.modify.Allow() {
		return errdefs.AsUnavailable(fmt.Errorf("too many task definitions were deregistered"))
	}
	b.forget(family)
	_, err := b.api.DeregisterTaskDefinition(ctx, &ecs.DeregisterTaskDefinitionInput{TaskDefinition: &revision})
	if err == nil {
		_, err = b.api.DeleteTaskDefinitions(ctx, &ecs.DeleteTaskDefinitionsInput{TaskDefinitions: []string{revision}})
	}
	return classify(podgroup.ActionDelete, err)
}

// listed notes the tasks of a page of a list. After the last page it is known which
// definitions have tasks.
func (b *backend) listed(ctx context.Context, first, last bool, tasks []types.Task) {
	b.mu.Lock()
	if first {
		b.uses.listing = map[string]map[string]bool{}
	}
	for i := range tasks {
		if task := aws.ToString(tasks[i].TaskArn); !b.deletedBefore(&tasks[i]) {
			addTask(b.uses.listing, familyOf(aws.ToString(tasks[i].TaskDefinitionArn)), task)
		}
	}
	due := last && b.uses.prefix != "" && time.Since(b.uses.swept) >= sweepEvery
	if last {
		b.uses.tasks, b.uses.listing = b.uses.listing, map[string]map[string]bool{}
		for id, c := range b.created { // which the list may lack
			if time.Since(c.at) < time.Minute {
				addTask(b.uses.tasks, c.family, id)
			} else {
				delete(b.created, id)
			}
		}
	}
	if due {
		b.uses.swept = time.Now()
	}
	prefix := b.uses.prefix
	b.mu.Unlock()
	if due {
		b.sweep(ctx, prefix)
	}
}

// sweep deletes definitions of this node that have no task. What fails is tried again with the
// next one.
func (b *backend) sweep(ctx context.Context, prefix string) {
	out, err := b.api.ListTaskDefinitionFamilies(ctx, &ecs.ListTaskDefinitionFamiliesInput{FamilyPrefix: &prefix, Status: types.TaskDefinitionFamilyStatusActive})
	if err != nil {
		return
	}
	for _, family := range out.Families {
		b.mu.Lock()
		used := len(b.uses.tasks[family]) > 0 || b.uses.plans[family] > 0
		b.mu.Unlock()
		if used || !strings.HasPrefix(family, prefix) {
			continue
		}
		found, err := b.api.DescribeTaskDefinition(ctx, &ecs.DescribeTaskDefinitionInput{TaskDefinition: &family})
		if err != nil || b.deleteDefinition(ctx, family, aws.ToString(found.TaskDefinition.TaskDefinitionArn)) != nil {
			return
		}
	}
}
