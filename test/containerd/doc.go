// Package containerd starts a containerd of its own for a test: a runtime of
// containers and pods behind the CRI, with a network and images.
//
// It runs the containerd, runc and CNI plugins of the distribution as root, with
// a root, state, socket, network bridge and subnet that nobody else uses, so
// several run side by side, also beside one of the machine. Nothing outlives the
// process that started it (no container, mount, interface, firewall rule,
// control group or file), not even when that process or the supervisor is
// killed. The machine's settings stay as they are.
//
// The supervisor is the program in the directory cmd/containerd-up; "make
// containerd-up" builds it and installs the packages that it needs.
//
// The package makes no images: see the module in the directory conformance.
package containerd
