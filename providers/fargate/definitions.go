package fargate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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
	known map[string]bool                 // families that have an active revision
	tasks map[string]map[string]time.Time // the tasks of each, that have not been deleted, and when they were seen
	plans map[string]int                  // creations under way
	alone map[string]bool                 // families that may have secrets without a definition

	began  time.Time // the list that is being read
	prefix string    // of the families of this node, once one is known
	swept  time.Time
}

// doubt is for how long before a list a task has to have been missing: lists may lack new ones,
// and be empty for a while.
const doubt = time.Minute

func newUsage() usage {
	return usage{known: map[string]bool{}, tasks: map[string]map[string]time.Time{}, plans: map[string]int{}, alone: map[string]bool{}}
}

// familyOf returns the family of the ARN of a definition.
func familyOf(definition string) string {
	_, name, _ := strings.Cut(definition, "task-definition/")
	family, _, _ := strings.Cut(name, ":")
	return family
}

// see notes that there is a task.
func (u *usage) see(family, task string) {
	if u.tasks[family] == nil {
		u.tasks[family] = map[string]time.Time{}
	}
	u.tasks[family][task] = time.Now()
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
	delete(b.uses.alone, family)
	return nil
}

func (b *backend) register(ctx context.Context, p *plan) error {
	_, err := b.api.DescribeTaskDefinition(ctx, &ecs.DescribeTaskDefinitionInput{TaskDefinition: p.definition.Family})
	switch err = classify(podgroup.ActionLog, err); {
	case err == nil:
		if stored, err := b.isStored(ctx, p); err != nil || stored {
			return err
		} // else no task of it would start
	case !errdefs.IsNotFound(err):
		return err
	}
	if err := b.modify.Wait(ctx); err != nil {
		return errdefs.AsRetryAfter(errdefs.AsUnavailable(fmt.Errorf("more pods than an account may register task definitions for at once: %w", err)), time.Minute)
	}
	b.leave(*p.definition.Family)
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

// leave notes that the secrets of a family may have no definition: they are left to sweep.
func (b *backend) leave(family string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cfg.SecretsManager && !strings.HasPrefix(family, olderFamily) {
		b.uses.alone[family] = true
	}
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
	b.leave(family)
	if _, err = b.api.DeregisterTaskDefinition(ctx, &ecs.DeregisterTaskDefinitionInput{TaskDefinition: &revision}); err != nil {
		return classify(podgroup.ActionDelete, err)
	}
	_, err = b.api.DeleteTaskDefinitions(ctx, &ecs.DeleteTaskDefinitionsInput{TaskDefinitions: []string{revision}})
	return errors.Join(classify(podgroup.ActionDelete, err), b.deleteSecrets(ctx, family))
}

// deleteLeft deletes secrets of families without a definition.
func (b *backend) deleteLeft(ctx context.Context) {
	b.mu.Lock()
	families := slices.Collect(maps.Keys(b.uses.alone))
	b.mu.Unlock()
	for _, family := range families[:min(len(families), sweepAtOnce)] {
		end, err := b.families.Take(ctx, family)
		if err != nil {
			return
		}
		b.mu.Lock()
		still := b.uses.alone[family]
		b.mu.Unlock()
		if still && !b.isUsed(family) {
			_ = b.deleteSecrets(ctx, family) // the next time tries it again
		}
		end()
	}
}

// listed notes the tasks of a page of a list. After the last page it is known which
// definitions have tasks.
func (b *backend) listed(ctx context.Context, first, last bool, tasks []types.Task) {
	b.mu.Lock()
	if first {
		b.uses.began = time.Now()
	}
	for i := range tasks {
		family, task := familyOf(aws.ToString(tasks[i].TaskDefinitionArn)), aws.ToString(tasks[i].TaskArn)
		if b.deletedBefore(&tasks[i]) {
			delete(b.uses.tasks[family], task)
		} else {
			b.uses.see(family, task)
		}
	}
	due := last && b.uses.prefix != "" && time.Since(b.uses.swept) >= sweepEvery
	if last {
		maps.DeleteFunc(b.uses.tasks, func(_ string, tasks map[string]time.Time) bool {
			maps.DeleteFunc(tasks, func(_ string, seen time.Time) bool { return seen.Before(b.uses.began.Add(-doubt)) })
			return len(tasks) == 0
		})
	}
	if due {
		b.uses.swept = time.Now()
	}
	prefix := b.uses.prefix
	b.mu.Unlock()
	if due {
		b.deleteLeft(ctx)
	}
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
