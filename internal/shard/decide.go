package shard

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Lease is the lease of a shard as one member sees it.
type Lease struct {
	Holder string // empty: nobody
	// Expires is when it ends unless it is renewed, by the clock of the member
	// that sees it.
	Expires time.Time
	// RenewAt is when one's own is to be renewed.
	RenewAt time.Time
	// Ending says that nobody may claim or renew the lease yet: what this member did
	// for the shard has not ended, as it gives it away, or has lost it; or the lease
	// was deleted, and who held it last is not known.
	Ending bool
}

// View is what a decision depends on.
type View struct {
	Now     time.Time
	Me      string
	Members []string // those that are alive, in any order, with or without Me
	Shards  []Lease  // by number
}

// Plan is what a member is to do next, by the numbers of shards.
type Plan struct{ Claim, Renew, Release []int }

// Decide says what a member is to do next. Members that see the same come to
// plans that fit together: none claims what another one does, and at rest each
// has its share, which differ by one at most. Shards that are free are claimed at
// once; a member that has too many gives one away at a time, and none as long as
// any is on its way. It is pure.
func Decide(v View) (plan Plan) {
	load := map[string]int{v.Me: 0}
	for _, member := range v.Members {
		load[member] = 0
	}
	var free, mine []int
	moving := false
	for i, s := range v.Shards {
		switch {
		case s.Ending:
			moving = true
		case s.Holder == "" || !v.Now.Before(s.Expires):
			moving = true
			free = append(free, i)
		default:
			if _, alive := load[s.Holder]; alive {
				load[s.Holder]++
			}
			if s.Holder == v.Me {
				mine = append(mine, i)
			}
		}
	}
	shares := shares(load, len(v.Shards))
	plan.Claim = claims(free, load, shares)[v.Me]
	if len(mine) > shares[v.Me] && !moving {
		last := len(mine) - 1
		plan.Release, mine = mine[last:], mine[:last]
	}
	for _, i := range mine {
		if !v.Now.Before(v.Shards[i].RenewAt) {
			plan.Renew = append(plan.Renew, i)
		}
	}
	return plan
}

// shares says how many shards each member is to have. What is left over goes to
// those that have the most, so that as few as possible move.
func shares(load map[string]int, shards int) map[string]int {
	byLoad := slices.SortedFunc(maps.Keys(load), func(a, b string) int {
		return cmp.Or(cmp.Compare(load[b], load[a]), cmp.Compare(a, b))
	})
	shares := make(map[string]int, len(load))
	for i, member := range byLoad {
		shares[member] = shards / len(load)
		if i < shards%len(load) {
			shares[member]++
		}
	}
	return shares
}

// claims hands out the free shards to those that have less than their share.
func claims(free []int, load, shares map[string]int) map[string][]int {
	claims := map[string][]int{}
	for _, member := range slices.Sorted(maps.Keys(load)) {
		n := min(max(shares[member]-load[member], 0), len(free))
		claims[member], free = free[:n:n], free[n:]
	}
	return claims
}
