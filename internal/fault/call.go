package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// aim is what a call is for. To one that finds a pod, "not found" is an answer
// and not a failure.
type aim bool

const (
	changes aim = false
	finds   aim = true
)

// call lets f be called, or not, with what the moment has in store.
func (p *Provider) call(ctx context.Context, method string, name types.NamespacedName, uid types.UID, aim aim, f func() error) error {
	if p.Begins != nil {
		defer p.Begins(method, name, uid)()
	}
	plan, calm := p.now()
	if calm == nil {
		return f()
	}
	random := p.dice.throw(method + " " + name.String())
	fault := plan.draw(random, ProviderKinds)
	if fault[Delay] {
		if err := pause(ctx, upTo(random, p.MaxDelay)); err != nil {
			return err
		}
	}
	if fault[Stubborn] {
		time.Sleep(upTo(random, p.MaxHang))
	}
	late := random.IntN(2) == 0
	if method == "CreatePod" && plan.draw(random, CreateKinds)[HangCreate] {
		select {
		case <-ctx.Done():
			if late {
				_ = f()
			}
			return ctx.Err()
		case <-calm:
			return errdefs.AsUnavailable(fmt.Errorf("%s hung, by a fault", method))
		}
	}
	switch {
	case fault[Hang]:
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-calm:
			return errdefs.AsUnavailable(fmt.Errorf("%s hung, by a fault", method))
		}
	case fault[Panic] && !late:
		panic(method + " panics, by a fault")
	case fault[Error]:
		return anError(random, method, aim)
	}
	err := f()
	switch {
	case err != nil:
		return err
	case fault[Panic]:
		panic(method + " panics after it has acted, by a fault")
	case fault[LostAnswer]:
		return errdefs.AsUnavailable(fmt.Errorf("the answer of %s was lost, by a fault", method))
	}
	return nil
}

// anError returns an error of any class that is no lie.
func anError(random *rand.Rand, method string, aim aim) error {
	err := errors.New(method + " failed, by a fault")
	classes := []func() error{
		func() error { return err },
		func() error { return errdefs.AsUnavailable(err) },
		func() error { return errdefs.AsConflict(err) },
		func() error { return errdefs.AsInvalidInput(err) },
		func() error { return errdefs.AsRetryAfter(err, upTo(random, 5*time.Second)) },
		func() error { return errdefs.AsPermanent(err) },
		func() error { return errdefs.AsNotFound(err) },
	}
	if aim == finds {
		classes = classes[:len(classes)-1]
	}
	return classes[random.IntN(len(classes))]()
}
