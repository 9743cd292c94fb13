// Package node makes something that can run pods into a Kubernetes node.
//
// It holds the contracts that a provider implements (PodLifecycleHandler and
// the optional PodNotifier and PodUIDLifecycleHandler; NodeProvider) and the
// two controllers that work with them:
//
//   - PodController takes the pods that are bound to the node to the provider,
//     and the provider's word on them back into their status.
//   - NodeController registers the Node object and keeps it alive.
//
// Either works without the other. The package knows no provider, flag, file or
// environment variable; package nodeutil puts the pieces together.
//
// # How a pod is decided on
//
// For each pod, by its UID, there is a record of what the provider holds. Whenever
// something about it may have changed (the API object, the provider's word, a
// deadline), the pure function decide looks at all of it and names the one next
// action; the controller takes it, notes the outcome, and decides again. There
// are three queues, each with its own workers, so that a slow provider does not
// hold up a status, nor a slow API server a provider: one for decisions and
// provider calls, one for status patches, one for removals from the API.
package node
