// Package nodeutil puts the pieces of a virtual node together: a client, the
// informers, the two controllers of package node, and an HTTPS server with the
// handlers of package node/api. A provider author calls NewNode with a function
// that makes the provider, and runs what comes back.
//
// All of it is optional: a program with another wiring uses package node itself,
// and takes from here what fits, such as the TLS and authentication helpers.
package nodeutil
