package runtime

import (
	"net/netip"
	"path/filepath"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Here is refused what no configuration of a runtime for processes can do: a pod
// that asks for it must not run as if it had got it. What the operator may allow
// is in policy. fieldDecisions, in the tests, has what becomes of every field of
// the CRI, and why some can be ignored.

// refuseSandbox refuses what the pods of this node cannot have.
func refuseSandbox(config *runtimeapi.PodSandboxConfig) error {
	if len(config.GetLinux().GetSysctls()) > 0 {
		return invalid("sysctls cannot be set for a pod on this node: its processes have the machine's network and IPC")
	}
	for _, m := range config.GetPortMappings() {
		if err := refusePort(m); err != nil {
			return err
		}
	}
	sc := config.GetLinux().GetSecurityContext()
	return refuseLabels(sc.GetNamespaceOptions(), sc.GetSelinuxOptions())
}

// refusePort refuses a port that would have to be mapped: processes listen on the
// machine itself.
func refusePort(m *runtimeapi.PortMapping) error {
	if m.GetHostPort() == 0 {
		return nil
	}
	if m.GetHostPort() != m.GetContainerPort() {
		return invalid("the port %d of a container cannot be the port %d of this node (hostPort): its processes listen on the machine itself, so that both must be the same", m.GetContainerPort(), m.GetHostPort())
	}
	if addr, err := netip.ParseAddr(m.GetHostIp()); m.GetHostIp() != "" && (err != nil || !addr.IsUnspecified()) {
		return invalid("the port %d cannot be bound to %s (hostIP) on this node: its processes listen on the machine itself, where the program chooses the address", m.GetHostPort(), m.GetHostIp())
	}
	return nil
}

func refuseLabels(options *runtimeapi.NamespaceOption, label *runtimeapi.SELinuxOption) error {
	if users := options.GetUsernsOptions(); users != nil && users.GetMode() != runtimeapi.NamespaceMode_NODE {
		return invalid("a pod of this node cannot have a user namespace (hostUsers: false): its processes are users of the machine")
	}
	if label.GetUser()+label.GetRole()+label.GetType()+label.GetLevel() != "" {
		return invalid("SELinux labels (seLinuxOptions) cannot be set on this node: its processes have that of virtual-kubelet")
	}
	return nil
}

// refuseContainer refuses what the containers of this node cannot have.
func (r *Runtime) refuseContainer(config *runtimeapi.ContainerConfig) error {
	sc := config.GetLinux().GetSecurityContext()
	if profile := localProfile(sc); profile != "" {
		return invalid("the seccomp or AppArmor profile %q cannot be applied: processes of this node have none", profile)
	}
	switch {
	case len(config.GetDevices()) > 0 || len(config.GetCDIDevices()) > 0:
		return invalid("devices cannot be given to containers of this node: mount their path instead, if its operator allows it (hostPaths)")
	case sc.GetReadonlyRootfs() && r.isolation != IsolationNamespaces:
		return invalid("the root file system cannot be read-only (readOnlyRootFilesystem) on this node, whose containers have the machine's: its operator may set isolation to %s, which needs root", IsolationNamespaces)
	case len(sc.GetCapabilities().GetAddAmbientCapabilities()) > 0:
		return invalid("ambient capabilities cannot be given to containers of this node: add capabilities, which take effect for root")
	}
	if err := refuseLabels(sc.GetNamespaceOptions(), sc.GetSelinuxOptions()); err != nil {
		return err
	}
	return refuseResources(config.GetLinux().GetResources())
}

// localProfile is the profile that a container asks for by its name, also in the
// fields of old. RuntimeDefault is the runtime's own: here that is none.
func localProfile(sc *runtimeapi.LinuxContainerSecurityContext) string {
	for _, profile := range []*runtimeapi.SecurityProfile{sc.GetSeccomp(), sc.GetApparmor()} {
		if profile.GetProfileType() == runtimeapi.SecurityProfile_Localhost {
			return profile.GetLocalhostRef()
		}
	}
	//lint:ignore SA1019 clients may still set them
	for _, profile := range []string{sc.GetSeccompProfilePath(), sc.GetApparmorProfile()} {
		if name, ok := strings.CutPrefix(profile, "localhost/"); ok {
			return name
		}
	}
	return ""
}

// refuseResources refuses limits that this runtime does not set. Those that it
// sets where the machine has the control groups for them are another matter: see
// unenforced.
func refuseResources(res *runtimeapi.LinuxContainerResources) error {
	if res.GetCpusetCpus()+res.GetCpusetMems() != "" {
		return invalid("a container cannot be bound to CPUs or memory nodes (cpuset) on this node")
	}
	for _, l := range res.GetHugepageLimits() {
		// A limit of none is of every container that asks for no huge pages.
		if l.GetLimit() > 0 {
			return invalid("a container cannot be given %d bytes of huge pages of %s on this node: it does not count them", l.GetLimit(), l.GetPageSize())
		}
	}
	for name := range res.GetUnified() {
		if name != filepath.Base(name) || strings.HasPrefix(name, ".") {
			return invalid("%q is no file of a control group", name)
		}
	}
	return nil
}

// refuseMount refuses what cannot be mounted under any policy.
func (r *Runtime) refuseMount(m *runtimeapi.Mount) error {
	target := m.GetContainerPath()
	switch {
	case m.GetImage() != nil || m.GetImageSubPath() != "":
		return invalid("the image %s cannot be mounted at %s: images are not pulled on this node", m.GetImage().GetImage(), target)
	case len(m.GetUidMappings())+len(m.GetGidMappings()) > 0:
		return invalid("the mount at %s: the owners of files cannot be mapped on this node, whose containers have no user namespaces", target)
	case m.GetPropagation() == runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL:
		return invalid("the mount at %s: mounts of containers are not propagated to the machine", target)
	case m.GetRecursiveReadOnly() && r.isolation != IsolationNamespaces:
		return invalid("the mount at %s cannot be read-only with all below it (recursiveReadOnly) on this node: its operator may set isolation to %s, which needs root", target, IsolationNamespaces)
	case !mountable(filepath.Clean(target)):
		return invalid("nothing can be mounted at %q", target)
	}
	return nil
}
