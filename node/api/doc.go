// Package api answers the part of the kubelet's HTTP API that is about pods:
// logs, exec, attach, port-forward, the lists of pods, and their statistics.
//
// What it needs from a provider are plain functions (PodHandlerConfig), so it
// works for any provider and without the rest of this module. PodHandler has
// all routes; the Handle functions are the single endpoints, for use on a router
// of one's own. They take the path variables namespace, pod and container from
// net/http's patterns or from gorilla/mux, and check them before the provider
// is called:
//
//	mux.Handle("/containerLogs/{namespace}/{pod}/{container}", api.HandleContainerLogs(p.GetContainerLogs))
//
// PodRoutes has the routes as a list, for a router that has more of them:
// docs/kubelet-api.md describes each.
//
// # What handlers have in common
//
// A function that is nil answers 501 and names what the provider lacks. An
// error of the provider becomes the HTTP status that package errdefs has for
// its class, with its message as plain text and, where the error names a time,
// a Retry-After header. A provider that panics is recovered from, logged, and
// answered with 500. All handlers are safe for concurrent use, and call the
// provider's functions concurrently.
//
// # Streaming
//
// Exec, attach and port-forward speak what kube-apiserver and kubectl speak:
// SPDY, and WebSocket in all its versions (the older channel protocols, v5,
// and SPDY tunnelled in a WebSocket), so that a node may declare the feature
// ExtendWebSocketsToKubelet. A session over WebSocket costs some 70 KiB of memory, one
// over SPDY 150 KiB, and 300 KiB while its provider does not read what the client
// sends. StreamLimits bounds how many there are.
//
// The context that the provider gets ends when its client has gone, which is
// noticed at once. There is one limit, of TCP: where a client leaves behind
// more unread input than all the buffers hold (some hundred kilobytes here, and
// the operating systems'), its end of the connection is out of sight behind
// them, until the provider reads on or the idle timeout ends the session. On
// Linux a client that breaks off is noticed even then, within a second.
//
// When a session has ended, its connection stays for a second at most, for the
// client to take the last of the output and the exit code.
//
// # What it leaves to others
//
// Authentication, authorization, TLS and everything that is not about pods
// (/healthz, /configz, /metrics, ...): see package nodeutil. The package reads
// no flag, no file and no environment variable.
package api
