// Package relay keeps the calls to a container runtime going when the process that
// made them is killed.
//
// To a runtime, the end of a connection means that its calls are given up. What it
// makes of that half way is not to be relied on: containerd 1.6 leaves containers
// that nobody can remove, shims without a container, and starts of which nobody can
// know whether the command has run. A kubelet that is killed has the same trouble.
//
// The relay is a small process of this very program between the two. It passes on
// what either says, and when the program is gone it waits for the answers to the
// calls under way before it hangs up, and ends. The next program finds what came of
// them. It knows nothing of the calls but where one begins and ends (HTTP/2).
//
// Linux only. On other systems there is no relay, and Start returns an error.
package relay
