// Package procfs reads what /proc shows of processes, and kills a process only
// while it is still the one that was read: numbers are used again.
//
// It knows nothing of containers. On other systems than Linux it is empty.
package procfs
