package machine

import (
	"context"
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	internalapi "k8s.io/cri-api/pkg/apis"

	"github.com/virtual-kubelet/virtual-kubelet/podengine/eviction"
)

// fileSystem is how much of a file system there is, in bytes and inodes.
type fileSystem struct {
	device        uint64
	bytes, inodes eviction.Level
}

// levels observes this machine: its memory, its process IDs, the file system of root
// and that of the images. What it does not report is left out.
func levels(root string, images internalapi.ImageManagerService) func(context.Context) (eviction.Levels, error) {
	return func(ctx context.Context) (eviction.Levels, error) {
		observed := eviction.Levels{}
		if level, ok := memoryLevel(); ok {
			observed[eviction.MemoryAvailable] = level
		}
		if level, ok := pidLevel(); ok {
			observed[eviction.PIDAvailable] = level
		}
		if fs, err := statfs(root); err == nil {
			observed[eviction.NodeFsAvailable], observed[eviction.NodeFsInodesFree] = fs.bytes, fs.inodes
		}
		if fs, ok := imageFileSystem(ctx, images); ok {
			observed[eviction.ImageFsAvailable], observed[eviction.ImageFsInodesFree] = fs.bytes, fs.inodes
		}
		for signal, level := range observed {
			if level.Capacity <= 0 { // a file system without a fixed number of inodes
				delete(observed, signal)
			}
		}
		return observed, ctx.Err()
	}
}

// imageFileSystem is that of the images, if it is known.
func imageFileSystem(ctx context.Context, images internalapi.ImageManagerService) (fs fileSystem, ok bool) {
	info, err := images.ImageFsInfo(ctx)
	if err != nil {
		return fs, false
	}
	for _, where := range info.GetImageFilesystems() {
		if fs, err := statfs(where.GetFsId().GetMountpoint()); err == nil {
			return fs, true
		}
	}
	return fs, false
}

// imagesApart observes whether the images are on another file system than root.
func imagesApart(root string, images internalapi.ImageManagerService) func(context.Context) bool {
	return func(ctx context.Context) bool {
		other, ok := imageFileSystem(ctx, images)
		if !ok {
			return false
		}
		fs, err := statfs(root)
		return err == nil && apart(fs, other)
	}
}

// apart reports whether two file systems have room of their own. Subvolumes, and overlays, are devices of their
// own, too, but are as large as what they are on; how much of that is free may change a little between two looks.
func apart(a, b fileSystem) bool {
	changed := max(a.bytes.Available, b.bytes.Available) - min(a.bytes.Available, b.bytes.Available)
	return a.device != b.device && (a.bytes.Capacity != b.bytes.Capacity || changed > a.bytes.Capacity/100)
}

func memoryLevel() (level eviction.Level, ok bool) {
	content, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return level, false
	}
	found := 0
	for line := range strings.Lines(string(content)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "MemTotal: %d kB", &kib); n == 1 {
			level.Capacity = kib << 10
			found++
		}
		if n, _ := fmt.Sscanf(line, "MemAvailable: %d kB", &kib); n == 1 {
			level.Available = kib << 10
			found++
		}
	}
	return level, found == 2
}

func pidLevel() (level eviction.Level, ok bool) {
	most, err := os.ReadFile("/proc/sys/kernel/pid_max")
	if err != nil {
		return level, false
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return level, false
	}
	var used int64
	if n, _ := fmt.Sscanf(string(load), "%f %f %f %d/%d", new(float64), new(float64), new(float64), new(int64), &used); n != 5 {
		return level, false
	}
	if n, _ := fmt.Sscan(string(most), &level.Capacity); n != 1 {
		return level, false
	}
	level.Available = level.Capacity - used
	return level, true
}

// storageCapacity is the size of the file system of a directory; ok is false if it
// is not known.
func storageCapacity(root string) (q *resource.Quantity, ok bool) {
	fs, err := statfs(root)
	if err != nil || fs.bytes.Capacity <= 0 {
		return nil, false
	}
	return resource.NewQuantity(fs.bytes.Capacity, resource.BinarySI), true
}
