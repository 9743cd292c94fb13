// Package wire has the messages of the InterLink protocol: between a virtual kubelet and
// the interLink API server, and between that and a plugin.
package wire
