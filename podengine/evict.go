package podengine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/eviction"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// Eviction says when the node ends pods for want of something. Pods that use more
// local storage than they may are ended in any case.
type Eviction struct {
	// Thresholds are the amounts of which there must not be less. With none, the node
	// is never under pressure.
	Thresholds eviction.Thresholds
	// Levels observes how much of everything there is. Required with Thresholds.
	Levels func(ctx context.Context) (eviction.Levels, error)
	// ImagesApart reports whether images, and the writable layers of containers, are on another file
	// system than what else pods store. Nil stands for no.
	ImagesApart func(ctx context.Context) bool
	// Report is called with the conditions that hold when they have changed. It must
	// not block.
	Report func(held []corev1.NodeConditionType)
}

const (
	// evictEvery is how often the machine and the storage of pods are measured.
	evictEvery = 10 * time.Second
	// evictGrace is what a pod that is evicted is given to end, as in a kubelet.
	evictGrace = time.Second
	// cleanUpTimeout is how long a pod that was evicted may take to end and give back
	// what it had before another one is evicted.
	cleanUpTimeout = 30 * time.Second
)

// evictor ends pods that use more than they may, and pods for want of something. One
// goroutine uses it.
type evictor struct {
	*Engine
	pressure eviction.Pressure
	evicted  map[*worker]time.Time // pods that were evicted and still have what they give back; since when that is known

	short      time.Time          // since when a victim is looked for as the disk is short; zero while it is not
	unmeasured map[types.UID]bool // pods whose storage was not measured in all of that time
}

// watchPressure evicts pods until ctx ends.
func (e *Engine) watchPressure(ctx context.Context) {
	v := &evictor{Engine: e}
	periodic.Every(ctx, evictEvery, func(ctx context.Context) bool {
		if err := v.check(ctx); err != nil && ctx.Err() == nil {
			log.G(ctx).WithError(err).Warn("Cannot determine whether pods have to be evicted")
		}
		return true
	})
}

// check evicts pods that use more local storage than they may. If there are none, and
// the machine runs out of something, it makes room by removing containers that have ended
// and images, or evicts one pod.
func (v *evictor) check(ctx context.Context) error {
	met, levels, unknown := v.observeLevels(ctx)
	if unknown == nil && !slices.ContainsFunc(met, ofDisk) {
		v.short = time.Time{}
	}
	active := v.active()
	cleaningUp := v.cleaningUp()
	evicted, err := v.evictExceeding(ctx, active)
	if evicted || err != nil || unknown != nil || len(met) == 0 || cleaningUp {
		return errors.Join(unknown, err)
	}
	signal := met[0]
	log.G(ctx).WithFields(log.Fields{"signal": string(signal), "available": levels[signal].Available}).Warn("The machine runs out of something that pods use")
	apart := ofDisk(signal) && v.cfg.Eviction.ImagesApart != nil && v.cfg.Eviction.ImagesApart(ctx)
	if ofDisk(signal) && (signal.OfImages() || !apart) {
		v.freeDisk(ctx)
		if met, levels, err = v.observeLevels(ctx); err != nil || !slices.Contains(met, signal) {
			return err
		}
		active = v.active() // that took a while
	}
	return v.evictOne(ctx, signal, levels[signal], active, apart)
}

// cleaningUp reports whether a pod that was evicted, be it by an earlier process, still has what it is to
// give back: that may be enough. None is waited for longer than cleanUpTimeout.
func (v *evictor) cleaningUp() (wait bool) {
	now, before := time.Now(), v.evicted
	v.evicted = map[*worker]time.Time{}
	for _, w := range v.all() {
		since, known := before[w]
		if _, stop := w.current(); !known && !stop.evicts() || w.released.Load() {
			continue
		}
		if !known {
			since = now
		}
		v.evicted[w] = since
		wait = wait || now.Sub(since) < cleanUpTimeout
	}
	return wait
}

// freeDisk removes what no pod that runs needs. It waits once for each pod that has ended, and for no longer
// than cleanUpTimeout, until the runtime has removed its containers.
func (v *evictor) freeDisk(ctx context.Context) {
	var busy []<-chan struct{}
	for _, w := range v.all() {
		if w.hasEnded() && !w.empty.Swap(true) {
			w.nudge()
			busy = append(busy, w.emptied)
		}
	}
	wait, cancel := context.WithTimeout(ctx, cleanUpTimeout)
	defer cancel()
	periodic.Await(wait, busy...)
	if v.collector == nil {
		return
	}
	if _, err := v.collector.DeleteUnusedImages(ctx); err != nil {
		log.G(ctx).WithError(err).Warn("Cannot remove unused images")
	}
}

