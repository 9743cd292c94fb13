package podengine

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/convert"
)

// LogLimits limits the logs of a container. The zero value has a kubelet's limits.
type LogLimits struct {
	// MaxSize is the size in bytes at which a log is rotated.
	// Defaults to 10 MiB; there is no limit if it is negative.
	MaxSize int64
	// MaxFiles is how many files there are of an attempt at most, with the
	// one that is being written. Defaults to 5; it is 2 at least.
	MaxFiles int
}

const (
	logCheckEvery = 10 * time.Second
	// rotatedFormat is the end of the name of a log that was put aside, so that
	// names sort by age.
	rotatedFormat = "20060102-150405"
)

// rotateLogs puts logs aside that have grown too large.
func (e *Engine) rotateLogs(ctx context.Context) {
	limits := e.cfg.Logs
	limits.MaxSize = cmp.Or(limits.MaxSize, 10<<20)
	limits.MaxFiles = max(2, cmp.Or(limits.MaxFiles, 5))
	if limits.MaxSize < 0 {
		return
	}
	periodic.Every(ctx, logCheckEvery, func(ctx context.Context) bool {
		for id, path := range e.openLogs(ctx) {
			if err := e.rotateLog(ctx, id, path, limits); err != nil && ctx.Err() == nil {
				log.G(ctx).WithError(err).WithField("log", path).Warn("Cannot rotate the log of a container")
			}
		}
		return true
	})
}

// openLogs are the logs of the containers that run, by ID. There are none if the
// runtime does not answer: it will.
func (e *Engine) openLogs(ctx context.Context) map[string]string {
	listed, err := e.cfg.Runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	})
	if err != nil {
		return nil
	}
	logs := map[string]string{}
	for _, c := range listed {
		who := convert.IdentityOf(c.Labels, c.Annotations)
		if who.Node == e.cfg.Node.Name && e.worker(who.UID) != nil {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: who.Namespace, Name: who.Name, UID: who.UID}}
			logs[c.Id] = e.logFile(pod, who.Container, c.GetMetadata().GetAttempt())
		}
	}
	return logs
}

// rotateLog puts a log aside and has the runtime begin a new one, if it has grown
// too large.
func (e *Engine) rotateLog(ctx context.Context, id, path string, limits LogLimits) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) { // an earlier attempt ended between its two steps
		return e.cfg.Runtime.ReopenContainerLog(ctx, id)
	}
	if err != nil {
		return err
	}
	aside, err := filepath.Glob(escapeGlob(path) + ".*")
	if err != nil {
		return err
	}
	plan := planRotation(info.Size(), aside, limits)
	for _, old := range plan.remove {
		if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if !plan.rotate {
		return nil
	}
	to := path + "." + time.Now().Format(rotatedFormat)
	if err := os.Rename(path, to); err != nil {
		return err
	}
	if err := e.cfg.Runtime.ReopenContainerLog(ctx, id); err != nil {
		return errors.Join(err, os.Rename(to, path)) // the runtime writes to this file still
	}
	return nil
}

// rotation is what to do about a log.
type rotation struct {
	remove []string // files that were put aside, the oldest first
	rotate bool
}

// planRotation decides about a log of a size, and about the files that were put
// aside of it.
func planRotation(size int64, aside []string, limits LogLimits) rotation {
	plan := rotation{rotate: size >= limits.MaxSize}
	keep := limits.MaxFiles - 1 // besides the one that is being written
	if plan.rotate {
		keep-- // there will be one more
	}
	aside = slices.Sorted(slices.Values(aside))
	if excess := len(aside) - keep; excess > 0 {
		plan.remove = aside[:excess]
	}
	return plan
}

// removeLogs removes the log of an attempt that has gone, with all that was
// put aside. What cannot be removed goes with the pod.
func removeLogs(path string) {
	aside, _ := filepath.Glob(escapeGlob(path) + ".*") // the pattern is a good one
	for _, file := range append(aside, path) {
		_ = os.Remove(file)
	}
}

// escapeGlob makes a pattern of a path that stands for nothing but itself.
func escapeGlob(path string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(path)
}
