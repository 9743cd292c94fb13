package fargate

import (
	"context"
	"errors"
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
// One deletes a few at once, since a list waits for it, and the next comes soon if there are more.
const (
	sweepEvery  = 30 * time.Minute
	sweepAgain  = 10 * time.Second
	sweepAtOnce = 5
)

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

// ensureDefinition registers the definition of a plan, unless it is there. Calls about one family
// take turns.
func (b *backend) ensureDefinition(ctx context.Context, p *plan) error {
	family := *p.definition.Family
	end, err := b.families.Take(ctx, family)
	if err != nil {
		return err
	}
	defer end()
	b.mu.Lock()
	known := b.uses.known[family]
	b.mu.Unlock()
	if known {
		return nil
	}
	if err := b.register(ctx, p); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uses.known[family] = true
	return nil
}

func (b *backend) register(ctx context.Context, p *plan) error {
	_, err := b.api.DescribeTaskDefinition(ctx, &ecs.DescribeTaskDefinitionInput{TaskDefinition: p.definition.Family})
	if err = classify(podgroup.ActionLog, err); !errdefs.IsNotFound(err) {
		return err
	}
	if err := b.modify.Wait(ctx); err != nil {
		return errdefs.AsRetryAfter(errdefs.AsUnavailable(fmt.Errorf("more pods than an account may register task definitions for at once: %w", err)), time.Minute)
	}
	if err := b.store(ctx, p); err != nil {
		return err
	}
	_, err = b.api.RegisterTaskDefinition(ctx, p.definition)
	return classify(podgroup.ActionCreate, err)
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
	b.mu.Unlock()
	_ = b.deleteDefinition(ctx, family, definition)
}

// isUsed reports whether a definition has tasks, or is to have one.
func (b *backend) isUsed(family string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.uses.tasks[family]) > 0 || b.uses.plans[family] > 0
}

// deleteDefinition deletes a revision, and the secrets of its family, unless it is used.
func (b *backend) deleteDefinition(ctx context.Context, family, revision string) error {
	end, err := b.families.Take(ctx, family)
	if err != nil {
		return err
	}
	defer end()
	if b.isUsed(family) {
		return nil
	}
	if !b.modify.Allow() {
		return errdefs.AsUnavailable(errors.New("too many task definitions were deregistered"))
	}
	b.forget(family)
	_, err = b.api.DeregisterTaskDefinition(ctx, &ecs.DeregisterTaskDefinitionInput{TaskDefinition: &revision})
	if err == nil {
		_, err = b.api.DeleteTaskDefinitions(ctx, &ecs.DeleteTaskDefinitionsInput{TaskDefinitions: []string{revision}})
	}
	if err != nil {
		return classify(podgroup.ActionDelete, err)
	}
	return b.deleteSecrets(ctx, family)
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
	if due && !b.sweep(ctx, prefix) {
		b.mu.Lock()
		b.uses.swept = time.Now().Add(sweepAgain - sweepEvery)
		b.mu.Unlock()
	}
}

// sweep deletes definitions of this node that have no task, and reports whether none is left.
func (b *backend) sweep(ctx context.Context, prefix string) (done bool) {
	left := sweepAtOnce
	pages := ecs.NewListTaskDefinitionFamiliesPaginator(b.api, &ecs.ListTaskDefinitionFamiliesInput{FamilyPrefix: &prefix, Status: types.TaskDefinitionFamilyStatusActive})
	for pages.HasMorePages() {
		out, err := pages.NextPage(ctx)
		if err != nil {
			return false
		}
		for _, family := range out.Families {
			if b.isUsed(family) || !strings.HasPrefix(family, prefix) {
				continue
			}
			if left--; left < 0 {
				return false
			}
			found, err := b.api.DescribeTaskDefinition(ctx, &ecs.DescribeTaskDefinitionInput{TaskDefinition: &family})
			if err != nil || b.deleteDefinition(ctx, family, aws.ToString(found.TaskDefinition.TaskDefinitionArn)) != nil {
				return false
			}
		}
	}
	return true
}
