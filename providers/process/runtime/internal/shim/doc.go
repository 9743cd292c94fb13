// Package shim is the small process that each container runs under, and what
// the runtime says to it.
//
// A shim is the same executable, started again under another name (Name). It
// outlives the process that started it; it starts the command, waits for all that
// descends from it, writes its log, and writes down how it ended. There are two
// roles: "container", the shim itself, and "init", what runs for a moment between
// the shim and a command: it enters or furnishes namespaces, gives up rights, and
// becomes the command.
//
// What was decided before (which binary, which user, which mounts) is in Spec; the
// shim decides nothing. On other systems than Linux the package is empty.
package shim
