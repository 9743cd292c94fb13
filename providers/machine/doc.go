// Package machine gives each pod a machine of its own, which a Driver makes: a virtual machine
// of a cloud, or anything else that an agent (package agent) can run in. What runs the pod
// there is an engine of this project behind the protocol of package remote; this package
// schedules machines and relays. README.md has the life of a machine.
package machine
