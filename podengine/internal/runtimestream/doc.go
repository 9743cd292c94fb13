// Package runtimestream is a client of the streaming server of a container runtime, for
// exec, attach and port-forward: streams of SPDY/3.1 over one connection. What they carry
// is left to the caller.
//
// The general client keeps a compressor of 0.8 MiB and 20 goroutines for each connection,
// and does not end while the runtime reads nothing. This one has no goroutine and no
// compressor, and its connection can be closed at any time.
package runtimestream
