package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// policy is what Config allows, read once.
type policy struct {
	root        bool    // whether we can run things as others: as root in a container may not be able to
	defaultUser account // of all pods, unless each has one of its own
	podUsers    ids     // of which each pod has one; empty if defaultUser is for all
	users       ids
	groups      ids
	ownGroups   []int

	binaries, hostPaths, workingDirs patterns
	volumeDirs                       []string
	programs                         []string // of Config.Images, without links
	capabilities                     []int
	privileged, setuid               bool
	hostPID, hostIPC, sharedNetwork  bool
	rlimits                          []rlimit
}

// account is a user with its main group.
type account struct{ uid, gid int64 }

// nobody is the user that owns nothing, on every distribution.
const nobody = 65534

func newPolicy(cfg Config) (*policy, error) {
	p := &policy{
		root:     os.Geteuid() == 0 && hasCapabilities(unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_CHOWN),
		binaries: cfg.Binaries, hostPaths: cfg.HostPaths, workingDirs: cfg.WorkingDirs,
		privileged: cfg.AllowPrivileged, setuid: cfg.AllowSetuid,
		hostPID: cfg.AllowHostPID, hostIPC: cfg.AllowHostIPC, sharedNetwork: cfg.SharedNetwork,
	}
	if cfg.AllowSetuid && !cfg.AllowUnconfined && !hasCapabilities(unix.CAP_SYS_ADMIN) {
		return nil, errors.New("allowSetuid: setuid programs have no effect with the seccomp profile where virtual-kubelet lacks CAP_SYS_ADMIN: leave it out, or set allowUnconfined too")
	}
	if len(p.binaries) == 0 {
		p.binaries = defaultBinaries()
	}
	for field, list := range map[string]patterns{"binaries": p.binaries, "hostPaths": p.hostPaths, "workingDirs": p.workingDirs} {
		if err := list.check(field); err != nil {
			return nil, err
		}
	}
	for _, dir := range cfg.VolumeDirs {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dir = real
		}
		p.volumeDirs = append(p.volumeDirs, filepath.Clean(dir))
	}
	return p, p.accounts(cfg)
}

func (p *policy) accounts(cfg Config) (err error) {
	if p.defaultUser, err = defaultAccount(cfg.DefaultUser, p.root); err != nil {
		return fmt.Errorf("defaultUser: %w", err)
	}
	if p.podUsers, err = podUserRange(cfg, p.root); err != nil {
		return err
	}
	if p.users, err = parseIDs("users", cfg.Users); err != nil {
		return err
	}
	if p.groups, err = parseIDs("groups", cfg.Groups); err != nil {
		return err
	}
	if p.ownGroups, err = os.Getgroups(); err != nil {
		return fmt.Errorf("our own groups: %w", err)
	}
	if p.capabilities, err = parseCapabilities(cfg.Capabilities); err != nil {
		return err
	}
	p.rlimits, err = parseRlimits(cfg.Rlimits)
	return err
}

// podUserRange is the range of which each pod has a user, if it has.
func podUserRange(cfg Config, root bool) (ids, error) {
	text := cfg.PodUsers
	switch {
	case text != "" && cfg.DefaultUser != "":
		return nil, errors.New("podUsers: defaultUser is for all pods together: set one of the two")
	case text != "" && !root:
		return nil, errors.New("podUsers: only root can run containers as other users than its own: leave it out")
	case !root || cfg.DefaultUser != "":
		return nil, nil
	case text == "":
		text = defaultPodUsers
	}
	users, err := parseIDs("podUsers", []string{text})
	if err == nil && users[0][0] == 0 {
		err = errors.New("podUsers: 0 is root: begin with a number that is nobody's")
	}
	if err == nil && users[0][0] == users[0][1] {
		err = errors.New("podUsers: one number is too few: the first stands for the user of any pod, and the others are those of pods")
	}
	return users, err
}

