package podengine

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// longestName is the longest name of a file that common file systems have.
const longestName = 255

// logLinkName is the name of the link to a container's log, which log collectors
// take pod, namespace and container from: POD_NAMESPACE_CONTAINER-ID.log.
func logLinkName(pod *corev1.Pod, container, id string) string {
	const suffix = ".log"
	name := logLinkPrefix(pod) + container + "-" + id
	return name[:min(len(name), longestName-len(suffix))] + suffix
}

func logLinkPrefix(pod *corev1.Pod) string { return pod.Name + "_" + pod.Namespace + "_" }

// linkLog links the log of a container that was started in Config.LogLinks. The log
// itself is what counts, so a failure is logged and no more.
func (e *Engine) linkLog(ctx context.Context, pod *corev1.Pod, inc *container) {
	if e.cfg.LogLinks == "" {
		return
	}
	link := filepath.Join(e.cfg.LogLinks, logLinkName(pod, inc.name, inc.id))
	err := os.MkdirAll(e.cfg.LogLinks, 0o755)
	if err == nil {
		err = os.Symlink(e.logFile(pod, inc.name, inc.attempt), link)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		log.G(ctx).WithError(err).Warn("Cannot link the log of a container")
	}
}

// unlinkLogs removes the links of a pod to logs at a path or below it. What cannot be
// removed points to nothing, and harms nobody.
func (e *Engine) unlinkLogs(pod *corev1.Pod, path string) {
	if e.cfg.LogLinks == "" {
		return
	}
	links, _ := filepath.Glob(filepath.Join(escapeGlob(e.cfg.LogLinks), logLinkPrefix(pod)+"*")) // the pattern is a good one
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && (target == path || strings.HasPrefix(target, path+string(filepath.Separator))) {
			_ = os.Remove(link)
		}
	}
}
