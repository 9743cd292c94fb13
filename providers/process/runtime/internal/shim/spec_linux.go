package shim

import "github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/cgroup"

// Name is the name (argv[0]) that the executable is started again under.
const Name = "vk-process-shim"

// MarkerEnv is the variable that all processes of a container have, with the
// container's ID, so that they are found again when their shim is gone.
const MarkerEnv = "VIRTUAL_KUBELET_CONTAINER_ID"

// Spec says what a shim runs.
type Spec struct {
	ID string `json:"id"`
	// Marker is the environment entry that marks the container's processes.
	Marker string `json:"marker"`
	// Command is what is run.
	Command Command `json:"command"`
	// NoProgram is why the start of a command without a binary fails. One that is there by
	// then is not run: nobody has checked that it may be.
	NoProgram string `json:"noProgram,omitempty"`
	// LogPath is where the output goes; empty is nowhere.
	LogPath string `json:"logPath,omitempty"`
	// Stdin keeps a standard input open; StdinOnce closes it with the first
	// session that was attached to it. TTY gives it a terminal.
	Stdin     bool `json:"stdin,omitempty"`
	StdinOnce bool `json:"stdinOnce,omitempty"`
	TTY       bool `json:"tty,omitempty"`
	// Namespaces is what is private. Nil is nothing.
	Namespaces *Namespaces `json:"namespaces,omitempty"`
	// Group is the container's control group, Shims the one of the shims.
	Group  cgroup.Group  `json:"group,omitempty"`
	Shims  cgroup.Group  `json:"shims,omitempty"`
	Limits cgroup.Limits `json:"limits,omitzero"`
}

// Command is something to run in a container: its own command, or one of exec.
type Command struct {
	// Path is the binary, as it is called in the container.
	Path string   `json:"path"`
	Args []string `json:"args"`
	Env  []string `json:"env"`
	Dir  string   `json:"dir"`
	// MakeDir makes Dir, if it is not there, with the rights of User.
	MakeDir bool `json:"makeDir,omitempty"`
	// User is who runs it; nil is the shim's user.
	User *User `json:"user,omitempty"`
	// NoNewPrivileges takes the effect from setuid binaries.
	NoNewPrivileges bool `json:"noNewPrivileges,omitempty"`
	// Capabilities are those that may be had at all, by number; nil changes
	// nothing.
	Capabilities []int `json:"capabilities,omitempty"`
	// FilterCalls applies the default seccomp profile.
	FilterCalls bool     `json:"filterCalls,omitempty"`
	Rlimits     []Rlimit `json:"rlimits,omitempty"`
	// OOMScoreAdj is set as far as that is allowed.
	OOMScoreAdj *int `json:"oomScoreAdj,omitempty"`
}

// User is a user with its groups.
type User struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}

// Rlimit is a resource limit, by its number.
type Rlimit struct {
	Resource int    `json:"resource"`
	Soft     uint64 `json:"soft"`
	Hard     uint64 `json:"hard"`
}

// Namespaces says what of the machine is private to a container.
type Namespaces struct {
	// Root is an empty directory that the private root is put together on.
	Root string `json:"root"`
	// Tmp and VarTmp are the directories that are /tmp and /var/tmp.
	Tmp    string `json:"tmp"`
	VarTmp string `json:"varTmp"`
	// Hostname is set in a UTS namespace; empty has none.
	Hostname string `json:"hostname,omitempty"`
	// PID makes a PID namespace. JoinPID, a process and its start, is entered
	// instead.
	PID     bool    `json:"pid,omitempty"`
	JoinPID *Target `json:"joinPID,omitempty"`
	// IPC is the file that the pod's IPC namespace is mounted on; empty is the
	// machine's. SharedMemory is the directory that is /dev/shm.
	IPC          string `json:"ipcNamespace,omitempty"`
	SharedMemory string `json:"sharedMemory"`
	// Group is the control group that is all that the container sees of them, by
	// hierarchy; with it /sys is only readable, too. Nil shows the machine's.
	Group map[string]string `json:"group,omitempty"`
	// Hidden are directories of the machine that look empty, but for Mounts.
	Hidden []string `json:"hidden,omitempty"`
	// ReadonlyRoot lets nothing but the mounts and /dev be written to.
	ReadonlyRoot bool    `json:"readonlyRoot,omitempty"`
	Mounts       []Mount `json:"mounts,omitempty"`
	// MaskedPaths look empty, ReadonlyPaths cannot be written below. Those that
	// are not there are left out.
	MaskedPaths   []string `json:"maskedPaths,omitempty"`
	ReadonlyPaths []string `json:"readonlyPaths,omitempty"`
}

// Target is a process whose namespace is entered.
type Target struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
}

// Mount is a file or directory of the machine that a container sees at a path.
type Mount struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	Readonly bool   `json:"readonly,omitempty"`
	// Recursive makes what is mounted below read-only too.
	Recursive bool `json:"recursive,omitempty"`
	// Slave shows what the machine mounts below later.
	Slave bool `json:"slave,omitempty"`
}
