// Package azurebatch runs pods as tasks of Azure Batch, on a pool of virtual machines.
//
// The package maps pods to tasks, and tasks to statuses. Identity, retries and budgets are
// those of package podgroup.
package azurebatch
