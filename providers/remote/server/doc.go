// Package server serves a provider to the virtual kubelets of other processes, by the
// protocol of providers/remote.
package server
