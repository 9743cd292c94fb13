package runtime

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/filetree"
	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/procfs"
)

// sampleTime is how far two readings must be apart for a rate to mean something.
const sampleTime = time.Second

// sample is the CPU time at a moment, and the rate that followed from the one
// before.
type sample struct {
	at   time.Time
	cpu  uint64
	rate uint64
}

// next takes a reading. The first rate is the mean since begin.
func (s *sample) next(at time.Time, cpu uint64, begin time.Time) uint64 {
	if s.at.IsZero() {
		*s = sample{at: begin}
	} else if at.Sub(s.at) < sampleTime {
		return s.rate
	}
	if passed := at.Sub(s.at); passed > 0 && cpu >= s.cpu {
		*s = sample{at: at, cpu: cpu, rate: uint64(float64(cpu-s.cpu) / passed.Seconds())}
	}
	return s.rate
}

// usage is what a container uses.
type usage struct {
	at                   time.Time
	cpu, rate            uint64
	memory, workingSet   uint64
	rss, limit           uint64
	faults, majorFaults  uint64
	processes            uint64
	diskBytes, diskFiles uint64
	diskUnknown          bool // it was never measured to the end
}

// measure measures a container that runs. What it has on disk was measured before.
func (r *Runtime) measure(c *container, all []procfs.Process) (usage, bool) {
	started, ok := c.running()
	if !ok {
		return usage{}, false
	}
	u := usage{at: time.Now()}
	u.ofTree(all, started.ShimPID, started.ShimStart)
	u.ofGroup(c)
	disk, measured := c.disk.Last()
	u.ofDirs(disk)
	u.diskUnknown = !measured
	c.mu.Lock()
	defer c.mu.Unlock()
	u.rate = c.sample.next(u.at, u.cpu, started.Time)
	return u, true
}

// ofTree adds up what descends from the shim. What ended before is in what the
// shim has waited for.
func (u *usage) ofTree(all []procfs.Process, pid int, start uint64) {
	isShim := func(p procfs.Process) bool { return p.PID == pid && p.Start == start }
	for _, p := range where(all, isShim) {
		u.cpu += p.Waited
	}
	for _, p := range procfs.Below(all, isShim) {
		u.cpu += p.CPU + p.Waited
		u.rss += p.RSS
		if !p.Dead() {
			u.processes++
		}
	}
	u.memory, u.workingSet = u.rss, u.rss
}

// ofGroup replaces what the container's control group knows better.
func (u *usage) ofGroup(c *container) {
	stats := c.spec.Group.Stats()
	if stats.HasCPU {
		u.cpu = stats.CPU
	}
	if stats.HasMemory {
		u.memory, u.workingSet, u.rss = stats.Usage, stats.WorkingSet, stats.RSS
		u.faults, u.majorFaults, u.limit = stats.Faults, stats.MajorFaults, stats.Limit
	}
}

const (
	// diskWait is for how long statistics wait for what containers have on disk: what
	// takes longer to measure is as it was last, or as far as it was counted.
	diskWait = time.Second
	// diskTimeout is how long the directories of a container may take to measure.
	diskTimeout = 10 * time.Minute
)

// measureDisks has measured what containers that run have on disk: all at once, so that none
// takes time from others. It does not wait longer than diskWait.
func (r *Runtime) measureDisks(ctx context.Context, containers ...*container) {
	var busy []<-chan struct{}
	for _, c := range containers {
		if _, ok := c.running(); ok {
			busy = append(busy, r.startDisk(c))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, diskWait)
	defer cancel()
	periodic.Await(ctx, busy...)
}

// startDisk has measured what the directories take that are the container's own.
func (r *Runtime) startDisk(c *container) (busy <-chan struct{}) {
	start := func(f func()) {
		if !r.spawn(f) {
			f() // which ends with r.ctx
		}
	}
	return c.disk.Start(0, start, func(last map[string]filetree.Used, soFar func(map[string]filetree.Used)) map[string]filetree.Used {
		ctx, cancel := context.WithTimeout(r.ctx, diskTimeout)
		defer cancel()
		return r.measureDirs(ctx, c, last, soFar)
	})
}

// measureDirs measures the directories that are the container's own. What could be
// measured in part only, since it has too many files or they are being moved, has not less
// than before: it would hide what it has. Of very many files it calls soFar with what was
// counted of them, where that is more than before.
func (r *Runtime) measureDirs(ctx context.Context, c *container, last map[string]filetree.Used, soFar func(map[string]filetree.Used)) map[string]filetree.Used {
	all := map[string]filetree.Used{}
	maps.Copy(all, last)
	for _, name := range []string{workDir, tmpDir, varTmpDir} {
		atLeast := func(used filetree.Used) filetree.Used {
			return filetree.Used{Bytes: max(used.Bytes, last[name].Bytes), Inodes: max(used.Inodes, last[name].Inodes)}
		}
		used, err := filetree.Measure(filetree.WithSoFar(ctx, func(used filetree.Used) {
			all[name] = atLeast(used)
			soFar(maps.Clone(all))
		}), c.path(name))
		if err != nil && !errors.Is(err, fs.ErrPermission) { // of which the rest is never known
			used = atLeast(used)
		}
		all[name] = used
	}
	return all
}

// ofDirs adds up what directories take.
func (u *usage) ofDirs(all map[string]filetree.Used) {
	for _, used := range all {
		u.diskBytes += uint64(used.Bytes)
		u.diskFiles += uint64(used.Inodes)
	}
}

func (u *usage) cpuUsage() *runtimeapi.CpuUsage {
	return &runtimeapi.CpuUsage{Timestamp: u.at.UnixNano(), UsageCoreNanoSeconds: value(u.cpu), UsageNanoCores: value(u.rate)}
}

func (u *usage) memoryUsage() *runtimeapi.MemoryUsage {
	m := &runtimeapi.MemoryUsage{
		Timestamp: u.at.UnixNano(), WorkingSetBytes: value(u.workingSet), UsageBytes: value(u.memory),
		RssBytes: value(u.rss), PageFaults: value(u.faults), MajorPageFaults: value(u.majorFaults),
	}
	if u.limit > 0 {
		m.AvailableBytes = value(u.limit - min(u.limit, u.workingSet))
	}
	return m
}

func (u *usage) add(other usage) {
	u.cpu, u.rate = u.cpu+other.cpu, u.rate+other.rate
	u.memory, u.workingSet, u.rss = u.memory+other.memory, u.workingSet+other.workingSet, u.rss+other.rss
	u.faults, u.majorFaults = u.faults+other.faults, u.majorFaults+other.majorFaults
	u.processes += other.processes
}

func value(v uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: v} }

