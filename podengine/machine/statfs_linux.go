package machine

import (
	"errors"
	"syscall"

	"github.com/virtual-kubelet/virtual-kubelet/podengine/eviction"
)

// statfs says how full the file system of a path is.
func statfs(path string) (fs fileSystem, err error) {
	if path == "" {
		return fs, errors.New("no path is given")
	}
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil {
		return fs, err
	}
	var at syscall.Stat_t
	if err := syscall.Stat(path, &at); err != nil {
		return fs, err
	}
	size := s.Bsize
	return fileSystem{
		device: uint64(at.Dev), //nolint:unconvert // it has another type on other machines
		bytes:  eviction.Level{Available: int64(s.Bavail) * size, Capacity: int64(s.Blocks) * size},
		inodes: eviction.Level{Available: int64(s.Ffree), Capacity: int64(s.Files)},
	}, nil
}
