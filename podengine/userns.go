package podengine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// idsPerPod is how many user and group IDs a user namespace has (KEP-127).
const idsPerPod = 1 << 16

// lastID is the highest ID of the host that a pod may have: the one above means
// "none".
const lastID = 1<<32 - 2

// ownUsers reports whether a pod has a user namespace of its own.
func ownUsers(pod *corev1.Pod) bool { return pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers }

// allocateUserNamespace allocates IDs of the host which no other pod has to a pod
// that has users of its own, for as long as the pod's state is on disk. It fails
// if the runtime cannot give the pod a user namespace: such a pod must not run
// without.
func (e *Engine) allocateUserNamespace(ctx context.Context, pod *corev1.Pod, handler string) error {
	if !ownUsers(pod) {
		return nil
	}
	features, err := e.handlerFeatures(ctx, handler)
	if err != nil {
		return err
	}
	if !features.GetUserNamespaces() {
		return fmt.Errorf("the pod has hostUsers: false, but the container runtime's handler %q does not support user namespaces: remove hostUsers from the pod, or have it run elsewhere", handler)
	}
	e.ids.Lock()
	defer e.ids.Unlock()
	first, err := e.firstIDOf(pod.UID)
	if err != nil || first != 0 {
		return err
	}
	if first, err = e.freeIDs(); err != nil {
		return err
	}
	if err := replace(e.idsFile(pod.UID), strconv.AppendUint(nil, first, 10), true); err != nil {
		return fmt.Errorf("cannot keep the user IDs of the pod: %w", err)
	}
	return nil
}

func (e *Engine) idsFile(uid types.UID) string { return filepath.Join(e.podDir(uid), "first-id") }

// firstIDOf is the first of the IDs of the host that a pod has; 0 if it has none.
func (e *Engine) firstIDOf(uid types.UID) (uint64, error) {
	content, err := os.ReadFile(e.idsFile(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("cannot read the user IDs of the pod: %w", err)
	}
	first, err := strconv.ParseUint(string(content), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("cannot read the user IDs of the pod, in %s: %w", e.idsFile(uid), err)
	}
	return first, nil
}

// freeIDs is the first of the lowest IDs that no pod has.
func (e *Engine) freeIDs() (uint64, error) {
	pods, err := os.ReadDir(filepath.Join(e.cfg.Root, "pods"))
	if err != nil {
		return 0, fmt.Errorf("cannot see which user IDs pods have: %w", err)
	}
	var taken []uint64
	for _, entry := range pods {
		first, err := e.firstIDOf(types.UID(entry.Name()))
		if err != nil {
			return 0, err
		}
		if first != 0 {
			taken = append(taken, first)
		}
	}
	return lowestFree(uint64(cmp.Or(e.cfg.FirstUserID, idsPerPod)), taken)
}

// lowestFree is the first of the lowest IDs from a given one on that do not overlap
// with those that are taken, by their first.
func lowestFree(from uint64, taken []uint64) (uint64, error) {
next:
	for first := from; first+idsPerPod-1 <= lastID; first += idsPerPod {
		for _, other := range taken {
			if other < first+idsPerPod && first < other+idsPerPod {
				continue next
			}
		}
		return first, nil
	}
	return 0, fmt.Errorf("no %d user IDs are left from %d on", idsPerPod, from)
}

// userNamespace is that of a pod that has one, and nil for the others.
func (e *Engine) userNamespace(pod *corev1.Pod) (*runtimeapi.UserNamespace, error) {
	if !ownUsers(pod) {
		return nil, nil
	}
	first, err := e.firstIDOf(pod.UID)
	if err != nil || first == 0 {
		return nil, err // without a mapping the pod is refused
	}
	ids := []*runtimeapi.IDMapping{{HostId: uint32(first), ContainerId: 0, Length: idsPerPod}}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}, nil
}
