package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (f *fakeImages) ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var images []*runtimeapi.Image
	for _, image := range f.present {
		images = append(images, image)
	}
	slices.SortFunc(images, func(a, b *runtimeapi.Image) int { return strings.Compare(a.Id, b.Id) })
	return images, nil
}

func (f *fakeImages) RemoveImage(_ context.Context, image *runtimeapi.ImageSpec) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.removal != nil {
		if err := f.removal(image.Image); err != nil {
			return err
		}
	}
	f.removes = append(f.removes, image.Image)
	delete(f.present, image.Image)
	return nil
}

func (f *fakeImages) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: f.usage}, nil
}

type fakeContainers struct {
	list  []*runtimeapi.Container
	fails error
}

func (f *fakeContainers) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return f.list, f.fails
}

// imagesOf are images of 10 bytes.
func imagesOf(ids ...string) map[string]*runtimeapi.Image {
	images := map[string]*runtimeapi.Image{}
	for _, id := range ids {
		images[id] = &runtimeapi.Image{Id: id, Size: 10, RepoTags: []string{"docker.io/library/" + id + ":latest"}}
	}
	return images
}

// collecting is a Collector on a disk of 1000 bytes in a bubble.
func collecting(t *testing.T, opts CollectorOptions, available *uint64, test func(c *Collector, images *fakeImages, containers *fakeContainers)) {
	synctest.Test(t, func(t *testing.T) {
		images, containers := &fakeImages{}, &fakeContainers{}
		opts.Images, opts.Containers = images, containers
		opts.Usage = func(context.Context) (uint64, uint64, error) { return 1000, *available, nil }
		test(NewCollector(opts), images, containers)
	})
}

func (f *fakeImages) removed(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(f.removes, want) {
		t.Errorf("removed %v, want %v", f.removes, want)
	}
	f.removes = nil
}

func TestImagesGoWhenTheDiskIsFull(t *testing.T) {
	available := uint64(151)
	collecting(t, CollectorOptions{}, &available, func(c *Collector, images *fakeImages, containers *fakeContainers) {
		collect := func(wantFreed uint64, wantErr string) {
			t.Helper()
			freed, err := c.CollectImages(context.Background())
			if freed != wantFreed || fmt.Sprint(err) != wantErr {
				t.Error(freed, err)
			}
		}
		images.present = imagesOf("a", "b", "c", "d", "e", "g")
		images.present["g"].Pinned = true
		containers.list = []*runtimeapi.Container{{ImageId: "a"}, {Image: &runtimeapi.ImageSpec{Image: "c"}}}
		collect(0, "<nil>") // the disk is not that full
		time.Sleep(3 * time.Minute)
		available = 150
		containers.list = containers.list[:1]
		collect(40, "failed to garbage collect required amount of images: attempted to free 50 bytes, but only found 40 bytes eligible to free")
		images.removed(t, "b", "c", "d", "e")
	})
}

func TestThresholds(t *testing.T) {
	for _, test := range []struct {
		usage     usage
		high, low int
		want      uint64
	}{
		{usage{1000, 151}, 85, 80, 0},
		{usage{1000, 150}, 85, 80, 50},
		{usage{1000, 0}, 85, 80, 200},
		{usage{1000, 1000}, 85, 80, 0},
		{usage{1000, 2000}, 85, 80, 0}, // more than there is
		{usage{0, 0}, 85, 80, 0},
		{usage{1000, 500}, 50, 10, 400},
		{usage{1 << 50, 0}, 85, 0, 1 << 50},
	} {
		if got := test.usage.excess(test.high, test.low); got != test.want {
			t.Errorf("%+v: %d, want %d", test, got, test.want)
		}
	}
}

func TestOldestImagesGoFirst(t *testing.T) {
	available := uint64(1000)
	collecting(t, CollectorOptions{}, &available, func(c *Collector, images *fakeImages, containers *fakeContainers) {
		use := func(ids ...string) {
			containers.list = nil
			for _, id := range ids {
				containers.list = append(containers.list, &runtimeapi.Container{ImageId: id})
			}
			if _, err := c.CollectImages(context.Background()); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
		}
		images.present = imagesOf("a", "b", "c")
		use("a", "b", "c")
		use("a", "c")
		images.present["new"] = imagesOf("new")["new"]
		use("a")
		containers.list = nil
		available = 145 // 20 % are 200, which are 55 more
		images.present["b"].Size = 30
		images.present["c"].Size = 30
		freed, err := c.CollectImages(context.Background())
		if freed != 60 || err != nil {
			t.Error(freed, err)
		}
		images.removed(t, "b", "c")
	})
}

