// Package fault breaks things, for tests of what stands between them.
//
// A Provider stands before a pod provider, a Transport before the API server (in
// a client, or in a proxy: see NewProxy). Both follow a Plan, which says how
// often what goes wrong, and can be calmed, so that what they troubled can come
// to rest.
//
// What goes wrong is drawn from a seed. What is drawn for the n-th call about an
// object does not depend on the calls about others, so that the same history
// meets the same faults although its goroutines run in another order.
package fault
