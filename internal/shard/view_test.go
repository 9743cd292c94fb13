package shard

import (
	"context"
	"testing"
	"time"
)

// A service is past the time to which its fence is set, whose timer is late: the shard is not
// claimed a second time beside it.
func TestShardWhoseFenceIsLate(t *testing.T) {
	now := time.Now()
	m := &member{
		Config:  Config{Name: "vk", Identity: "me", Shards: 1, LeaseDuration: DefaultLeaseDuration},
		base:    context.Background(),
		serving: map[int]*service{0: {ctx: context.Background(), until: now}},
	}
	m.ledger = &ledger{Config: &m.Config, seen: map[string]observation{}}
	if plan := Decide(m.view(now)); len(plan.Claim)+len(plan.Renew)+len(plan.Release) > 0 {
		t.Errorf("the plan is %+v, want to wait for the end of the service", plan)
	}
}
