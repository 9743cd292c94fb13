// Package mock is a provider that only pretends to run pods: they are Running
// at once (or after a delay), complete, fail, log, answer exec and port-forward,
// and stop, all by config and annotations, and nothing is executed. It is what
// tests, benchmarks and a first look at Virtual Kubelet use.
//
// Everything that can happen to a pod is computed from the time of its creation,
// its annotations and the requests since: see README.md for both. There is at
// most one timer, and no goroutine, per pod.
//
// The package opens no files; see WithJournal for pods that survive the process.
package mock
