// Package podcgroup places pods in control groups as a kubelet does: below a root, a
// group for each QoS class but Guaranteed, and in it one for each pod, with what the
// pod may use altogether. The names are those of the runtime's cgroup driver. Groups
// of containers are left to the runtime.
package podcgroup
