package image

import (
	"context"
	"errors"
	"fmt"

	cri "k8s.io/cri-api/pkg/apis"
)

// DiskUsage returns a function for CollectorOptions.Usage that asks the runtime
// where its images are, and statfs how full that file system is, in bytes: the
// CRI does not report. A nil statfs is the operating system's, where there is one.
func DiskUsage(images cri.ImageManagerService, statfs func(path string) (capacity, available uint64, err error)) func(context.Context) (capacity, available uint64, err error) {
	if statfs == nil {
		statfs = systemStatfs
	}
	return func(ctx context.Context) (uint64, uint64, error) {
		info, err := images.ImageFsInfo(ctx)
		if err != nil {
			return 0, 0, err
		}
		for _, fs := range info.GetImageFilesystems() {
			if path := fs.GetFsId().GetMountpoint(); path != "" {
				capacity, available, err := statfs(path)
				if err != nil {
					return 0, 0, fmt.Errorf("file system of %s: %w", path, err)
				}
				return capacity, available, nil
			}
		}
		return 0, 0, errors.New("the runtime does not say where its images are")
	}
}
