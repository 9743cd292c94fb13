package podengine

import (
	"context"
	"hash/fnv"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/convert"
)

// The runtime is listed as a whole this often, by two calls that show all
// pods: while it sends no events, and while it does.
const (
	relistEvery  = time.Second
	relistSeldom = time.Minute
)

// watchRuntime wakes the workers of pods whose containers have changed, and
// removes what belongs to no pod.
func (e *Engine) watchRuntime(ctx context.Context) {
	events := newRuntimeEvents(e)
	orphans := newOrphans(e)
	var beside sync.WaitGroup
	beside.Go(func() { events.watch(ctx) })
	beside.Go(func() { orphans.run(ctx) })
	defer beside.Wait()
	var seen relisted
	timer := time.NewTimer(relistEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-events.changed:
		}
		if boxes, ok := e.relist(ctx, &seen); ok {
			orphans.observe(boxes)
		}
		timer.Reset(events.relistAfter())
	}
}

// relisted is what one listing of the runtime leaves for the next.
type relisted struct {
	prints  map[types.UID]uint64
	failing bool
}

// relist wakes the workers of pods that have changed since the last time. It returns the
// sandboxes that there are, with their pods, unless the runtime does not answer.
func (e *Engine) relist(ctx context.Context, last *relisted) (boxes map[string]types.UID, ok bool) {
	prints, boxes, err := e.fingerprints(ctx)
	if err != nil {
		if !last.failing && ctx.Err() == nil {
			log.G(ctx).WithError(err).Warn("Cannot see what the container runtime runs")
		}
		last.failing = true
		return nil, false
	}
	last.failing = false
	for uid := range changed(last.prints, prints) {
		e.nudge(uid)
	}
	last.prints = prints
	return boxes, true
}

// fingerprints sums up what the runtime has of each pod of this node.
func (e *Engine) fingerprints(ctx context.Context) (map[types.UID]uint64, map[string]types.UID, error) {
	listed, err := e.cfg.Runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	containers, err := e.cfg.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	prints, boxes := map[types.UID]uint64{}, map[string]types.UID{}
	add := func(uid types.UID, id string, state int32) {
		h := fnv.New64a()
		h.Write([]byte(id))
		h.Write([]byte{byte(state)})
		prints[uid] += h.Sum64() // in any order
	}
	for _, box := range listed {
		if who := convert.IdentityOf(box.Labels, box.Annotations); who.Node == e.cfg.Node.Name && who.UID != "" {
			boxes[box.Id] = who.UID
			add(who.UID, box.Id, int32(box.State))
		}
	}
	for _, c := range containers {
		if who := convert.IdentityOf(c.Labels, c.Annotations); who.Node == e.cfg.Node.Name && who.UID != "" {
			add(who.UID, c.Id, int32(c.State))
		}
	}
	return prints, boxes, nil
}

// changed are the keys whose values differ, or which one of the maps lacks.
func changed(before, after map[types.UID]uint64) map[types.UID]struct{} {
	found := map[types.UID]struct{}{}
	for uid, print := range after {
		if was, ok := before[uid]; !ok || was != print {
			found[uid] = struct{}{}
		}
	}
	for uid := range maps.Keys(before) {
		if _, ok := after[uid]; !ok {
			found[uid] = struct{}{}
		}
	}
	return found
}