// observeLevels returns of what there is too little, and reports the conditions.
func (v *evictor) observeLevels(ctx context.Context) ([]eviction.Signal, eviction.Levels, error) {
	if len(v.cfg.Eviction.Thresholds) == 0 || v.cfg.Eviction.Levels == nil {
		return nil, nil, nil
	}
	levels, err := v.cfg.Eviction.Levels(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot observe the machine: %w", err)
	}
	met := v.cfg.Eviction.Thresholds.Met(levels)
	now := time.Now()
	v.pressure.Observe(met, now)
	held := v.pressure.Conditions(now)
	if before := v.pressed.Load(); before == nil && len(held) > 0 || before != nil && !slices.Equal(*before, held) {
		v.pressed.Store(&held)
		if v.cfg.Eviction.Report != nil {
			v.cfg.Eviction.Report(held)
		}
	}
	return met, levels, nil
}

// active are the workers of pods that may be evicted.
func (v *evictor) active() (workers []*worker) {
	for _, w := range v.all() {
		if w.isActive() {
			workers = append(workers, w)
		}
	}
	return workers
}

// isActive reports whether the pod runs, and may do so for longer than one that is evicted.
func (w *worker) isActive() bool {
	_, stop := w.current()
	return (stop == nil || stop.by.After(time.Now().Add(evictGrace))) && !w.hasEnded()
}

// evictExceeding evicts the pods that use more local storage than they may.
func (v *evictor) evictExceeding(ctx context.Context, active []*worker) (evicted bool, err error) {
	limited := slices.DeleteFunc(slices.Clone(active), func(w *worker) bool {
		pod, _ := w.current()
		return !eviction.Limited(pod)
	})
	if len(limited) == 0 {
		return false, nil
	}
	usage, err := v.measure(ctx, limited)
	if err != nil {
		return false, err
	}
	for _, w := range limited {
		pod, _ := w.current()
		if why := eviction.Exceeded(pod, usage[pod.UID]); why != "" && !eviction.Critical(pod) {
			v.evict(ctx, w, pod, podspec.Failure{Reason: eviction.Reason, Message: why})
			evicted = true
		}
	}
	return evicted, nil
}

// evictOne evicts the pod whose end helps most, if there is one. With apart, writable layers are on the file
// system of the images.
func (v *evictor) evictOne(ctx context.Context, signal eviction.Signal, level eviction.Level, active []*worker, apart bool) error {
	usage, err := v.measure(ctx, active)
	if err != nil {
		return err
	}
	if signal == eviction.MemoryAvailable && !anyMemory(usage) {
		log.G(ctx).Warn("No pod is evicted: the runtime says of none what memory it uses")
		return nil
	}
	if signal == eviction.PIDAvailable {
		v.countProcesses(ctx, usage)
	}
	if ofDisk(signal) && v.awaitsMeasurement(active, usage) {
		log.G(ctx).Warn("No pod is evicted before it is known what all of them use, or that takes too long")
		return nil
	}
	workers := map[types.UID]*worker{}
	var pods []*corev1.Pod
	for _, w := range active {
		pod, _ := w.current()
		workers[pod.UID], pods = w, append(pods, pod)
	}
	pod := eviction.Victim(signal, pods, func(p *corev1.Pod) eviction.Usage {
		u := usage[p.UID]
		u.Apart = apart
		return u
	})
	if pod == nil {
		log.G(ctx).Warn("There is no pod to evict")
		return nil
	}
	v.evict(ctx, workers[pod.UID], pod, podspec.Failure{
		Reason:    eviction.Reason,
		Message:   eviction.Message(signal, v.cfg.Eviction.Thresholds[signal], level, pod, usage[pod.UID]),
		Disrupted: true,
	})
	return nil
}

// anyMemory reports whether it is known of any container what memory it uses.
func anyMemory(usage map[types.UID]eviction.Usage) bool {
	for _, u := range usage {
		if len(u.MemoryOf) > 0 {
			return true
		}
	}
	return false
}

// awaitsMeasurement reports whether pods may still be measured that were not since the disk is short: what others use says
// little before. Those that take too long go first, as those that a kubelet has no statistics of; one of which only
// the last moment is not known, as of a container that was started again, counts with what is.
func (v *evictor) awaitsMeasurement(active []*worker, usage map[types.UID]eviction.Usage) (wait bool) {
	begins, still := v.short.IsZero(), map[types.UID]bool{}
	if begins {
		v.short = time.Now()
	}
	for _, w := range active {
		pod, _ := w.current()
		u := usage[pod.UID]
		if u.Unmeasured && (begins || v.unmeasured[pod.UID]) {
			still[pod.UID] = true
			wait = wait || !eviction.Critical(pod)
		}
		u.Unmeasured = still[pod.UID]
		usage[pod.UID] = u
	}
	v.unmeasured = still
	return wait && time.Since(v.short) < unmeasuredWait
}

func ofDisk(signal eviction.Signal) bool { return signal.Condition() == corev1.NodeDiskPressure }

