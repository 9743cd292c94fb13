// Package cgroup puts processes into control groups of their own, v1, v2 or both
// (hybrid), as far as the machine lets us: to find and kill them all, to measure
// and to limit them.
//
// Everything here is best effort; its users know another way to find its
// processes. On other systems than Linux the package is empty.
package cgroup
