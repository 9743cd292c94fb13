package runtime_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime"
)

// fieldDecisions says of every field of what a sandbox and a container are
// created with what becomes of it. "honoured" marks what has an effect, where
// Config and the machine allow it; "refused" of what no Config allows; and what
// is ignored has the reason why no pod can be wrong about it.
var fieldDecisions = map[string]map[string]string{
	"PodSandboxConfig": {
		"metadata": "honoured", "hostname": "honoured: in namespaces; else as $HOSTNAME",
		"log_directory": "honoured", "labels": "honoured", "annotations": "honoured: kept and shown",
		"dns_config":    "honoured: in namespaces; else names are resolved as on the machine, as is documented",
		"port_mappings": "refused where a port would have to be mapped: the network is the machine's",
		"linux":         "honoured: see there", "windows": "ignored: is for another system",
	},
	"LinuxPodSandboxConfig": {
		"cgroup_parent":    "ignored: Config.CgroupParent says where the groups are; they limit the same there",
		"security_context": "honoured: see there", "sysctls": "refused",
		"overhead":  "ignored: a sandbox has no process that would use it",
		"resources": "ignored: the sum of the containers', which have their own",
	},
	"LinuxSandboxSecurityContext": {
		"namespace_options": "honoured: see there", "selinux_options": "refused", "privileged": "honoured",
		"run_as_user":         "ignored: is of the sandbox's own process, and there is none",
		"run_as_group":        "ignored: as run_as_user",
		"readonly_rootfs":     "ignored: as run_as_user",
		"supplemental_groups": "ignored: as run_as_user", "supplemental_groups_policy": "ignored: as run_as_user",
		"seccomp": "ignored: as run_as_user", "apparmor": "ignored: as run_as_user", "seccomp_profile_path": "ignored: as run_as_user",
	},
	"NamespaceOption": {
		"network": "refused if it is not the machine's, unless Config.SharedNetwork is set",
		"ipc":     "honoured: in namespaces, of each container; without, it is the machine's, which is documented",
		"pid":     "honoured: in namespaces; without, all see all", "target_id": "honoured", "userns_options": "refused",
	},
	"PortMapping": {
		"protocol": "ignored: the same port either way", "container_port": "refused if it is not host_port",
		"host_port": "honoured: is the port itself", "host_ip": "refused",
	},
	"DNSConfig": {"servers": "honoured", "searches": "honoured", "options": "honoured"},
	"ContainerConfig": {
		"metadata": "honoured", "image": "honoured: see there", "command": "honoured", "args": "honoured",
		"working_dir": "honoured", "envs": "honoured", "mounts": "honoured: see there", "devices": "refused", "CDI_devices": "refused",
		"labels": "honoured", "annotations": "honoured: kept and shown", "log_path": "honoured",
		"stdin": "honoured", "stdin_once": "honoured", "tty": "honoured", "linux": "honoured: see there",
		"windows": "ignored: is for another system", "stop_signal": "honoured",
	},
	"ImageSpec": {
		"image": "honoured: Config.Images says what it stands for", "annotations": "ignored: are for what pulls images",
		"user_specified_image": "honoured: kept and shown", "runtime_handler": "ignored: images are the same for the one handler",
		"image_ref": "ignored: is the image again",
	},
	"Mount": {
		"container_path": "honoured", "host_path": "honoured",
		"readonly":        "honoured: in namespaces; not enforced without, which is documented: tokens and configuration are always read-only",
		"selinux_relabel": "ignored: processes have the label of virtual-kubelet, and so do the files",
		"propagation":     "honoured; bidirectional is refused", "uidMappings": "refused", "gidMappings": "refused",
		"recursive_read_only": "honoured: in namespaces; refused without", "image": "refused", "image_sub_path": "refused",
	},
	"LinuxContainerConfig": {"resources": "honoured: see there", "security_context": "honoured: see there"},
	"LinuxContainerSecurityContext": {
		"capabilities": "honoured: see there", "privileged": "honoured: no right is taken; its devices are those of all",
		"namespace_options": "honoured: see there", "selinux_options": "refused",
		"run_as_user": "honoured", "run_as_group": "honoured", "run_as_username": "honoured",
		"readonly_rootfs": "honoured: in namespaces; refused without", "supplemental_groups": "honoured",
		"supplemental_groups_policy": "honoured: Status says whether only the groups that are named are added, as it is where we can change groups",
		"no_new_privs":               "honoured", "masked_paths": "honoured: in namespaces", "readonly_paths": "honoured: in namespaces",
		"seccomp": "refused but for the default, which all have unless Config.AllowUnconfined is set", "apparmor": "refused but for the default, which is none here",
		"seccomp_profile_path": "as seccomp", "apparmor_profile": "as apparmor",
	},
	"Capability": {
		"add_capabilities": "honoured", "drop_capabilities": "honoured", "add_ambient_capabilities": "refused",
	},
	"LinuxContainerResources": {
		"cpu_period": "honoured", "cpu_quota": "honoured", "cpu_shares": "honoured", "memory_limit_in_bytes": "honoured",
		"oom_score_adj": "honoured: as far as the kernel lets us", "cpuset_cpus": "refused", "cpuset_mems": "refused",
		"hugepage_limits": "refused, but for limits of none", "unified": "honoured", "memory_swap_limit_in_bytes": "honoured",
	},
}