// evict ends a pod that has not done so itself, or within a second where it has more time. It outlives this process.
func (v *evictor) evict(ctx context.Context, w *worker, pod *corev1.Pod, failure podspec.Failure) {
	if !w.isActive() { // any more, since what it uses was measured
		return
	}
	v.evicted[w] = time.Now()
	v.cfg.Events.Event(pod, corev1.EventTypeWarning, failure.Reason, failure.Message)
	if err := w.end(stop{by: time.Now().Add(evictGrace), failure: &failure}); err != nil {
		log.G(ctx).WithError(err).Warn("Cannot keep that a pod is evicted")
	}
}

// measure returns what pods use. What takes long to measure does not hold up evictions:
// it is as it was last, or as far as it was counted.
func (v *evictor) measure(ctx context.Context, workers []*worker) (map[types.UID]eviction.Usage, error) {
	listed, err := v.cfg.Runtime.ListContainerStats(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("the runtime does not say what containers use: %w", err)
	}
	byPod := newestByPod(listed)
	all := map[types.UID]eviction.Usage{}
	var busy []<-chan struct{}
	for _, w := range workers { // all of them before the wait: one takes no time from another
		pod, _ := w.current()
		busy = append(busy, v.startDiskUse(pod, 0))
	}
	wait, cancel := context.WithTimeout(ctx, measureWait)
	defer cancel()
	periodic.Await(wait, busy...)
	for _, w := range workers {
		pod, _ := w.current()
		disk, measured := v.disk.get(pod.UID)
		u := usageOf(pod, disk, measured, byPod[pod.UID])
		u.Unmeasured = u.Unmeasured || slices.ContainsFunc(w.seenRunning(), func(name string) bool {
			return !slices.ContainsFunc(byPod[pod.UID], func(s *runtimeapi.ContainerStats) bool {
				return kubelettypes.GetContainerName(s.GetAttributes().GetLabels()) == name
			})
		})
		all[pod.UID] = u
	}
	return all, ctx.Err()
}

// seenRunning are the containers that ran when the worker looked last.
func (w *worker) seenRunning() (names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.observed == nil {
		return nil
	}
	for name, s := range w.observed.Statuses {
		if s.State.Running != nil {
			names = append(names, name)
		}
	}
	return names
}

// countProcesses adds how many processes pods have, if the runtime says so.
func (v *evictor) countProcesses(ctx context.Context, usage map[types.UID]eviction.Usage) {
	listed, err := v.cfg.Runtime.ListPodSandboxStats(ctx, nil)
	if err != nil {
		log.G(ctx).WithError(err).Warn("The runtime does not say how many processes pods have")
	}
	for _, s := range listed {
		uid := types.UID(s.GetAttributes().GetMetadata().GetUid())
		if u, ok := usage[uid]; ok {
			u.Processes += int64(s.GetLinux().GetProcess().GetProcessCount().GetValue())
			usage[uid] = u
		}
	}
}

// usageOf adds up what a pod uses.
func usageOf(pod *corev1.Pod, disk diskUse, measured bool, stats []*runtimeapi.ContainerStats) eviction.Usage {
	u := eviction.Usage{Unmeasured: !measured || disk.partial, Volumes: map[string]int64{}, Storage: map[string]int64{}, MemoryOf: map[string]int64{}}
	other := sumOf(disk.other)
	u.Other, u.Inodes = other.Bytes, other.Inodes
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumDefault {
			u.Inodes += disk.volumes[v.Name].Inodes
		}
	}
	for name, used := range disk.volumes {
		u.Volumes[name] = used.Bytes
	}
	for name, used := range disk.logs {
		u.Storage[name] = used.Bytes
		u.Inodes += used.Inodes
	}
	for _, s := range stats {
		name := kubelettypes.GetContainerName(s.GetAttributes().GetLabels())
		u.Unmeasured = u.Unmeasured || s.GetWritableLayer() == nil
		bytes, inodes := int64(s.GetWritableLayer().GetUsedBytes().GetValue()), int64(s.GetWritableLayer().GetInodesUsed().GetValue())
		u.Storage[name] += bytes
		u.Layers += bytes
		u.Inodes += inodes
		u.LayerInodes += inodes
		if working := s.GetMemory().GetWorkingSetBytes(); working != nil {
			u.MemoryOf[name] += int64(working.Value)
			u.Memory += int64(working.Value)
		}
	}
	return u
}

// underPressure is why the node does not take a pod while it is short of something,
// in the kubelet's words.
func (e *Engine) underPressure(pod *corev1.Pod) *podspec.Failure {
	held := e.pressed.Load()
	if held == nil || len(*held) == 0 || eviction.Critical(pod) {
		return nil
	}
	if len(*held) == 1 && (*held)[0] == corev1.NodeMemoryPressure {
		taint := &corev1.Taint{Key: corev1.TaintNodeMemoryPressure, Effect: corev1.TaintEffectNoSchedule}
		tolerates := slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
			return t.ToleratesTaint(klog.Background(), taint, true)
		})
		if tolerates || podspec.QOSClass(pod) != corev1.PodQOSBestEffort {
			return nil
		}
	}
	return &podspec.Failure{Reason: eviction.Reason, Message: fmt.Sprintf("The node had condition: %v. ", *held)}
}
