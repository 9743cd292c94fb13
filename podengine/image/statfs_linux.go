package image

import "syscall"

func systemStatfs(path string) (capacity, available uint64, err error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(path, &fs); err != nil {
		return 0, 0, err
	}
	size := uint64(fs.Bsize)
	return fs.Blocks * size, fs.Bavail * size, nil
}