// A field that comes with a new version of the CRI must be thought about: it may
// be one that a pod relies on.
func TestEveryFieldIsDecided(t *testing.T) {
	fields := runtimeapi.File_staging_src_k8s_io_cri_api_pkg_apis_runtime_v1_api_proto.Messages()
	for message, decided := range fieldDecisions {
		var names []string
		for all, i := fields.ByName(protoreflect.Name(message)).Fields(), 0; i < all.Len(); i++ {
			names = append(names, string(all.Get(i).Name()))
		}
		slices.Sort(names)
		if got := slices.Sorted(maps.Keys(decided)); !slices.Equal(got, names) {
			t.Errorf("decided of %s are %q, and it has %q", message, got, names)
		}
	}
}

// What cannot be done is refused before anything starts, in words of the pod.
func TestRefusedSandboxes(t *testing.T) {
	n := newNode(t)
	type podConfig = runtimeapi.PodSandboxConfig
	ports := func(p *runtimeapi.PortMapping) *podConfig {
		return &podConfig{PortMappings: []*runtimeapi.PortMapping{p}}
	}
	context := func(sc *runtimeapi.LinuxSandboxSecurityContext) *podConfig {
		return &podConfig{Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: sc}}
	}
	for says, config := range map[string]*podConfig{
		"hostPort":       ports(&runtimeapi.PortMapping{ContainerPort: 80, HostPort: 8080}),
		"hostIP":         ports(&runtimeapi.PortMapping{ContainerPort: 80, HostPort: 80, HostIp: "127.0.0.1"}),
		"sysctls":        {Linux: &runtimeapi.LinuxPodSandboxConfig{Sysctls: map[string]string{"net.core.somaxconn": "1"}}},
		"hostUsers":      context(&runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{UsernsOptions: &runtimeapi.UserNamespace{}}}),
		"seLinuxOptions": context(&runtimeapi.LinuxSandboxSecurityContext{SelinuxOptions: &runtimeapi.SELinuxOption{Level: "s0"}}),
	} {
		config.Metadata = sandboxConfig("").Metadata
		if _, err := n.RunPodSandbox(ctx, config, ""); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	config := sandboxConfig(t.TempDir())
	config.PortMappings = []*runtimeapi.PortMapping{{ContainerPort: 80}, {ContainerPort: 81, HostPort: 81}, {ContainerPort: 82, HostPort: 82, HostIp: "::"}}
	config.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
		Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
		SelinuxOptions:   &runtimeapi.SELinuxOption{},
		NamespaceOptions: &runtimeapi.NamespaceOption{UsernsOptions: &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}},
	}}
	if _, err := n.RunPodSandbox(ctx, config, ""); err != nil {
		t.Errorf("nothing has to be mapped: %v", err)
	}
}

