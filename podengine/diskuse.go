package podengine

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/internal/filetree"
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
	// measureTimeout is how long the storage of one pod may take to measure.
	measureTimeout = 10 * time.Minute
	// measureWait is for how long evictions wait for what pods use now: what takes longer
	// counts as it was measured last.
	measureWait = 2 * time.Second
	// unmeasuredWait is for how long no pod is evicted for want of storage since that of
	// another one was never measured: three rounds.
	unmeasuredWait = 25 * time.Second
)

// diskUse is what a pod has on the disk of the node, but for the writable layers of its
// containers, which the runtime knows.
type diskUse struct {
	volumes map[string]volume.Used // emptyDirs, by name
	logs    map[string]volume.Used // by container
	other   map[string]volume.Used // of no volume and no container, by name
	at      time.Time              // when it was measured
	partial bool                   // some of it could not be measured to the end
}

// diskUses are those of pods, as they were last measured. It is safe for concurrent use.
type diskUses struct {
	mu    sync.Mutex
	known map[types.UID]*periodic.Gauge[diskUse]
}

// get returns what a pod uses, as far as it is known, and whether it was ever measured.
func (d *diskUses) get(uid types.UID) (diskUse, bool) {
	d.mu.Lock()
	gauge := d.known[uid]
	d.mu.Unlock()
	if gauge == nil {
		return diskUse{}, false
	}
	return gauge.Last()
}

// of returns the gauge of a pod.
func (d *diskUses) of(uid types.UID) *periodic.Gauge[diskUse] {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil {
		d.known = map[types.UID]*periodic.Gauge[diskUse]{}
	}
	if d.known[uid] == nil {
		d.known[uid] = &periodic.Gauge[diskUse]{}
	}
	return d.known[uid]
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

// watchDiskUse measures the storage of pods until ctx ends: one by one, but it does not
// wait long for those that take long.
func (e *Engine) watchDiskUse(ctx context.Context) {
	periodic.Every(ctx, diskUseLook, func(ctx context.Context) bool {
		ctx, cancel := context.WithTimeout(ctx, diskUseLook)
		defer cancel()
		uids := map[types.UID]bool{}
		for _, w := range e.all() {
			pod, _ := w.current()
			uids[pod.UID] = true
			if !w.hasEnded() {
				periodic.Await(ctx, e.startDiskUse(pod, diskUseEvery))
			}
		}
		e.disk.keep(uids)
		return true
	})
}

// startDiskUse has measured what a pod has on disk if that is older than oldest, and did not
// take long: see periodic.Gauge. A goroutine for each pod measures, as in a kubelet: one of very
// many files holds up no other.
func (e *Engine) startDiskUse(pod *corev1.Pod, oldest time.Duration) (busy <-chan struct{}) {
	return e.disk.of(pod.UID).Start(oldest, e.running.Go, func(last diskUse, soFar func(diskUse)) diskUse {
		ctx, cancel := context.WithTimeout(e.ctx, measureTimeout)
		defer cancel()
		return e.measureDisk(ctx, pod, last, soFar)
	})
}

// measureDisk measures what a pod has on disk. Of very many files it calls soFar with what was
// counted of them, where that is more than before: they count before the end.
func (e *Engine) measureDisk(ctx context.Context, pod *corev1.Pod, last diskUse, soFar func(diskUse)) diskUse {
	use := diskUse{volumes: map[string]volume.Used{}, logs: map[string]volume.Used{}, other: map[string]volume.Used{}}
	counting := func(parts, before map[string]volume.Used, name string) context.Context {
		return filetree.WithSoFar(ctx, func(used filetree.Used) {
			parts[name] = atLeast(volume.Used(used), before[name])
			soFar(use.over(last))
		})
	}
	for i := range pod.Spec.Volumes {
		one := *pod
		one.Spec.Volumes = pod.Spec.Volumes[i : i+1]
		used, err := e.volumes.MeasureEmptyDirs(counting(use.volumes, last.volumes, one.Spec.Volumes[0].Name), &one)
		if err != nil {
			log.G(ctx).WithError(err).Debug("A volume of a pod cannot be measured")
		}
		for name, u := range used {
			use.volumes[name] = counted(u, last.volumes[name], err)
		}
		use.partial = use.partial || endedEarly(err)
	}
	eachContainer(pod, func(_ kind, c *corev1.Container) {
		used, err := volume.Measure(counting(use.logs, last.logs, c.Name), filepath.Join(e.cfg.Node.LogDirectory(pod), c.Name))
		use.logs[c.Name] = counted(used, last.logs[c.Name], err)
		use.partial = use.partial || endedEarly(err)
	})
	for _, name := range []string{"containers", etcHosts} { // which containers may write
		used, err := volume.Measure(counting(use.other, last.other, name), filepath.Join(e.podDir(pod.UID), name))
		use.other[name] = counted(used, last.other[name], err)
		use.partial = use.partial || endedEarly(err)
	}
	use.at = time.Now()
	return use
}

// counted is what was measured. What could be measured in part only, since it has too many
// files or they are being moved, has not less than before: it would hide what it has.
func counted(used, last volume.Used, err error) volume.Used {
	if endedEarly(err) {
		return atLeast(used, last)
	}
	return used
}

// endedEarly reports whether a measurement left out what others may find. What may not be read is never known.
func endedEarly(err error) bool { return err != nil && !errors.Is(err, fs.ErrPermission) }

func atLeast(used, last volume.Used) volume.Used {
	return volume.Used{Bytes: max(used.Bytes, last.Bytes), Inodes: max(used.Inodes, last.Inodes)}
}

// over is what was measured so far, and for the rest what was measured last.
func (d diskUse) over(last diskUse) diskUse {
	return diskUse{
		volumes: over(d.volumes, last.volumes), logs: over(d.logs, last.logs), other: over(d.other, last.other),
		at: time.Now(), partial: last.partial,
	}
}

func over(now, last map[string]volume.Used) map[string]volume.Used {
	all := make(map[string]volume.Used, len(now)+len(last))
	maps.Copy(all, last)
	maps.Copy(all, now)
	return all
}

// sumOf adds up what was measured.
func sumOf(parts map[string]volume.Used) (sum volume.Used) {
	for _, used := range parts {
		sum.Bytes += used.Bytes
		sum.Inodes += used.Inodes
	}
	return sum
}
