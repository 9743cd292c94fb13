// Package ecitest is a fake of the API of Alibaba Cloud Elastic Container Instance for
// tests: a codec on a grouptest.World, over HTTP, for the official SDK.
//
// It verifies signatures, and refuses what the API refuses: parameters that the published
// model of an action does not have, or of another type, what is beyond a limit, and updates of
// groups that do not run. It forgets groups that have ended, as the API does. An update that is not incremental loses what it does not name, and
// one of a group with restartPolicy Never fails its containers. Nothing is run: containers end
// and print as a test says, and answer a handful of commands over a WebSocket.
//
// For the WebSocket of commands there is no documentation: that it uses v5.channel.k8s.io or
// v4.channel.k8s.io is an assumption.
package ecitest
