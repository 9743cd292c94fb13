// Package interlinktest is the rest of interLink for tests: Server is the interLink API
// server, which relays between a virtual kubelet and a plugin, and Plugin a plugin that runs
// pods in a grouptest.World.
package interlinktest
