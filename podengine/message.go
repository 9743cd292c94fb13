package podengine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cri-client/pkg/logs"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/convert"
)

// The limits of termination messages, as the Kubernetes API documents them
// (https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/).
const (
	maxMessage         = 4 << 10
	maxMessageFromLogs = 2 << 10
	maxLinesFromLogs   = 80
)

// terminationMessage is what a container left about its end.
func (e *Engine) terminationMessage(ctx context.Context, pod *corev1.Pod, c *corev1.Container, inc *container) string {
	text := inc.message
	if c.TerminationMessagePath != "" {
		left, err := readEnd(e.terminationLog(pod, c.Name, inc.attempt), maxMessage)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			log.G(ctx).WithError(err).Warn("Cannot read a termination message")
		}
		if left != "" {
			return strings.Join(nonEmpty(text, left), ": ")
		}
	}
	if c.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError && inc.exitCode != 0 {
		return strings.Join(nonEmpty(text, e.endOfLog(ctx, pod, c, inc)), ": ")
	}
	return text
}

func nonEmpty(texts ...string) (some []string) {
	for _, t := range texts {
		if t != "" {
			some = append(some, t)
		}
	}
	return some
}

// readEnd reads the last bytes of a file.
func readEnd(path string, most int64) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if info.Size() > most {
		if _, err := file.Seek(-most, io.SeekEnd); err != nil {
			return "", err
		}
	}
	content, err := io.ReadAll(io.LimitReader(file, most))
	return string(content), err
}

// endOfLog is the end of a container's log.
func (e *Engine) endOfLog(ctx context.Context, pod *corev1.Pod, c *corev1.Container, inc *container) string {
	var text bytes.Buffer
	options := &logs.LogOptions{TailLines: ptr.To[int64](maxLinesFromLogs)}
	path := e.logFile(pod, c.Name, inc.attempt)
	if err := logs.ReadLogs(ctx, path, inc.id, options, e.cfg.Runtime, &text, &text); err != nil && !errors.Is(err, os.ErrNotExist) {
		log.G(ctx).WithError(err).Warn("Cannot read the end of a log")
	}
	end := text.Bytes()
	if len(end) > maxMessageFromLogs {
		end = end[len(end)-maxMessageFromLogs:]
	}
	return string(end)
}

// logFile is where the log of a container's attempt is.
func (e *Engine) logFile(pod *corev1.Pod, name string, attempt uint32) string {
	return filepath.Join(e.cfg.Node.LogDirectory(pod), convert.LogPath(name, attempt))
}