func TestYoungImagesStay(t *testing.T) {
	available := uint64(0)
	collecting(t, CollectorOptions{MinAge: 5 * time.Minute}, &available, func(c *Collector, images *fakeImages, _ *fakeContainers) {
		images.present = imagesOf("a")
		for range 5 {
			if _, err := c.DeleteUnusedImages(context.Background()); err != nil {
				t.Error(err)
			}
			images.removed(t)
			time.Sleep(time.Minute)
		}
		freed, err := c.DeleteUnusedImages(context.Background())
		if freed != 10 || err != nil {
			t.Error(freed, err)
		}
		images.removed(t, "a")
	})
}

func TestImagesUnusedForTooLongGo(t *testing.T) {
	available := uint64(1000)
	collecting(t, CollectorOptions{MaxAge: time.Hour}, &available, func(c *Collector, images *fakeImages, containers *fakeContainers) {
		images.present = imagesOf("a", "b")
		containers.list = []*runtimeapi.Container{{ImageId: "b"}}
		for range 2 {
			if _, err := c.CollectImages(context.Background()); err != nil {
				t.Error(err)
			}
			images.removed(t)
			time.Sleep(31 * time.Minute)
		}
		if freed, err := c.CollectImages(context.Background()); err != nil || freed != 10 {
			t.Error(freed, err)
		}
		images.removed(t, "a")
	})
}

func TestImagesInUseStay(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0", 64)
	opts := CollectorOptions{InUse: func(context.Context) ([]string, error) {
		return []string{"registry.k8s.io/pause:3.10", "", "r.io/volume:1@" + digest, digest}, nil
	}}
	available := uint64(0)
	collecting(t, opts, &available, func(c *Collector, images *fakeImages, containers *fakeContainers) {
		images.present = map[string]*runtimeapi.Image{
			"1":    {Id: "1", RepoTags: []string{"registry.k8s.io/pause:3.10"}},
			"2":    {Id: "2", RepoDigests: []string{"r.io/volume@" + digest}},
			digest: {Id: digest},
			"4":    {Id: "4", RepoTags: []string{"docker.io/library/nginx:latest"}},
			"5":    {Id: "5", RepoTags: []string{"docker.io/library/nginx:1"}},
			"6":    {Id: "6"},
		}
		containers.list = []*runtimeapi.Container{{Image: &runtimeapi.ImageSpec{Image: "nginx"}, State: runtimeapi.ContainerState_CONTAINER_EXITED}, {ImageRef: "6"}}
		for range 2 {
			if _, err := c.DeleteUnusedImages(context.Background()); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Hour)
		}
		images.removed(t, "5")
	})
}

func TestNothingGoesOnDoubt(t *testing.T) {
	available := uint64(0)
	collecting(t, CollectorOptions{MinAge: 1}, &available, func(c *Collector, images *fakeImages, containers *fakeContainers) {
		images.present = imagesOf("a", "b")
		_, _ = c.DeleteUnusedImages(context.Background())
		time.Sleep(time.Minute)
		containers.fails = errors.New("no runtime")
		if _, err := c.DeleteUnusedImages(context.Background()); !errors.Is(err, containers.fails) {
			t.Error(err)
		}
		images.removed(t)
		// One that cannot be removed does not keep the others.
		containers.fails = nil
		images.removal = func(id string) error {
			if id == "a" {
				return errors.New("busy")
			}
			return nil
		}
		freed, err := c.CollectImages(context.Background())
		if freed != 10 || err == nil || err.Error() != "cannot remove image a: busy" {
			t.Error(freed, err)
		}
		images.removed(t, "b")

		c.opts.Usage = func(context.Context) (uint64, uint64, error) { return 0, 0, errors.New("no disk") }
		if _, err := c.CollectImages(context.Background()); err == nil {
			t.Error("no error")
		}
	})
}

func TestDiskUsage(t *testing.T) {
	images := &fakeImages{}
	if _, _, err := DiskUsage(images, nil)(t.Context()); err == nil {
		t.Error("no error")
	}
	images.usage = []*runtimeapi.FilesystemUsage{{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: t.TempDir()}}}
	capacity, available, err := DiskUsage(images, nil)(t.Context())
	if err != nil || capacity == 0 || available > capacity {
		t.Error(capacity, available, err)
	}
	none := func(path string) (uint64, uint64, error) { return 0, 0, errors.New(path) }
	if _, _, err := DiskUsage(images, none)(t.Context()); err == nil {
		t.Error("no error")
	}
}
