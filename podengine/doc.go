// Package podengine runs pods with a container runtime: init containers,
// sidecars, restarts, probes, hooks, volumes, termination. The runtime is
// anything that implements the CRI's Go interfaces (k8s.io/cri-api); what comes
// out is a provider of whole pods.
//
// Each pod has a worker, which alone acts on it. It gathers what is known of the
// pod (view), asks a pure function for the next action (decide), takes it, and
// looks again. See docs/podengine.md.
package podengine
