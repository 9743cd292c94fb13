package fargate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	secrettypes "github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// An account may register and deregister a task definition a second, 20 at once.
const modifyPerSecond, modifyBurst = 1, 15

// sweepEvery is how often definitions are looked for that no task has: of creations that
// failed, or left over by a process that ended.
// The first comes after firstSweep, when some lists have shown the tasks. One deletes a few at
// once, since a list waits for it, and the next comes soon if there are more.
const (
	firstSweep  = 5 * time.Minute
	sweepEvery  = 30 * time.Minute
	sweepAgain  = 10 * time.Second
	sweepAtOnce = 5
)

// secretAge is how old a secret without a definition has to be to be deleted: that may be about
// to be registered, by a process whose place this one takes.
const secretAge = 10 * time.Minute

// usage is which definitions are in use, by family.
type usage struct {
	known map[string]bool                 // families that have an active revision
	tasks map[string]map[string]time.Time // the tasks of each, that have not been deleted, and when they were seen
	plans map[string]int                  // creations under way

	began  time.Time // the list that is being read
	prefix string    // of the families of this node, once one is known
	swept  time.Time
}

// doubt is for how long before a list a task has to have been missing: lists may lack new ones,
// and be empty for a while.
const doubt = time.Minute

func newUsage() usage {
	return usage{known: map[string]bool{}, tasks: map[string]map[string]time.Time{}, plans: map[string]int{}, swept: time.Now().Add(firstSweep - sweepEvery)}
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
	if err := b.cfg.Account.modify.Wait(ctx); err != nil {
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
	for _, a := range b.attempts.waiting { // ECS may have forgotten the task
		if familyOf(aws.ToString(a.failed.TaskDefinitionArn)) == family {
			return true
		}
	}
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
	if !b.cfg.Account.modify.Allow() {
		return errdefs.AsUnavailable(errors.New("too many task definitions were deregistered"))
	}
	b.forget(family)
	if _, err = b.api.DeregisterTaskDefinition(ctx, &ecs.DeregisterTaskDefinitionInput{TaskDefinition: &revision}); err != nil {
		return classify(podgroup.ActionDelete, err)
	}
	_, err = b.api.DeleteTaskDefinitions(ctx, &ecs.DeleteTaskDefinitionsInput{TaskDefinitions: []string{revision}})
	return errors.Join(classify(podgroup.ActionDelete, err), b.deleteSecrets(ctx, family))
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
	due := last && time.Since(b.uses.swept) >= sweepEvery
	if last {
		maps.DeleteFunc(b.uses.tasks, func(_ string, tasks map[string]time.Time) bool {
			maps.DeleteFunc(tasks, func(_ string, seen time.Time) bool { return seen.Before(b.uses.began.Add(-doubt)) })
			return len(tasks) == 0
		})
	}
	prefix := b.uses.prefix
	b.mu.Unlock()
	if !due || b.mayBegin != nil && !b.mayBegin() { // another process may be creating a task
		return
	}
	if prefix == "" && b.home != nil {
		uid, err := b.home.UID(ctx)
		if err != nil {
			return // the next list tries it again
		}
		prefix = b.familyPrefix(map[string]string{podgroup.TagClusterUID: string(uid), podgroup.TagNodeName: b.node})
	}
	wait := time.Duration(0)
	if prefix != "" && b.sweep(ctx, prefix) {
		wait = sweepAgain - sweepEvery
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uses.swept = time.Now().Add(wait)
}

// sweep deletes definitions and secrets of this node that no task has, and reports whether there
// are more.
func (b *backend) sweep(ctx context.Context, prefix string) (more bool) {
	left := sweepAtOnce
	more = b.sweepActive(ctx, prefix, &left)
	more = b.sweepInactive(ctx, prefix, &left) || more
	if b.cfg.SecretsManager {
		more = b.sweepSecrets(ctx, prefix, &left) || more
	}
	return more
}

// eachFamily calls f with each unused family of this node in a state, until it returns false.
func (b *backend) eachFamily(ctx context.Context, prefix string, status types.TaskDefinitionFamilyStatus, f func(family string) bool) {
	pages := ecs.NewListTaskDefinitionFamiliesPaginator(b.api, &ecs.ListTaskDefinitionFamiliesInput{FamilyPrefix: &prefix, Status: status})
	for pages.HasMorePages() {
		out, err := pages.NextPage(ctx)
		if err != nil {
			return // the next sweep tries it again
		}
		for _, family := range out.Families {
			if strings.HasPrefix(family, prefix) && !b.isUsed(family) && !f(family) {
				return
			}
		}
	}
}

func (b *backend) sweepActive(ctx context.Context, prefix string, left *int) (more bool) {
	b.eachFamily(ctx, prefix, types.TaskDefinitionFamilyStatusActive, func(family string) bool {
		if *left--; *left < 0 {
			more = true
			return false
		}
		found, err := b.api.DescribeTaskDefinition(ctx, &ecs.DescribeTaskDefinitionInput{TaskDefinition: &family})
		more = err != nil || b.deleteDefinition(ctx, family, aws.ToString(found.TaskDefinition.TaskDefinitionArn)) != nil
		return !more
	})
	return more
}

// sweepInactive deletes what was deregistered and could not be deleted.
func (b *backend) sweepInactive(ctx context.Context, prefix string, left *int) (more bool) {
	b.eachFamily(ctx, prefix, types.TaskDefinitionFamilyStatusInactive, func(family string) bool {
		found, err := b.api.ListTaskDefinitions(ctx, &ecs.ListTaskDefinitionsInput{FamilyPrefix: &family, Status: types.TaskDefinitionStatusInactive, MaxResults: new(int32(10))})
		if err != nil || len(found.TaskDefinitionArns) == 0 {
			return err == nil
		}
		if *left--; *left < 0 {
			more = true
			return false
		}
		_, err = b.api.DeleteTaskDefinitions(ctx, &ecs.DeleteTaskDefinitionsInput{TaskDefinitions: found.TaskDefinitionArns})
		return err == nil
	})
	return more
}

// sweepSecrets deletes secrets whose family has no definition: a process may have ended before it
// registered that, or after it has deleted it. The key goes last, so that a node that is drained
// leaves nothing.
func (b *backend) sweepSecrets(ctx context.Context, prefix string, left *int) (more bool) {
	byName := []secrettypes.Filter{{Key: secrettypes.FilterNameStringTypeName, Values: []string{prefix}}}
	pages := secretsmanager.NewListSecretsPaginator(b.secrets, &secretsmanager.ListSecretsInput{Filters: byName})
	hasKey, others := false, false
	for pages.HasMorePages() {
		out, err := pages.NextPage(ctx)
		if err != nil {
			return more // the next sweep tries it again
		}
		for _, secret := range out.SecretList {
			name, young := aws.ToString(secret.Name), time.Since(aws.ToTime(secret.CreatedDate)) < secretAge
			if name == prefix+keySecret && !young {
				hasKey = true
				continue
			}
			others = true
			family := strings.TrimSuffix(strings.TrimSuffix(name, valuesSecret), loginSecret)
			if family == name || !strings.HasPrefix(name, prefix) || young || b.isUsed(family) {
				continue
			}
			if *left--; *left < 0 {
				return true
			}
			if b.deleteUndefined(ctx, family) != nil {
				more = true
			}
		}
	}
	if hasKey && !others {
		b.mu.Lock()
		b.hashKey = nil
		b.mu.Unlock()
		more = b.deleteSecret(ctx, prefix+keySecret) != nil || more
	}
	return more
}

// deleteUndefined deletes the secrets of a family that has no definition.
func (b *backend) deleteUndefined(ctx context.Context, family string) error {
	end, err := b.families.Take(ctx, family)
	if err != nil {
		return err
	}
	defer end()
	_, err = b.api.DescribeTaskDefinition(ctx, &ecs.DescribeTaskDefinitionInput{TaskDefinition: &family})
	if err = classify(podgroup.ActionLog, err); !errdefs.IsNotFound(err) || b.isUsed(family) {
		return err
	}
	return b.deleteSecrets(ctx, family)
}
