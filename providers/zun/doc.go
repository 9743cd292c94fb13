// Package zun runs pods as capsules of OpenStack Zun.
//
// The package maps pods to capsules, and capsules to statuses. Identity, retries and budgets
// are those of package podgroup.
package zun
