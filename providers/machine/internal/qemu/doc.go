// Package qemu runs virtual machines on this host: each is a process of qemu in a session of its
// own, which outlives the process that has started it, with a directory for its record, its disk
// and its console. What runs in a machine, and which machines there are to be, is for others to
// decide.
package qemu
