// Package nomad runs pods as jobs of HashiCorp Nomad: one job with one group, of count one,
// whose tasks are the containers. Changes arrive by Nomad's event stream; files are in
// Nomad's variables, from which templates write them, so that a new token restarts nothing.
//
// The package maps pods to jobs, and allocations to statuses. Identity, retries, budgets and
// the renewal of files are those of package podgroup.
package nomad
