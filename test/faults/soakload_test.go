//go:build integration

package faults

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fault"
)

// soakUsers is how many take steps at the same time, each with pods of its own, so
// that a seed draws the same steps for each again.
const soakUsers = 6

// lies are the faults that excuse what the agent does to a pod.
var lies = []fault.Kind{fault.Overlook, fault.Vanish, fault.WrongUID}

// load takes steps for d, and returns how many.
func (s *soaking) load(d time.Duration) int {
	var steps atomic.Int64
	var group sync.WaitGroup
	until := time.Now().Add(d)
	during := func(stream uint64, least, most time.Duration, f func(d drawing)) {
		random := rand.New(rand.NewPCG(s.seed, uint64(s.ended)<<8|stream))
		for time.Now().Before(until) && !s.w.isBroken() {
			f(drawing{random: random})
			time.Sleep(min(least+time.Duration(random.Int64N(int64(most-least))), time.Until(until)))
		}
	}
	for user := range uint64(soakUsers) {
		names := strings.Fields(strings.NewReplacer("#", string(rune('0'+user))).Replace("a-# b-# c-# d-# e-#"))
		group.Go(func() {
			during(1+user, 50*time.Millisecond, 400*time.Millisecond, func(d drawing) {
				s.w.do(d.soakStep(d.one(names...)))
				steps.Add(1)
			})
		})
	}
	group.Go(func() {
		during(0, time.Second, 5*time.Second, s.weather)
	})
	group.Wait()
	return int(steps.Load())
}

// soakStep draws what is done to a pod.
func (d drawing) soakStep(name string) string {
	switch n := d.random.IntN(100); {
	case n < 40:
		return "create " + name + " " + d.one(behaviours...) + d.one("", "", "", " never", " finalizer", " env", " env", " waits")
	case n < 52:
		return "update " + name
	case n < 62:
		return "delete " + name + d.one("", "", " 1", " 3")
	case n < 66:
		return "force " + name
	case n < 78:
		return "recreate " + name + " " + d.one(behaviours...) + d.one("", "", " env")
	case n < 88:
		return "evict " + name
	case n < 94:
		return "unfinalize " + name
	case n < 97:
		return "condition " + name
	}
	return "drift " + name
}

// weather has other things go wrong than before. The provider lies in the first
// round and every other one: what must always hold is not asked for of pods about
// which it has lied.
func (s *soaking) weather(d drawing) {
	providerKinds := fault.ProviderKinds
	if s.ended%2 == 1 {
		providerKinds = slices.DeleteFunc(slices.Clone(providerKinds), func(k fault.Kind) bool { return slices.Contains(lies, k) })
	}
	switch n := d.random.IntN(10); {
	case n < 4:
		s.w.do("api " + d.plan(d.some(fault.TransportKinds)).String())
	case n < 8:
		s.w.prov.Calm() // what hangs does so until then
		s.w.do("provider " + d.plan(d.some(providerKinds)).String())
	case n < 9:
		s.w.do(d.one("partition ", "silence ") + d.one("500ms", "2s"))
	default:
		s.w.do("heal")
	}
}
