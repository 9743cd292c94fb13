package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

const imagesFile = "images.json"

// images are the names of images that somebody has "pulled". Nothing else is
// known of them.
type images struct {
	root string

	mu    sync.Mutex
	names map[string]bool
}

func (r *Runtime) openImages() (*images, error) {
	i := &images{root: r.cfg.Root, names: map[string]bool{}}
	path := filepath.Join(r.cfg.Root, imagesFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return i, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	if err := json.Unmarshal(data, &names); err != nil {
		return i, r.putAside(path, err)
	}
	for _, name := range names {
		i.names[name] = true
	}
	return i, nil
}

func (i *images) has(name string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.names[name]
}

func (i *images) set(name string, there bool) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.names[name] == there {
		return nil
	}
	if there {
		i.names[name] = true
	} else {
		delete(i.names, name)
	}
	return shim.WriteRecord(i.root, imagesFile, slices.Sorted(maps.Keys(i.names)))
}

func (i *images) list() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Sorted(maps.Keys(i.names))
}

// imageRef is what an image is called: its name.
func imageRef(spec *runtimeapi.ImageSpec) string { return spec.GetImage() }

// image is an image of which only the name is known. Its user is the one that its
// containers run as by default.
func (r *Runtime) image(name string) *runtimeapi.Image {
	uid := r.policy.defaultUser.uid
	if len(r.policy.podUsers) > 0 {
		uid = r.policy.podUsers[0][0] // see isPodsOwn
	}
	if image := r.catalog.find(name).account; image != nil {
		uid = image.uid
	}
	return &runtimeapi.Image{
		Id: name, RepoTags: []string{name}, Spec: &runtimeapi.ImageSpec{Image: name},
		Uid: &runtimeapi.Int64Value{Value: uid},
	}
}

// ListImages implements the CRI.
func (r *Runtime) ListImages(_ context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	var list []*runtimeapi.Image
	for _, name := range r.images.list() {
		if wanted := filter.GetImage().GetImage(); wanted == "" || wanted == name {
			list = append(list, r.image(name))
		}
	}
	return list, nil
}

// ImageStatus implements the CRI.
func (r *Runtime) ImageStatus(_ context.Context, spec *runtimeapi.ImageSpec, _ bool) (*runtimeapi.ImageStatusResponse, error) {
	if !r.images.has(spec.GetImage()) {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	return &runtimeapi.ImageStatusResponse{Image: r.image(spec.GetImage())}, nil
}

// PullImage implements the CRI: it records the name, and pulls nothing.
func (r *Runtime) PullImage(_ context.Context, spec *runtimeapi.ImageSpec, _ *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	if spec.GetImage() == "" {
		return "", invalid("the image has no name")
	}
	return imageRef(spec), r.images.set(spec.GetImage(), true)
}

// RemoveImage implements the CRI: it forgets the name.
func (r *Runtime) RemoveImage(_ context.Context, spec *runtimeapi.ImageSpec) error {
	return r.images.set(spec.GetImage(), false)
}

// ImageFsInfo implements the CRI: it reports the file system that Root is on.
func (r *Runtime) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(r.cfg.Root, &stat); err != nil {
		return nil, fmt.Errorf("file system of %s: %w", r.cfg.Root, err)
	}
	usage := &runtimeapi.FilesystemUsage{
		Timestamp:  time.Now().UnixNano(),
		FsId:       &runtimeapi.FilesystemIdentifier{Mountpoint: r.cfg.Root},
		UsedBytes:  &runtimeapi.UInt64Value{Value: (stat.Blocks - stat.Bfree) * uint64(stat.Bsize)},
		InodesUsed: &runtimeapi.UInt64Value{Value: stat.Files - stat.Ffree},
	}
	return &runtimeapi.ImageFsInfoResponse{
		ImageFilesystems: []*runtimeapi.FilesystemUsage{usage}, ContainerFilesystems: []*runtimeapi.FilesystemUsage{usage},
	}, nil
}
