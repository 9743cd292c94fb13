// Package podgroup makes providers of services that take a pod as one unit of their own: a
// container group, a task, a job, a capsule. A Backend says how the service creates and
// deletes a unit, and, by further interfaces, what else it can do: List or Get or Watch,
// Update, logs, commands, metrics. New makes a provider of it.
//
// What is hard about such services is the same each time, and is done here:
//
//   - Identity travels with the unit, in tags of limited length; which units are this
//     node's, and which another cluster's, is decided by them (Identity).
//   - A creation whose answer was lost has happened or not: the next call has the same
//     Request.Token, and a unit that was created is visible before a list has it. Of two
//     units of a pod the later one is deleted.
//   - One list answers all, is shared by concurrent callers, and made again after a
//     change. Calls are counted against the quotas of the account, and after a refusal
//     for too many calls there is silence (Budget).
//   - What the pod needs is read and resolved: contents of volumes with their modes,
//     service account tokens, registry logins, claims, name resolution (Request); and
//     renewed, where the service can do that without harm to the containers (Updater).
//   - What the service cannot do is refused before anything is created, in one event that
//     names each field (Features).
//   - What the service says of a unit becomes a pod's status (Unit).
//   - Codes of the service become classes of errors (Codes).
//
// The service is the store: nothing is kept on disk, and a restart lists and goes on. See
// docs/podgroup.md for how to write a backend, and package grouptest for its tests.
package podgroup
