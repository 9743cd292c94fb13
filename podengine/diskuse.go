package podengine

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

const (
	// diskUseEvery is how often the storage of all pods is measured for statistics: a
	// kubelet's default for volumes.
	diskUseEvery = time.Minute
	// diskUseLook is how often there may be pods that were not measured yet.
	diskUseLook = 10 * time.Second
	// measureTimeout is how long the storage of one pod may take to measure, and
	// measureShare how many times longer than that it is not measured again.
	measureTimeout = 30 * time.Second
	measureShare   = 20
)

// diskUse is what a pod has on the disk of the node, but for the writable layers of its
// containers, which the runtime knows.
type diskUse struct {
	volumes map[string]volume.Used // emptyDirs, by name
	logs    map[string]volume.Used // by container
	other   volume.Used            // of no volume and no container
	at      time.Time              // when it was measured
	took    time.Duration
}

// diskUses are those of pods, as they were last measured. It is safe for concurrent use.
type diskUses struct {
	mu    sync.Mutex
	known map[types.UID]diskUse
}

func (d *diskUses) get(uid types.UID) (diskUse, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	use, ok := d.known[uid]
	return use, ok
}

func (d *diskUses) set(uid types.UID, use diskUse) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil {
		d.known = map[types.UID]diskUse{}
	}
	d.known[uid] = use
}

// keep forgets all pods but these.
func (d *diskUses) keep(uids map[types.UID]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for uid := range d.known {
		if !uids[uid] {
			delete(d.known, uid)
		}
	}
}

// watchDiskUse measures the storage of pods until ctx ends.
func (e *Engine) watchDiskUse(ctx context.Context) {
	periodic.Every(ctx, diskUseLook, func(ctx context.Context) bool {
		uids := map[types.UID]bool{}
		for _, w := range e.all() {
			pod, _ := w.current()
			uids[pod.UID] = true
			if !w.hasEnded() {
				e.diskUse(ctx, pod, diskUseEvery)
			}
		}
		e.disk.keep(uids)
		return true
	})
}

// diskUse returns what a pod has on disk: as it was measured not longer ago than
// oldest, or now. A pod that takes long to measure is measured less often.
func (e *Engine) diskUse(ctx context.Context, pod *corev1.Pod, oldest time.Duration) diskUse {
	begin := time.Now()
	if use, ok := e.disk.get(pod.UID); ok && begin.Sub(use.at) < max(oldest, measureShare*use.took) {
		return use
	}
	use := e.measureDisk(ctx, pod)
	use.at = time.Now()
	use.took = use.at.Sub(begin)
	e.disk.set(pod.UID, use)
	return use
}

// measureDisk measures what a pod has on disk. What cannot be measured now counts as
// far as it was.
func (e *Engine) measureDisk(ctx context.Context, pod *corev1.Pod) diskUse {
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	use := diskUse{logs: map[string]volume.Used{}}
	var err error
	if use.volumes, err = e.volumes.MeasureEmptyDirs(ctx, pod); err != nil {
		log.G(ctx).WithError(err).Debug("Some volumes of a pod cannot be measured")
	}
	eachContainer(pod, func(_ kind, c *corev1.Container) {
		use.logs[c.Name], _ = volume.Measure(ctx, filepath.Join(e.cfg.Node.LogDirectory(pod), c.Name))
	})
	for _, name := range []string{"containers", etcHosts} { // which containers may write
		used, _ := volume.Measure(ctx, filepath.Join(e.podDir(pod.UID), name))
		use.other.Bytes += used.Bytes
		use.other.Inodes += used.Inodes
	}
	return use
}
