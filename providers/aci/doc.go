// Package aci runs pods as container groups of Azure Container Instances.
//
// The package maps pods to container groups, and what Azure says of these to statuses.
// Identity, retries and budgets are those of package podgroup. Lists of Azure have no states
// of containers: groups are read one by one, within a budget (views).
package aci
