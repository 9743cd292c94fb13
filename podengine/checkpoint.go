package podengine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podstatus"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// checkpoint is what pod.json holds: the pod as the node applied it last, but for
// resources that it does not get, and what else has to outlive the process.
type checkpoint struct {
	Taken time.Time   `json:"taken"` // by the node
	Pod   *corev1.Pod `json:"pod"`
	// Resize is there while the pod asks for resources that it does not get.
	Resize *resizeCheckpoint `json:"resize,omitempty"`
	// Stop is there once the pod is to end.
	Stop *stopCheckpoint `json:"stop,omitempty"`
	// Attempts are the containers that were asked to start last, by name.
	Attempts map[string]attempt `json:"attempts,omitempty"`
	// Superseded are the last attempts that a restart of all containers has ended.
	Superseded map[string]uint32 `json:"superseded,omitempty"`
	// Restarting are the last attempts that are stopped to be started again, by name.
	Restarting map[string]uint32 `json:"restarting,omitempty"`

	status *corev1.PodStatus // of status.json; nil if there is none
}

type resizeCheckpoint struct {
	Wanted  *corev1.Pod    `json:"wanted"` // the pod as the node applied it last
	Pending podspec.Resize `json:"pending"`
	Since   time.Time      `json:"since"`
}

type stopCheckpoint struct {
	Deleted bool      `json:"deleted"`
	By      time.Time `json:"by"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	// Disrupted and Rejected are as in podspec.Failure.
	Disrupted bool `json:"disrupted,omitempty"`
	Rejected  bool `json:"rejected,omitempty"`
}

func (e *Engine) podDir(uid types.UID) string { return filepath.Join(e.cfg.Root, "pods", string(uid)) }

func (e *Engine) checkpointFile(uid types.UID) string {
	return filepath.Join(e.podDir(uid), "pod.json")
}

func (e *Engine) statusFile(uid types.UID) string {
	return filepath.Join(e.podDir(uid), "status.json")
}

// persist writes what has to outlive the process. It fails once the pod has been
// removed. The caller holds disk.
func (w *worker) persist(d desired) error {
	if w.removed {
		return notHeld(d.pod)
	}
	c := checkpoint{Taken: w.taken, Pod: d.pod, Stop: d.stop.checkpoint(), Attempts: d.attempts, Superseded: d.superseded, Restarting: d.restarting}
	if d.resize != nil {
		c.Resize = &resizeCheckpoint{Wanted: d.resize.wanted, Pending: d.resize.pending, Since: d.resize.since}
	}
	return w.engine.save(c)
}

// persistStatus writes what is known of the pod and may not be found out again:
// which containers were ready, where it was, how its containers ended. That one has
// begun or ended outlasts a failure of the machine.
func (w *worker) persistStatus() error {
	w.disk.Lock()
	defer w.disk.Unlock()
	pod := w.snapshot()
	if w.removed {
		return nil
	}
	content, err := json.Marshal(pod.Status)
	runs := runsOf(&pod.Status)
	if err == nil {
		err = replace(w.engine.statusFile(pod.UID), content, runs != w.runs)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unwritten = err != nil
	if err == nil {
		w.runs = runs
	}
	return err
}

// runsOf sums up which containers run and which have ended.
func runsOf(s *corev1.PodStatus) string {
	var text strings.Builder
	text.WriteString(string(s.Phase))
	for c := range podstatus.Containers(s) {
		fmt.Fprintf(&text, " %s %t %t", c.ContainerID, c.State.Running != nil, c.State.Terminated != nil || c.State.Waiting != nil && c.LastTerminationState.Terminated != nil)
	}
	return text.String()
}

func (s *stop) checkpoint() *stopCheckpoint {
	if s == nil {
		return nil
	}
	c := &stopCheckpoint{Deleted: s.deleted, By: s.by}
	if s.failure != nil {
		c.Reason, c.Message = s.failure.Reason, s.failure.Message
		c.Disrupted, c.Rejected = s.failure.Disrupted, s.failure.Rejected
	}
	return c
}

// stop is how the pod is to end, or has ended; nil if it is to run. A pod whose
// status says that it has ended stays so, also if the disk was too full to record
// that it was to end: somebody else runs in its place by now.
func (c *checkpoint) stop() *stop {
	if s := c.Stop; s != nil {
		restored := &stop{deleted: s.Deleted, by: s.By}
		if s.Reason != "" {
			restored.failure = &podspec.Failure{Reason: s.Reason, Message: s.Message, Disrupted: s.Disrupted, Rejected: s.Rejected}
		}
		return restored
	}
	if c.status == nil || c.status.Phase != corev1.PodFailed && c.status.Phase != corev1.PodSucceeded {
		return nil
	}
	restored := &stop{by: time.Now().Add(podspec.GracePeriod(c.Pod, nil))}
	if c.status.Reason != "" {
		restored.failure = &podspec.Failure{
			Reason: c.status.Reason, Message: c.status.Message,
			Disrupted: slices.ContainsFunc(c.status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
			}),
		}
	}
	return restored
}

// save writes a pod's checkpoint, whole or not at all.
func (e *Engine) save(c checkpoint) error {
	content, err := json.Marshal(c)
	if err == nil {
		err = makePodDir(e.podDir(c.Pod.UID))
	}
	if err == nil {
		err = replace(e.checkpointFile(c.Pod.UID), content, true)
	}
	if err != nil {
		return fmt.Errorf("cannot keep the pod: %w", err)
	}
	return nil
}

// makePodDir makes the directory of a pod, such that it survives a failure of the
// machine.
func makePodDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(dir))
}

// unready is the end of the name of a file that is being written.
const unready = ".new"

// replace writes a file so that it has its old content or the new one, also if
// the process is killed; if sync is set, also if the machine fails.
func replace(path string, content []byte, sync bool) error {
	file, err := os.OpenFile(path+unready, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil && sync {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+unready, path); err != nil || !sync {
		return err
	}
	return syncDirectory(filepath.Dir(path))
}

// syncDirectory has the entries of a directory outlast a failure of the machine.
func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// load reads the checkpoints of all pods. One that is broken keeps no other from
// being read, and is put aside. One that fails to be read is none of those: its pod
// must not end for that. e.unrecorded has the pods of which something is left
// without a checkpoint.
func (e *Engine) load() (all []checkpoint, broken []error, err error) {
	entries, err := os.ReadDir(filepath.Join(e.cfg.Root, "pods"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cannot see which pods there were: %w", err)
	}
	for _, entry := range entries {
		c, err := e.loadPod(types.UID(entry.Name()))
		switch {
		case errors.Is(err, fs.ErrNotExist): // its begin or its end was interrupted
			_ = e.removeState(types.UID(entry.Name())) // leaves what has volumes, which is collected
			e.unrecorded = append(e.unrecorded, types.UID(entry.Name()))
		case isUnread(err):
			return nil, nil, fmt.Errorf("%w: make it readable, or remove %s, which ends its pod", err, e.podDir(types.UID(entry.Name())))
		case err != nil:
			broken = append(broken, e.putAside(types.UID(entry.Name()), err))
			e.unrecorded = append(e.unrecorded, types.UID(entry.Name()))
		default:
			all = append(all, c)
		}
	}
	return all, broken, nil
}

// putAside moves a checkpoint that cannot be read to where nobody reads it, for a
// person who wants to know what was in it, and returns the error to report.
func (e *Engine) putAside(uid types.UID, why error) error {
	kept := filepath.Join(e.cfg.Root, "broken", fmt.Sprintf("pod-%s-%d.json", uid, time.Now().UnixNano()))
	err := os.MkdirAll(filepath.Dir(kept), 0o700)
	if err == nil {
		err = os.Rename(e.checkpointFile(uid), kept)
	}
	if err != nil {
		return fmt.Errorf("cannot read %s: %w; it stays where it is: %w", e.checkpointFile(uid), why, err)
	}
	return fmt.Errorf("cannot read %s, which is put aside as %s: %w", e.checkpointFile(uid), kept, why)
}

func (e *Engine) loadPod(uid types.UID) (c checkpoint, err error) {
	content, err := os.ReadFile(e.checkpointFile(uid))
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(content, &c); err != nil {
		return c, err
	}
	if c.Pod == nil || c.Pod.UID != uid {
		return c, errors.New("it is not about this pod")
	}
	var status corev1.PodStatus
	content, err = os.ReadFile(e.statusFile(uid))
	if isUnread(err) {
		return c, err
	}
	if err == nil && json.Unmarshal(content, &status) == nil {
		c.status = &status
	}
	return c, nil
}

// isUnread reports whether a file is there, but could not be read, so that nobody knows whether it is broken.
func isUnread(err error) bool {
	var failed *fs.PathError
	return errors.As(err, &failed) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR)
}

// stateFiles are the engine's own files of a pod, in the order of their removal:
// without pod.json nobody knows of the others.
var stateFiles = []string{"containers", etcHosts, "first-id" + unready, "first-id", "status.json" + unready, "status.json", "pod.json" + unready, "pod.json"}

// removeState removes what the engine has on disk of a pod.
func (e *Engine) removeState(uid types.UID) error {
	for _, name := range stateFiles {
		if err := os.RemoveAll(filepath.Join(e.podDir(uid), name)); err != nil {
			return err
		}
	}
	if err := os.Remove(e.podDir(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
