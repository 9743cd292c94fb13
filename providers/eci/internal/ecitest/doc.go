// Package ecitest is a fake of the API of Alibaba Cloud Elastic Container
// Instance for tests: an HTTP server that the official SDK talks to.
//
// It verifies signatures and required parameters, keeps container groups and moves
// them through their states by a clock that a test can put forward, pages, knows
// client tokens, and fails where a test asks it to (Fail, Delay). Nothing is run:
// containers end by Exit, print the text of Log, and answer a handful of
// commands over a WebSocket.
//
// What it knows of the API is what the types of the SDK and the public
// documentation say; the WebSocket of commands, for which there is neither, speaks
// v5.channel.k8s.io or v4.channel.k8s.io, which is an assumption.
package ecitest
