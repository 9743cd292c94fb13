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
//
// A lease of a shard that somebody deletes frees nothing. Its holder makes it again
// when it next looks, as long as it holds it by its own clock, and the others
// wait for as long as a lease lasts from when they first missed it, since it may have
// been renewed, or claimed, just before. Members delete no leases of shards, but for those
// with higher numbers than there are, long after they have expired; and a member that leaves
// others behind writes its own as held by nobody. So one that is missing was deleted by
// somebody else: its member still counts until the lease would have expired.
//
// A lease that loses its label is not listed, and counts as deleted. Its holder finds it as
// it makes it again, and writes the label; others that would make it wait for as long as
// it lasts from when they find it.
//
// Two can serve a shard after deletions only if
//
//   - the leases of all shards are deleted, and a member comes that has never seen
//     one, before any has been made again: for it this is the first start, at which
//     nobody waits; or
//   - a lease is made and deleted again before each member that has missed it has
//     seen it. One that could not look for the renew deadline begins to wait again.
package shard
