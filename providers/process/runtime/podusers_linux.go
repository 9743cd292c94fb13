package runtime

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

// usersFile has which pod has which user.
const usersFile = "users.json"

// podUsers gives each pod a user and a group of its own. Which it is is on disk
// before it is used, and stays as long as there is anything of the pod: what it has
// written into its volumes is its own again after a restart.
type podUsers struct {
	root  string
	users ids

	mu sync.Mutex
	// ids are the users of pods by their UIDs.
	ids map[string]int64
}

// openUsers reads which pods have users. A file that cannot be read is put aside:
// the records of sandboxes have their users too.
func (r *Runtime) openUsers() (*podUsers, error) {
	u := &podUsers{root: r.cfg.Root, users: r.policy.podUsers, ids: map[string]int64{}}
	err := shim.ReadRecord(r.cfg.Root, usersFile, &u.ids)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case errors.Is(err, os.ErrPermission):
		return nil, err
	case err != nil:
		u.ids = map[string]int64{}
		return u, r.putAside(filepath.Join(r.cfg.Root, usersFile), err)
	}
	return u, nil
}

// adopt records the user of a sandbox of an earlier process.
func (u *podUsers) adopt(box *sandbox) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if uid := box.config.GetMetadata().GetUid(); u.users.contain(box.user.uid) && u.ids[uid] == 0 {
		u.ids[uid] = box.user.uid
	}
}

// of returns the user of a pod, a new one if it has none. held reports whether
// there is still anything of a pod.
func (u *podUsers) of(pod string, held func(pod string) bool) (int64, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if id := u.ids[pod]; u.users.contain(id) {
		return id, nil
	}
	taken := map[int64]bool{}
	for other, id := range u.ids {
		if held(other) {
			taken[id] = true
		} else {
			delete(u.ids, other)
		}
	}
	id, ok := u.free(pod, taken)
	if !ok {
		return 0, status.Errorf(codes.ResourceExhausted, "all users of this node are those of other pods: its operator may set a larger range in podUsers")
	}
	u.ids[pod] = id
	if err := shim.WriteRecord(u.root, usersFile, u.ids); err != nil {
		delete(u.ids, pod)
		return 0, err
	}
	return id, nil
}

// free chooses a user that is not taken. Where it begins to look depends on the
// pod, so that the numbers of pods that have gone are not used again at once. The
// first of the range is no pod's: see isPodsOwn.
func (u *podUsers) free(pod string, taken map[int64]bool) (int64, bool) {
	first, count := u.users[0][0]+1, u.users[0][1]-u.users[0][0]
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(pod))
	start := int64(hash.Sum64() % uint64(count))
	for i := range count {
		if id := first + (start+i)%count; !taken[id] {
			return id, true
		}
	}
	return 0, false
}

// giveUser gives a sandbox its user.
func (r *Runtime) giveUser(box *sandbox) error {
	box.user = r.policy.defaultUser
	if len(r.policy.podUsers) == 0 {
		return nil
	}
	pod := box.config.GetMetadata().GetUid()
	if pod == "" {
		pod = box.id
	}
	id, err := r.users.of(pod, func(other string) bool { return r.holds(other) })
	box.user = account{id, id}
	return err
}

// holds reports whether there is a sandbox of a pod, or a directory with its volumes.
func (r *Runtime) holds(pod string) bool {
	for _, box := range r.allSandboxes() {
		if box.config.GetMetadata().GetUid() == pod || box.id == pod {
			return true
		}
	}
	for _, dir := range r.podDirs(pod) {
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			return true
		}
	}
	return r.isReserved(pod)
}

// isReserved reports whether a sandbox of a pod is being made.
func (r *Runtime) isReserved(pod string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.names {
		if strings.HasPrefix(name, "sandbox ") && strings.Contains(name, "/"+pod+"/") {
			return true
		}
	}
	return false
}

// podDirs are the directories that have the volumes of a pod, if they are there.
func (r *Runtime) podDirs(pod string) []string {
	if pod == "" || pod == "." || pod == ".." || strings.Contains(pod, "/") {
		return nil
	}
	var dirs []string
	for _, dir := range r.policy.volumeDirs {
		dirs = append(dirs, filepath.Join(dir, pod))
	}
	return dirs
}

// openUp lets the users of containers pass through to their own directories where
// there is no isolation, and closes Root to all else where there is.
func (r *Runtime) openUp(cfg Config) error {
	dirs := []string{cfg.Root, filepath.Join(cfg.Root, "sandboxes"), filepath.Join(cfg.Root, "containers")}
	if !r.policy.root || r.isolation != IsolationNone {
		return chmodAll(0o700, dirs...)
	}
	for _, dir := range r.policy.volumeDirs {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return err
		}
		dirs = append(dirs, filepath.Dir(dir), dir)
	}
	return chmodAll(0o711, dirs...)
}

func chmodAll(mode os.FileMode, dirs ...string) error {
	for _, dir := range dirs {
		if err := os.Chmod(dir, mode); err != nil {
			return fmt.Errorf("who may pass through %s: %w", dir, err)
		}
	}
	return nil
}

// admit lets a pod's group pass through the directory with its volumes, where there
// is no isolation. With it nobody has to: they are mounted.
func (r *Runtime) admit(box *sandbox) error {
	if !r.policy.root || r.isolation != IsolationNone {
		return nil
	}
	for _, dir := range r.podDirs(box.config.GetMetadata().GetUid()) {
		err := errors.Join(os.Lchown(dir, -1, int(box.user.gid)), os.Chmod(dir, 0o710))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("let the pod's group into its volumes: %w", err)
		}
	}
	return nil
}

// checkNamespaces refuses pods that would share what they do not expect to share, or
// what they may not.
func (p *policy) checkNamespaces(config *runtimeapi.PodSandboxConfig) error {
	options := config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	if options.GetNetwork() != runtimeapi.NamespaceMode_NODE && !p.sharedNetwork {
		return denied("pods of this node have the machine's network: set hostNetwork: true, or have the node's operator set sharedNetwork for pods that do not ask for it")
	}
	if options.GetIpc() == runtimeapi.NamespaceMode_NODE && !p.hostIPC {
		return denied("sharing the machine's IPC (hostIPC) is not allowed on this node: its operator may set allowHostIPC")
	}
	return nil
}
