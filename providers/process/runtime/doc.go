// Package runtime runs containers as plain processes of the operating system: an
// implementation of the CRI's Go interfaces (RuntimeService and
// ImageManagerService of k8s.io/cri-api/pkg/apis) for machines without a container
// runtime. What knows what a pod is, the pod engine, is on top of it, as it is on
// top of containerd.
//
// A program that uses it must call MaybeShim first of all in main: each container
// runs under a small process of its own, its shim, which is the same executable
// started again, or Config.ShimProgram.
//
// # What a container is
//
// A container is a command of the machine with everything that descends from it:
// its own session, its own control group where the machine lets us have one, its
// own log, exit code, environment, working directory, resource limits and user. No
// image is pulled: the image's name is recorded, and what the command names is run
// from the machine. A container must therefore have a command. The network is the
// machine's.
//
// There are two kinds of isolation, Config.Isolation:
//
//   - "namespaces", for root: a private view of the machine's files, in which the
//     container's volumes are at their mount paths, with a /tmp, /var/tmp and /dev of
//     its own, and its own host name, process numbers, terminals and control groups.
//     The containers of a pod share its IPC namespace and /dev/shm. Nothing is
//     made on the machine for a mount path. The files of the machine are the same,
//     but the runtime's and other pods' are not there.
//   - "none": plain child processes. Nothing can be mounted, so each volume has a
//     link below the directory that VIRTUAL_KUBELET_MOUNTS names (a volume for
//     /etc/config is $VIRTUAL_KUBELET_MOUNTS/etc/config) and a variable of its own
//     (VIRTUAL_KUBELET_MOUNT_ETC_CONFIG) with its place on the machine. That a
//     volume is read-only is not enforced.
//
// # What is allowed
//
// Config says which binaries, users, directories and paths of the machine pods may
// use; see its fields for the defaults. They let a pod run programs of the system
// as a user of its own (as our user, without root), and deny what would surprise the
// machine's operator: root, other users, privileged containers, paths of the
// machine, programs elsewhere. What is denied is an error of CreateContainer with
// the code PermissionDenied that names the field to change.
//
// What no configuration could allow is refused before anything starts, with the
// code InvalidArgument and a word on what to do instead: image volumes, devices,
// user namespaces, sysctls, host ports that are not the container's, SELinux labels
// and profiles by name, huge pages, CPU sets, and, without namespaces, a read-only
// root. Pods have the machine's network, and are refused if they do not ask for it,
// unless Config.SharedNetwork is set; without namespaces they also have its IPC and
// its /etc/resolv.conf.
//
// There is a seccomp profile, no AppArmor profile, and no image with files of its
// own: this is for pods that one trusts as much as a login on the machine. Without root all
// containers run as the user that virtual-kubelet runs as, and can reach each
// other's processes and files, and its own.
//
// # Restarts
//
// Everything is on disk below Config.Root and in the shims. Containers go on when
// the program ends or is killed; the next New takes them up again. A start that was
// begun is never begun again, unless it was cut off before the command could run:
// such a container is as it was created. If a shim is gone and has not written how
// its container ended, what is left of it is killed, and it has exited with the
// code 137 and the reason ContainerStatusUnknown.
//
// Under systemd a restart must not end the shims, which are in control groups of
// their own where there are any; else set KillMode=process for the service.
//
// What a container has started ends with it, however it hides: the shim
// waits for all that descends from it. One thing can escape: if the shim itself is
// killed, there are no control groups and no namespaces, and a process has both a
// session of its own and an environment without VIRTUAL_KUBELET_CONTAINER_ID, it is
// not found again.
//
// Linux only. On other systems New returns an error.
package runtime
