// Package remote is a provider that is a process of its own, in any language: the pods of
// its node are handed to a gRPC server, over a unix socket, or TCP with mutual TLS. The
// protocol is v1alpha1/provider.proto; package server serves a provider that is written
// in Go.
package remote
