package runtime

// Kinds of isolation, for Config.Isolation.
const (
	// IsolationAuto is IsolationNamespaces where that works, and else
	// IsolationNone.
	IsolationAuto = "auto"
	// IsolationNone starts plain child processes.
	IsolationNone = "none"
	// IsolationNamespaces gives each container a mount namespace and more; it
	// needs root.
	IsolationNamespaces = "namespaces"
)

// CgroupsNone as Config.CgroupParent makes no control groups.
const CgroupsNone = "none"

// Config says where the runtime keeps its state and what pods may do. Only Root
// is needed; all defaults are on the side of denying.
//
// Lists of paths are patterns: as path.Match has it, and "/**" at the end means
// everything below.
type Config struct {
	// Root is the directory for state. One runtime at a time uses it. It is
	// open to nobody else, but where there is no isolation the users that
	// containers run as can pass through it (mode 0711), and what is above it must
	// let them. Its file system is what ImageFsInfo reports.
	Root string `json:"root"`

	// ShimProgram is a static build of the command in providers/process/runtime/shim, of this same
	// version, which containers then run under rather than under the program that calls New: a
	// small program takes a few megabytes less memory for each container. Where the kernel does not
	// run programs from memory, a warning says so, and it is not used.
	ShimProgram []byte `json:"-"`

	// NodeIPs are the addresses of the machine, and of all pods. The first is
	// the main one. Defaults to 127.0.0.1.
	NodeIPs []string `json:"nodeIPs,omitempty"`

	// Isolation is auto, none or namespaces. Empty is auto.
	Isolation string `json:"isolation,omitempty"`
	// SharedNetwork runs pods that do not ask for hostNetwork too. All pods have the
	// machine's network, so without it such pods are refused.
	SharedNetwork bool `json:"sharedNetwork,omitempty"`
	// SharedPIDs lets containers see the processes of the machine. Without, each
	// has a PID namespace of its own if there is isolation by namespaces.
	SharedPIDs bool `json:"sharedPIDs,omitempty"`

	// Binaries are what commands, also those of exec and probes, may name.
	// Defaults to /bin/*, /sbin/*, /usr/bin/*, /usr/sbin/*, /usr/local/bin/* and
	// /usr/local/sbin/*: what the machine's administrator has installed. It is
	// no wall, since a shell runs any command; users and namespaces are.
	Binaries []string `json:"binaries,omitempty"`

	// PodUsers is the range of users, and groups of the same numbers, of which each
	// pod gets one for its containers that ask for none. Two pods never have the
	// same at the same time, and a pod keeps its own across restarts, as long as
	// it has volumes. Defaults to 2000000000-2000065535, which no distribution
	// uses. The first of them is no pod's: it stands for the user of any pod. Only root can use it. The ranges of runtimes on one machine must not
	// overlap.
	PodUsers string `json:"podUsers,omitempty"`
	// DefaultUser is the user and group ("1000" or "1000:1000") of containers
	// that ask for none, for all pods together in place of PodUsers: they can then
	// reach each other's files and processes. Without root it is our own.
	DefaultUser string `json:"defaultUser,omitempty"`
	// Users and Groups are the others that containers may ask for: numbers and
	// ranges ("1000", "2000-2999"). None by default; without root only our own
	// are possible. Groups are also for fsGroup and supplementalGroups. Groups
	// of the machine's /etc/group are never added by themselves.
	Users  []string `json:"users,omitempty"`
	Groups []string `json:"groups,omitempty"`
	// Capabilities are those that containers may add ("NET_ADMIN"). They take
	// effect for containers that run as root.
	Capabilities []string `json:"capabilities,omitempty"`
	// AllowPrivileged allows privileged containers.
	AllowPrivileged bool `json:"allowPrivileged,omitempty"`
	// AllowSetuid lets setuid programs such as sudo have their effect where the
	// pod does not forbid it (allowPrivilegeEscalation). Without, they have none. It
	// makes pods as good as root for the files of the machine that they can see: they
	// can mount over what such programs read. It needs CAP_SYS_ADMIN, or AllowUnconfined.
	AllowSetuid bool `json:"allowSetuid,omitempty"`
	// AllowHostPID lets pods with hostPID see all processes of the machine.
	AllowHostPID bool `json:"allowHostPID,omitempty"`
	// AllowHostIPC lets pods with hostIPC use the machine's System V IPC, POSIX
	// message queues and /dev/shm.
	AllowHostIPC bool `json:"allowHostIPC,omitempty"`

	// AllowUnconfined runs containers without the default seccomp profile. By
	// default all have it, where the kernel does, but for privileged ones and those
	// with further capabilities.
	AllowUnconfined bool `json:"allowUnconfined,omitempty"`

	// HostPaths are the paths of the machine that may be mounted, with all that
	// is below them, after links were followed. None by default.
	HostPaths []string `json:"hostPaths,omitempty"`
	// VolumeDirs are the directories with the pods' own volumes: what is below the UID
	// of a pod is always allowed to that pod. They are not for the operator: the program
	// sets them.
	VolumeDirs []string `json:"-"`
	// Hidden are directories of the machine that look empty to containers, besides
	// Root and VolumeDirs: those of state and logs. The program sets them.
	Hidden []string `json:"-"`
	// WorkingDirs are the working directories that may be asked for, with all that is
	// below them, besides those in a mounted volume, / and /tmp. None by default.
	// A container that asks for none is in / if it has namespaces, and else in a
	// directory of its own.
	WorkingDirs []string `json:"workingDirs,omitempty"`

	// Environment are the names of variables of ours that containers get too.
	// PATH always is, unless the container sets it.
	Environment []string `json:"environment,omitempty"`

	// Rlimits are resource limits of all containers, by the names of ulimit's
	// manual in lower case (nofile, nproc, core, as, fsize and so on).
	Rlimits map[string]Rlimit `json:"rlimits,omitempty"`

	// CgroupParent is the control group that those of the containers are in.
	// Defaults to /virtual-kubelet. "none" makes none. Where none can be made,
	// processes are found and measured by their parents.
	CgroupParent string `json:"cgroupParent,omitempty"`
	// AllowUnenforcedLimits runs containers whose limits of CPU or memory have no
	// effect for want of control groups. By default they are refused. A warning
	// is logged once for each kind of limit.
	AllowUnenforcedLimits bool `json:"allowUnenforcedLimits,omitempty"`
	// MaxProcesses is how many processes and threads a container may have at a
	// time, where there is a control group to count them. Defaults to 4096;
	// negative is no limit.
	MaxProcesses int64 `json:"maxProcesses,omitempty"`

	// Images say what images stand for on this machine, so that pods that were
	// written for container runtimes run as they are. The first whose name matches
	// counts. A container of another image must have a command.
	Images []Image `json:"images,omitempty"`

	// MaxContainers is how many containers there may be that have not ended.
	// Zero is no limit.
	MaxContainers int `json:"maxContainers,omitempty"`

	// StreamAddress is where exec, attach and port-forward are served to clients
	// that have a URL with a token, which is good for once. Defaults to 127.0.0.1:0.
	StreamAddress string `json:"streamAddress,omitempty"`
}

