package runtime

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis"

	"github.com/virtual-kubelet/virtual-kubelet/internal/dirlock"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/cgroup"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/procfs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

// Runtime is a container runtime over plain processes. It is safe for concurrent
// use.
type Runtime struct {
	cfg       Config
	policy    *policy
	users     *podUsers
	isolation string
	groups    *cgroup.Hierarchies
	bootID    string
	logger    log.Logger
	lock      *os.File
	// shimPath is what shims are started from, shimFile the file that it means, if it is no path.
	shimPath string
	shimFile *os.File
	images   *images
	catalog  *catalog
	events   *hub
	serving  sync.Mutex
	streams  *streamServer // nil until it is needed; serving guards it
	// unenforced are the limits that warnUnenforced has warned of.
	unenforced sync.Map

	// ctx ends with Close, and wg counts what ends with it.
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu         sync.Mutex
	closed     bool
	sandboxes  map[string]*sandbox
	containers map[string]*container
	// names are the names of sandboxes and containers with their IDs: CRI wants
	// each once.
	names map[string]string
}

var (
	_ cri.RuntimeService      = (*Runtime)(nil)
	_ cri.ImageManagerService = (*Runtime)(nil)
)

// ready says that main called MaybeShim.
var ready atomic.Bool

// MaybeShim must be called first of all in the main function of every program
// that uses New. When the program was started as a shim it does not return.
func MaybeShim() {
	if len(os.Args) > 0 && os.Args[0] == shim.Name {
		code := shim.Main(os.Args)
		// Not os.Exit: the process that waits for the end waits for nothing else.
		unix.Exit(code)
	}
	ready.Store(true)
}

// New adopts what runs below cfg.Root, or begins there. It logs to the logger
// of ctx, and lives on when ctx ends, until Close.
func New(ctx context.Context, cfg Config) (*Runtime, error) {
	if !ready.Load() {
		return nil, errors.New("runtime.MaybeShim was not called: call it first of all in main, since containers run under this same executable")
	}
	r := &Runtime{
		logger:     log.G(ctx),
		sandboxes:  map[string]*sandbox{},
		containers: map[string]*container{},
		names:      map[string]string{},
		events:     newHub(),
	}
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := r.open(cfg); err != nil {
		_ = r.Close(ctx)
		return nil, fmt.Errorf("runtime for processes: %w", err)
	}
	return r, nil
}

func (r *Runtime) open(cfg Config) (err error) {
	if err := r.openRoot(&cfg); err != nil {
		return err
	}
	if len(cfg.NodeIPs) == 0 {
		cfg.NodeIPs = []string{"127.0.0.1"}
	}
	if cfg.MaxProcesses == 0 {
		cfg.MaxProcesses = defaultMaxProcesses
	}
	r.cfg = cfg
	r.openShim(cfg.ShimProgram)
	if r.policy, err = newPolicy(cfg); err != nil {
		return err
	}
	if r.bootID, err = procfs.BootID(); err != nil {
		return fmt.Errorf("which run of the machine this is: %w", err)
	}
	if r.isolation, err = r.chooseIsolation(cfg.Isolation); err != nil {
		return err
	}
	if err := r.openUp(cfg); err != nil {
		return err
	}
	if r.users, err = r.openUsers(); err != nil {
		return err
	}
	if r.catalog, err = r.newCatalog(cfg.Images); err != nil {
		return fmt.Errorf("images: %w", err)
	}
	if cfg.CgroupParent != CgroupsNone {
		r.groups = cgroup.Detect(cgroupParent(cfg))
	}
	if r.images, err = r.openImages(); err != nil {
		return err
	}
	if cfg.StreamAddress != "" {
		if _, err := r.streamServer(); err != nil {
			return err
		}
	}
	r.logger.WithFields(log.Fields{"root": cfg.Root, "isolation": r.isolation, "cgroups": r.groups.String(), "users": r.policy.podUsers.String(), "defaultUser": r.policy.defaultUser.uid}).
		Info("containers are processes of this machine")
	return r.recover()
}

// shimsGroup is the control group that all shims are in.
const shimsGroup = "shims"

func cgroupParent(cfg Config) string {
	if cfg.CgroupParent == "" {
		return "/virtual-kubelet"
	}
	return filepath.Join("/", cfg.CgroupParent)
}

// openRoot makes the directory for state, and takes its lock: two runtimes would
// start things twice.
func (r *Runtime) openRoot(cfg *Config) error {
	if !filepath.IsAbs(cfg.Root) {
		return fmt.Errorf("root must be an absolute path, and is %q", cfg.Root)
	}
	for _, dir := range []string{cfg.Root, filepath.Join(cfg.Root, "sandboxes"), filepath.Join(cfg.Root, "containers")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	// Paths are compared with those of the kernel, which have no links.
	var err error
	if cfg.Root, err = filepath.EvalSymlinks(cfg.Root); err != nil {
		return err
	}
	r.lock, err = dirlock.Take(cfg.Root)
	return err
}

// chooseIsolation finds out what auto means here.
func (r *Runtime) chooseIsolation(asked string) (string, error) {
	switch asked {
	case IsolationNone:
		return IsolationNone, nil
	case "", IsolationAuto, IsolationNamespaces:
	default:
		return "", fmt.Errorf("isolation is %q: it must be %s, %s or %s", asked, IsolationAuto, IsolationNone, IsolationNamespaces)
	}
	err := probeNamespaces()
	if err == nil {
		return IsolationNamespaces, nil
	}
	if asked == IsolationNamespaces {
		return "", fmt.Errorf("isolation is %s, which is not possible here: %w", asked, err)
	}
	r.logger.WithError(err).Info("containers are plain child processes, without namespaces")
	return IsolationNone, nil
}

// probeNamespaces tries whether namespaces can be had.
func probeNamespaces() error {
	if os.Geteuid() != 0 {
		return errors.New("it needs root")
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args, cmd.Env, cmd.Dir = shim.Probe(), []string{}, "/"
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWCGROUP}
	// Read-only mounts of whole trees need this, of Linux 5.12.
	if err := unix.MountSetattr(-1, "", 0, &unix.MountAttr{}); errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("the kernel is older than 5.12: %w", err)
	}
	var why strings.Builder
	cmd.Stderr = &why
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("start a process in namespaces of its own: %w: %s", err, &why)
	}
	return nil
}

// Close stops serving and watching. Containers run on, for the next New. It may
// be called more than once.
func (r *Runtime) Close(context.Context) error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	r.events.close()
	r.closeStreams()
	r.wg.Wait()
	r.groups.Tidy(shimsGroup) // while no other runtime of this root makes them
	if r.lock != nil {
		_ = r.lock.Close()
	}
	_ = r.shimFile.Close() // it may be nil
	return nil
}

// spawn runs f until Close, unless that was already.
func (r *Runtime) spawn(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.wg.Go(f)
	return true
}

// newID makes an ID as long as a socket's path allows for.
func newID() string {
	var id [16]byte
	_, _ = rand.Read(id[:])
	return hex.EncodeToString(id[:])
}

func notFound(kind, id string) error {
	return status.Errorf(codes.NotFound, "there is no %s %s", kind, id)
}

// reserve takes a name for an ID.
func (r *Runtime) reserve(name, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return status.Error(codes.Unavailable, "the runtime is closed")
	}
	if other, ok := r.names[name]; ok {
		return status.Errorf(codes.AlreadyExists, "the name %s is that of %s", name, other)
	}
	r.names[name] = id
	return nil
}

func (r *Runtime) release(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.names, name)
}
