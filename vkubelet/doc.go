// Package vkubelet is the classic front door to a virtual node: the names that
// older documentation and providers use, as a thin layer over packages node and
// node/api, which do all the work.
//
//   - New makes a Server that takes pods to a Provider; Server.Run runs it.
//   - NewNode makes a Node that registers a Node object and keeps it alive.
//   - Server.AttachPodRoutes, AttachPodRoutes and AttachMetricsRoutes serve the
//     kubelet's HTTP API.
//   - ResourceManager gives a provider read access to what its pods refer to.
//
// Each of the three works without the others, and none knows about listening,
// TLS or authentication. New code that wants all of it at once is better off
// with package node/nodeutil.
//
// The package reads no flag, no file and no environment variable.
package vkubelet
