package cri

import (
	"context"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// lazyImages is an image service that is connected to by the first call that it answers.
type lazyImages struct {
	lazy[internalapi.ImageManagerService]
}

var _ internalapi.ImageManagerService = (*lazyImages)(nil)

func (l *lazyImages) ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	service, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return service.ListImages(ctx, filter)
}

func (l *lazyImages) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error) {
	service, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return service.ImageStatus(ctx, image, verbose)
}

func (l *lazyImages) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	service, err := l.get(ctx)
	if err != nil {
		return "", err
	}
	return service.PullImage(ctx, image, auth, sandbox)
}

func (l *lazyImages) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error {
	service, err := l.get(ctx)
	if err != nil {
		return err
	}
	return service.RemoveImage(ctx, image)
}

func (l *lazyImages) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	service, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return service.ImageFsInfo(ctx)
}
