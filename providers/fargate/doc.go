// Package fargate runs pods as tasks of Amazon ECS on Fargate.
//
// The package maps pods to task definitions, and tasks to statuses. Identity, retries, budgets
// and sizes are those of package podgroup.
package fargate