func defaultAccount(text string, root bool) (account, error) {
	own := account{int64(os.Geteuid()), int64(os.Getegid())}
	switch {
	case text == "" && root:
		return account{nobody, nobody}, nil
	case text == "":
		return own, nil
	}
	user, group, hasGroup := strings.Cut(text, ":")
	if !hasGroup {
		group = user
	}
	uid, err := parseID(user)
	if err != nil {
		return account{}, fmt.Errorf("%q is not of the form 1000 or 1000:1000: %w", text, err)
	}
	gid, err := parseID(group)
	if err != nil {
		return account{}, fmt.Errorf("%q is not of the form 1000 or 1000:1000: %w", text, err)
	}
	if got := (account{uid, gid}); root || got == own {
		return got, nil
	}
	return account{}, fmt.Errorf("%q: only root can run containers as another user than its own (%d:%d): leave it out", text, own.uid, own.gid)
}

// denied is the error for what the configuration does not allow.
func denied(format string, args ...any) error {
	return status.Errorf(codes.PermissionDenied, format, args...)
}

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// checkBinary reports whether a binary may be run. inVolume says that it is in one
// of the container's volumes, where others than the machine's administrator may
// have made a link.
func (p *policy) checkBinary(host string, inVolume bool) error {
	if !inVolume && p.binaries.match(filepath.Clean(host)) {
		return nil
	}
	if real, err := filepath.EvalSymlinks(host); err == nil && (p.binaries.match(real) || p.isProgram(real)) {
		return nil
	}
	return denied("running %s is not allowed on this node: its operator may add it to binaries (now %s)", host, strings.Join(p.binaries, ", "))
}

// isProgram reports whether a path, without links, is one that images stand for.
func (p *policy) isProgram(real string) bool {
	return slices.ContainsFunc(p.programs, func(program string) bool { return below(program, real) })
}

// checkHostPath reports whether a path, without links, may be mounted by a pod whose
// own volumes are below the directories own. To those of another pod may lead what a pod
// has made a link, in a path that it may write to, since it was asked for.
func (p *policy) checkHostPath(real string, own []string) error {
	isOwn := slices.ContainsFunc(own, func(dir string) bool { return below(dir, real) })
	if isOwn || p.hostPaths.contain(real) {
		return nil
	}
	return denied("mounting %s of the machine is not allowed on this node: its operator may add it to hostPaths", real)
}

// rlimit is a limit with the number of its resource.
type rlimit struct {
	resource   int
	soft, hard uint64
}

func parseRlimits(limits map[string]Rlimit) ([]rlimit, error) {
	known := map[string]int{
		"as": unix.RLIMIT_AS, "core": unix.RLIMIT_CORE, "cpu": unix.RLIMIT_CPU, "data": unix.RLIMIT_DATA,
		"fsize": unix.RLIMIT_FSIZE, "locks": unix.RLIMIT_LOCKS, "memlock": unix.RLIMIT_MEMLOCK,
		"msgqueue": unix.RLIMIT_MSGQUEUE, "nice": unix.RLIMIT_NICE, "nofile": unix.RLIMIT_NOFILE,
		"nproc": unix.RLIMIT_NPROC, "rss": unix.RLIMIT_RSS, "rtprio": unix.RLIMIT_RTPRIO,
		"rttime": unix.RLIMIT_RTTIME, "sigpending": unix.RLIMIT_SIGPENDING, "stack": unix.RLIMIT_STACK,
	}
	var all []rlimit
	for name, limit := range limits {
		resource, ok := known[name]
		if !ok {
			return nil, fmt.Errorf("rlimits: there is no limit %q: use nofile, nproc, core and so on", name)
		}
		l := rlimit{resource, unlimited(limit.Soft), unlimited(limit.Hard)}
		if l.soft > l.hard {
			return nil, fmt.Errorf("rlimits: %s: the soft limit is above the hard one", name)
		}
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b rlimit) int { return a.resource - b.resource })
	return all, nil
}

func unlimited(v int64) uint64 {
	if v < 0 {
		return unix.RLIM_INFINITY
	}
	return uint64(v)
}