func TestRefusedContainers(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		box, boxConfig := n.sandbox()
		mount := func(m *runtimeapi.Mount) *runtimeapi.ContainerConfig {
			c := sh("true")
			m.ContainerPath, c.Mounts = "/x", []*runtimeapi.Mount{m}
			return c
		}
		limited := func(r *runtimeapi.LinuxContainerResources) *runtimeapi.ContainerConfig {
			c := sh("true")
			c.Linux = &runtimeapi.LinuxContainerConfig{Resources: r}
			return c
		}
		type sc = runtimeapi.LinuxContainerSecurityContext
		local := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "vk-profile"}
		refused := map[string]*runtimeapi.ContainerConfig{
			"image example.com/data:v1": mount(&runtimeapi.Mount{Image: &runtimeapi.ImageSpec{Image: "example.com/data:v1"}, HostPath: n.volume()}),
			"images are not pulled":     mount(&runtimeapi.Mount{ImageSubPath: "part", HostPath: n.volume()}),
			"owners of files":           mount(&runtimeapi.Mount{UidMappings: []*runtimeapi.IDMapping{{Length: 1}}, HostPath: n.volume()}),
			"devices":                   {Metadata: sh("").Metadata, Command: []string{"sh"}, CDIDevices: []*runtimeapi.CDIDevice{{Name: "vendor.com/gpu=0"}}},
			`"vk-profile"`:              secured(&sc{Apparmor: local}),
			//lint:ignore SA1019 clients may still set it
			`profile "vk-old"`: secured(&sc{SeccompProfilePath: "localhost/vk-old"}),
			//lint:ignore SA1019 clients may still set it
			`profile "vk-older"`: secured(&sc{ApparmorProfile: "localhost/vk-older"}),
			"seLinuxOptions":     secured(&sc{SelinuxOptions: &runtimeapi.SELinuxOption{Type: "t"}}),
			"hostUsers":          secured(&sc{NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER, UsernsOptions: &runtimeapi.UserNamespace{}}}),
			"ambient":            secured(&sc{Capabilities: &runtimeapi.Capability{AddAmbientCapabilities: []string{"CHOWN"}}}),
			"cpuset":             limited(&runtimeapi.LinuxContainerResources{CpusetCpus: "0"}),
			"memory nodes":       limited(&runtimeapi.LinuxContainerResources{CpusetMems: "0"}),
			"huge pages of 2MB":  limited(&runtimeapi.LinuxContainerResources{HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 2 << 20}}}),
			`"../cgroup.procs"`:  limited(&runtimeapi.LinuxContainerResources{Unified: map[string]string{"../cgroup.procs": "1"}}),
		}
		if n.cfg.Isolation == runtime.IsolationNone {
			refused["readOnlyRootFilesystem"] = secured(&sc{ReadonlyRootfs: true})
			refused["recursiveReadOnly"] = mount(&runtimeapi.Mount{Readonly: true, RecursiveReadOnly: true, HostPath: n.volume()})
		}
		for says, config := range refused {
			_, err := n.CreateContainer(ctx, box, config, boxConfig)
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v", says, err)
			}
		}
		// A capability that is not allowed is denied also where there are none to give.
		_, err := n.CreateContainer(ctx, box, secured(&sc{Capabilities: &runtimeapi.Capability{AddCapabilities: []string{"NET_ADMIN"}}}), boxConfig)
		if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "capabilities") {
			t.Errorf("a capability: %v", err)
		}
		if ids := n.ids(); len(ids) > 0 {
			t.Errorf("there are containers: %v", ids)
		}
		// Defaults, as clients send them, ask for nothing.
		config := secured(&sc{
			Seccomp:  &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			Apparmor: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined},
		})
		config.Linux.Resources = &runtimeapi.LinuxContainerResources{HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB"}}}
		id, err := n.CreateContainer(ctx, box, config, boxConfig)
		must(t, err)
		update := &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{CpusetCpus: "0"}}
		if err := n.UpdateContainerResources(ctx, id, update); status.Code(err) != codes.InvalidArgument {
			t.Errorf("an update: %v", err)
		}
	})
}

// What shows the machine is hidden, and what changes it cannot be written, even
// by root; privileged containers are not kept from it.
func TestProtectedPathsAsRoot(t *testing.T) {
	asRoot(t)
	n := newNode(t, func(c *runtime.Config) { c.Users, c.AllowPrivileged = []string{"0"}, true })
	output := func(privileged bool) string {
		config := secured(&runtimeapi.LinuxContainerSecurityContext{
			RunAsUser: number(0), Privileged: privileged,
			MaskedPaths:   []string{"/proc/version", "/proc/tty", "/proc/vk-no-such"},
			ReadonlyPaths: []string{"/proc/sys", "/vk-no-such"},
		})
		config.Command[2] = `echo $(wc -l < /proc/version) $(ls /proc/tty | wc -l)
read name < /proc/sys/kernel/domainname; if echo "$name" > /proc/sys/kernel/domainname; then echo written; fi 2>/dev/null`
		return n.outputOf(config)
	}
	if got := output(false); got != "0 0\n" {
		t.Errorf("%q", got)
	}
	if got := output(true); !strings.HasPrefix(got, "1 ") || !strings.HasSuffix(got, "written\n") {
		t.Errorf("privileged: %q", got)
	}
}
