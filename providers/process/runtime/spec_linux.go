package runtime

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/cgroup"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

// specOf turns the CRI's configuration into what a shim runs, and denies what is
// not allowed.
func (r *Runtime) specOf(c *container, box *sandbox, mounts []shim.Mount) (*shim.Spec, error) {
	config := c.config
	sc := config.GetLinux().GetSecurityContext()
	if err := r.refuseContainer(config); err != nil {
		return nil, err
	}
	if sc.GetPrivileged() && !r.policy.privileged {
		return nil, denied("privileged containers are not allowed on this node: its operator may set allowPrivileged")
	}
	stands := r.catalog.find(config.GetImage().GetImage())
	who, err := r.policy.userOf(sc, box.user, stands.account)
	if err != nil {
		return nil, err
	}
	spec := &shim.Spec{
		ID: c.id, Marker: marker(c.id),
		Stdin: config.GetStdin(), StdinOnce: config.GetStdinOnce(), TTY: config.GetTty(),
		Group: r.groups.Group(c.id), Shims: r.groups.Group(shimsGroup),
		Limits: r.limitsOf(config.GetLinux().GetResources()),
	}
	if dir := box.config.GetLogDirectory(); dir != "" && config.GetLogPath() != "" {
		spec.LogPath = filepath.Join(dir, config.GetLogPath())
	}
	if r.isolation == IsolationNamespaces {
		if spec.Namespaces, err = r.namespacesOf(c, box, mounts); err != nil {
			return nil, err
		}
	}
	if spec.Command, err = r.commandOf(c, box, stands, who, mounts); err != nil {
		return nil, err
	}
	spec.Command.Path, err = r.lookup(spec.Command, mounts)
	if status.Code(err) == codes.NotFound {
		spec.NoProgram, err = status.Convert(err).Message(), nil
	}
	return spec, err
}

// commandOf says what is run, by whom, where and in which environment, but not which
// binary that is.
func (r *Runtime) commandOf(c *container, box *sandbox, stands *standIn, who *shim.User, mounts []shim.Mount) (shim.Command, error) {
	config := c.config
	sc := config.GetLinux().GetSecurityContext()
	command := shim.Command{
		Args: stands.args(config.GetCommand(), config.GetArgs()),
		Env:  r.environmentOf(c, box, stands, who, mounts),
	}
	if len(command.Args) == 0 {
		return command, invalid("container %s has no command: images are not pulled on this node, so that what %s would run is not known: set command, or have the node's operator add it to images", config.GetMetadata().GetName(), config.GetImage().GetImage())
	}
	if adj := int(config.GetLinux().GetResources().GetOomScoreAdj()); adj != 0 {
		command.OOMScoreAdj = &adj
	}
	for _, l := range r.policy.rlimits {
		command.Rlimits = append(command.Rlimits, shim.Rlimit{Resource: l.resource, Soft: l.soft, Hard: l.hard})
	}
	command.NoNewPrivileges = (sc.GetNoNewPrivs() || !r.policy.setuid) && !sc.GetPrivileged()
	// Checked in any case, though we have them to give only as root.
	capabilities, err := r.policy.capabilitiesOf(sc.GetCapabilities())
	switch {
	case sc.GetPrivileged():
	case err != nil:
		return command, err
	case r.policy.root:
		command.Capabilities = capabilities
	}
	if r.policy.root {
		command.User = r.letIn(who, box)
	}
	command.FilterCalls = !sc.GetPrivileged() && !r.cfg.AllowUnconfined && !givesMore(capabilities)
	command.Dir, command.MakeDir, err = r.workingDirOf(c, stands, mounts)
	return command, err
}

// environmentOf is the container's environment: what it sets wins.
func (r *Runtime) environmentOf(c *container, box *sandbox, stands *standIn, who *shim.User, mounts []shim.Mount) []string {
	env := environment{}
	env.set("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	for _, name := range slices.Concat([]string{"PATH"}, r.cfg.Environment) {
		if value, ok := os.LookupEnv(name); ok {
			env.set(name, value)
		}
	}
	if name := box.config.GetHostname(); name != "" {
		env.set("HOSTNAME", name)
	}
	env.set("HOME", homeOf(who.UID))
	if c.config.GetTty() {
		env.set("TERM", "xterm")
	}
	if r.isolation == IsolationNone {
		env.set(mountsEnv, c.path(mountsDir))
		for _, m := range mounts {
			env.set(mountEnv(m.Target), m.Source)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(stands.Environment)) {
		env.set(name, stands.Environment[name])
	}
	for _, kv := range c.config.GetEnvs() {
		env.set(kv.GetKey(), string(kv.GetValue()))
	}
	env.set(shim.MarkerEnv, c.id)
	return env.list()
}

// letIn is a user with the group that passes through the pod's directories, where
// there is no isolation.
func (r *Runtime) letIn(who *shim.User, box *sandbox) *shim.User {
	if group := uint32(box.user.gid); r.isolation == IsolationNone && who.GID != group && !slices.Contains(who.Groups, group) {
		who.Groups = append(who.Groups, group)
	}
	return who
}

func marker(id string) string { return shim.MarkerEnv + "=" + id }

// environment keeps the order in which variables were first set.
type environment struct {
	names  []string
	values map[string]string
}

func (e *environment) set(name, value string) {
	if e.values == nil {
		e.values = map[string]string{}
	}
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

func (e *environment) list() []string {
	list := make([]string, len(e.names))
	for i, name := range e.names {
		list[i] = name + "=" + e.values[name]
	}
	return list
}

// getenv finds a variable in a list.
func getenv(env []string, name string) string {
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

// limitsOf are the limits of a control group.
func (r *Runtime) limitsOf(res *runtimeapi.LinuxContainerResources) cgroup.Limits {
	return cgroup.Limits{
		Processes: r.cfg.MaxProcesses,
		CPUShares: res.GetCpuShares(), CPUQuota: res.GetCpuQuota(), CPUPeriod: res.GetCpuPeriod(),
		Memory: res.GetMemoryLimitInBytes(), Swap: res.GetMemorySwapLimitInBytes(),
		Unified: res.GetUnified(),
	}
}
