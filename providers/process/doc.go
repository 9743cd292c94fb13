// Package process runs pods as operating-system processes, for machines with no
// container runtime: it is the pod engine (package podengine) over package
// runtime. Images are not pulled; what a container's command names is run as it is
// on the machine, within what the configuration allows. README.md says what that
// means for pods and for the machine.
package process
