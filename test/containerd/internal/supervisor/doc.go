// Package supervisor runs one containerd and removes what it leaves behind. It
// is the body of the program containerd-up.
//
// There are three processes: the supervisor, which its parent stops by closing
// its standard input; containerd, which the kernel kills when the supervisor
// dies; and the cleaner, which waits until the supervisor is gone, however that
// came about, and then removes shims, containers, mounts, the network and files.
package supervisor
