// Package machine makes a pod engine for a provider whose containers run on the
// machine of the process: it says what the machine has, and gives pods its view of
// names, hosts and paths.
package machine
