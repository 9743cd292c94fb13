package podengine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// checkpoint is what pod.json holds: the pod as it was handed over last, and
// what else has to outlive the process.
type checkpoint struct {
	Taken time.Time   `json:"taken"` // by the node
	Pod   *corev1.Pod `json:"pod"`
	// Stop is there once the pod is to end.
	Stop *stopCheckpoint `json:"stop,omitempty"`
}

type stopCheckpoint struct {
	Deleted bool      `json:"deleted"`
	By      time.Time `json:"by"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
}

func (e *Engine) podDir(uid types.UID) string { return filepath.Join(e.cfg.Root, "pods", string(uid)) }

func (e *Engine) checkpointFile(uid types.UID) string {
	return filepath.Join(e.podDir(uid), "pod.json")
}

// save writes a pod's checkpoint, whole or not at all.
func (e *Engine) save(c checkpoint) error {
	dir := e.podDir(c.Pod.UID)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("cannot keep the pod: %w", err)
	}
	content, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("cannot keep the pod: %w", err)
	}
	file := e.checkpointFile(c.Pod.UID)
	if err := os.WriteFile(file+".new", content, 0o600); err != nil {
		return fmt.Errorf("cannot keep the pod: %w", err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return fmt.Errorf("cannot keep the pod: %w", err)
	}
	return nil
}

// load reads the checkpoints of all pods. What cannot be read is an error of its
// own, and keeps no other from being read.
func (e *Engine) load() ([]checkpoint, error) {
	entries, err := os.ReadDir(filepath.Join(e.cfg.Root, "pods"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot see which pods there were: %w", err)
	}
	var all []checkpoint
	var errs []error
	for _, entry := range entries {
		file := e.checkpointFile(types.UID(entry.Name()))
		content, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // its end was interrupted
		}
		var c checkpoint
		if err == nil {
			err = json.Unmarshal(content, &c)
		}
		if err == nil && (c.Pod == nil || string(c.Pod.UID) != entry.Name()) {
			err = errors.New("it is not about this pod")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("cannot read %s: %w", file, err))
			continue
		}
		all = append(all, c)
	}
	return all, errors.Join(errs...)
}