// Image is what an image stands for: programs of the machine. All of it holds
// for containers that say nothing else.
type Image struct {
	// Name is a pattern of the image's name as pods have it, as path.Match has it:
	// "example.com/tools/*:v1". Without a tag, it matches all tags and digests.
	Name string `json:"name"`
	// Command is replaced by a container's command, together with Args; Args by a
	// container's args.
	Command []string `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
	// Environment are variables by their names.
	Environment map[string]string `json:"environment,omitempty"`
	// WorkingDir is an absolute path.
	WorkingDir string `json:"workingDir,omitempty"`
	// User is a user and group, as in DefaultUser.
	User string `json:"user,omitempty"`
	// Files are paths in the container with what is there, read-only: a file or
	// directory of the machine. They need isolation by namespaces, and are there
	// in each container, unless it mounts something else at the path.
	//
	// They, and a Command that is an absolute path, may be run by all containers
	// as if they were in Binaries.
	Files map[string]string `json:"files,omitempty"`
}

// Rlimit is a resource limit. Negative is no limit.
type Rlimit struct {
	Soft int64 `json:"soft"`
	Hard int64 `json:"hard"`
}

const (
	// defaultPodUsers are numbers above those of users, of services, of systemd and
	// of user namespaces, and below 2^31.
	defaultPodUsers = "2000000000-2000065535"
	// defaultMaxProcesses stops a fork bomb long before the machine has no more.
	defaultMaxProcesses = 4096
)

// defaultBinaries are the directories that package managers and administrators
// install programs into.
func defaultBinaries() []string {
	return []string{"/bin/*", "/sbin/*", "/usr/bin/*", "/usr/sbin/*", "/usr/local/bin/*", "/usr/local/sbin/*"}
}
