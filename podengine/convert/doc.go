// Package convert turns pods and their containers into what a container runtime
// is asked for over the CRI: the configuration of a sandbox, of a container, and
// of a container whose resources have changed.
//
// Nothing in it reads files or calls a runtime. Environments are resolved,
// volumes are on disk, images are pulled and devices are allocated by others;
// what came of that is in ContainerOptions. Only Linux is known.
//
// The rules are those of the Kubernetes API's documentation, of the KEPs that
// the comments name, and of the CRI's own comments.
package convert
