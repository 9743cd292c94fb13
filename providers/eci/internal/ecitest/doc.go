// Package ecitest is a fake of the API of Alibaba Cloud Elastic Container Instance for
// tests: an HTTP server for the official SDK.
//
// It verifies signatures and required parameters, keeps container groups and moves them
// through their states by a clock that a test can put forward, pages, knows client
// tokens, and fails if a test asks it to (Fail, Delay). Nothing is run: containers end
// by Exit, print the text of Log, and answer a handful of commands over a WebSocket.
//
// It is based on the types of the SDK and the public documentation. For the WebSocket
// of commands there is neither; that it uses v5.channel.k8s.io or v4.channel.k8s.io is
// an assumption.
package ecitest
