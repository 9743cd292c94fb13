// Package shard shares numbered shards out among several processes, its members,
// by Leases of the API server: one for each shard, which its holder renews, and
// one for each member, which shows the others that it is there. What a shard
// stands for is the caller's affair.
//
// Which member should hold what is decided by a pure function, Decide, from what one
// member sees; no member commands another. A shard is taken by an update
// of its Lease that fails if anybody else has written it since it was seen, and
// only once it is free, or its holder has not renewed it for as long as it lasts,
// by the clock of the one that takes it. A holder stops sooner than that: when it
// could not renew for the renew deadline, by its own clock.
package shard