// statsOf are a container's statistics; those of one that does not run are zero. What was never
// measured is left out: it may be much.
func (r *Runtime) statsOf(c *container, u usage) *runtimeapi.ContainerStats {
	if u.at.IsZero() {
		u.at = time.Now()
	}
	stats := &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id: c.id, Metadata: proto.CloneOf(c.config.GetMetadata()),
			Labels: maps.Clone(c.config.GetLabels()), Annotations: maps.Clone(c.config.GetAnnotations()),
		},
		Cpu: u.cpuUsage(), Memory: u.memoryUsage(),
	}
	if !u.diskUnknown {
		stats.WritableLayer = &runtimeapi.FilesystemUsage{
			Timestamp: u.at.UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: r.cfg.Root},
			UsedBytes: value(u.diskBytes), InodesUsed: value(u.diskFiles),
		}
	}
	return stats
}

// ContainerStats implements the CRI.
func (r *Runtime) ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error) {
	c, err := r.container(id)
	if err != nil {
		return nil, err
	}
	all, err := procfs.All()
	if err != nil {
		return nil, err
	}
	r.measureDisks(ctx, c)
	u, _ := r.measure(c, all)
	return r.statsOf(c, u), nil
}

// ListContainerStats implements the CRI: the statistics of what runs.
func (r *Runtime) ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	all, err := procfs.All()
	if err != nil {
		return nil, err
	}
	containers := slices.DeleteFunc(r.allContainers(), func(c *container) bool {
		return filter.GetId() != "" && filter.GetId() != c.id ||
			filter.GetPodSandboxId() != "" && filter.GetPodSandboxId() != c.sandbox ||
			!selects(filter.GetLabelSelector(), c.config.GetLabels())
	})
	r.measureDisks(ctx, containers...)
	var list []*runtimeapi.ContainerStats
	for _, c := range containers {
		if u, ok := r.measure(c, all); ok {
			list = append(list, r.statsOf(c, u))
		}
	}
	return list, nil
}

// PodSandboxStats implements the CRI.
func (r *Runtime) PodSandboxStats(ctx context.Context, id string) (*runtimeapi.PodSandboxStats, error) {
	box, err := r.sandbox(id)
	if err != nil {
		return nil, err
	}
	all, err := procfs.All()
	if err != nil {
		return nil, err
	}
	r.measureDisks(ctx, r.containersOf(box.id)...)
	return r.sandboxStats(box, all), nil
}

// sandboxStats adds up the containers of a sandbox. The network is the machine's,
// and so there are no statistics of it.
func (r *Runtime) sandboxStats(box *sandbox, all []procfs.Process) *runtimeapi.PodSandboxStats {
	sum := usage{at: time.Now()}
	linux := &runtimeapi.LinuxPodSandboxStats{}
	for _, c := range r.containersOf(box.id) {
		if u, ok := r.measure(c, all); ok {
			sum.add(u)
			linux.Containers = append(linux.Containers, r.statsOf(c, u))
		}
	}
	linux.Cpu, linux.Memory = sum.cpuUsage(), sum.memoryUsage()
	linux.Process = &runtimeapi.ProcessUsage{Timestamp: sum.at.UnixNano(), ProcessCount: value(sum.processes)}
	return &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{
			Id: box.id, Metadata: proto.CloneOf(box.config.GetMetadata()),
			Labels: maps.Clone(box.config.GetLabels()), Annotations: maps.Clone(box.config.GetAnnotations()),
		},
		Linux: linux,
	}
}

// ListPodSandboxStats implements the CRI.
func (r *Runtime) ListPodSandboxStats(ctx context.Context, filter *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	all, err := procfs.All()
	if err != nil {
		return nil, err
	}
	boxes := slices.DeleteFunc(r.allSandboxes(), func(box *sandbox) bool {
		return filter.GetId() != "" && filter.GetId() != box.id || !selects(filter.GetLabelSelector(), box.config.GetLabels()) || box.isStopped()
	})
	var containers []*container
	for _, box := range boxes {
		containers = append(containers, r.containersOf(box.id)...)
	}
	r.measureDisks(ctx, containers...)
	var list []*runtimeapi.PodSandboxStats
	for _, box := range boxes {
		list = append(list, r.sandboxStats(box, all))
	}
	return list, nil
}
