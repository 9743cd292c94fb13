package runtimemetrics

import (
	"context"
	"time"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// measuredImages is an image service whose calls are counted.
type measuredImages struct {
	internalapi.ImageManagerService
	*operations
}

var _ internalapi.ImageManagerService = (*measuredImages)(nil)

func (i *measuredImages) ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) (_ []*runtimeapi.Image, err error) {
	defer i.ended("list_images", time.Now(), &err)
	return i.ImageManagerService.ListImages(ctx, filter)
}

func (i *measuredImages) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (_ *runtimeapi.ImageStatusResponse, err error) {
	defer i.ended("image_status", time.Now(), &err)
	return i.ImageManagerService.ImageStatus(ctx, image, verbose)
}

func (i *measuredImages) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (_ string, err error) {
	defer i.ended("pull_image", time.Now(), &err)
	return i.ImageManagerService.PullImage(ctx, image, auth, sandbox)
}

func (i *measuredImages) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) (err error) {
	defer i.ended("remove_image", time.Now(), &err)
	return i.ImageManagerService.RemoveImage(ctx, image)
}

func (i *measuredImages) ImageFsInfo(ctx context.Context) (_ *runtimeapi.ImageFsInfoResponse, err error) {
	defer i.ended("image_fs_info", time.Now(), &err)
	return i.ImageManagerService.ImageFsInfo(ctx)
}
