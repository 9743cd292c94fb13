package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/imagename"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// ImagePeriod is how often a kubelet collects images, for those who call a
// Collector.
const ImagePeriod = 5 * time.Minute

// Containers is the part of the CRI's RuntimeService that a Collector needs.
type Containers interface {
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
}

// CollectorOptions are what a Collector works with. Images and Containers are
// needed.
type CollectorOptions struct {
	Images     cri.ImageManagerService
	Containers Containers
	// Usage says how many bytes the file system of the images has, and how many
	// of them are free; see DiskUsage. Without it, images go by age only.
	Usage func(ctx context.Context) (capacity, available uint64, err error)
	// InUse returns images that stay besides those of containers, by name or
	// ID: the sandbox image, those of image volumes, those of pods whose
	// containers do not exist yet.
	InUse func(ctx context.Context) ([]string, error)
	// Records are those of pulled images, which go with the images. Nil if there
	// are none.
	Records *Records

	// HighThresholdPercent of the disk in use has images removed, down to
	// LowThresholdPercent. Default to 85 and 80.
	HighThresholdPercent, LowThresholdPercent int
	// MinAge is how long ago an image must have been seen first to be removed.
	// Defaults to 2 minutes.
	MinAge time.Duration
	// MaxAge is how long an image may be unused, however much room there is.
	// Defaults to for ever.
	MaxAge time.Duration
}

// Collector removes images that nobody needs. It does
// something when it is called only; its methods are safe for concurrent use.
type Collector struct {
	opts CollectorOptions

	mu   sync.Mutex // one collection of images at a time
	seen map[string]seen
}

// NewCollector makes a Collector.
func NewCollector(opts CollectorOptions) *Collector {
	opts.HighThresholdPercent = cmp.Or(opts.HighThresholdPercent, 85)
	opts.LowThresholdPercent = cmp.Or(opts.LowThresholdPercent, 80)
	opts.MinAge = cmp.Or(opts.MinAge, 2*time.Minute)
	return &Collector{opts: opts}
}

// CollectImages removes images that were unused for too long and, if the disk is
// too full, the longest unused ones. It returns how many bytes that has freed,
// and an error if it could not free what it should.
func (c *Collector) CollectImages(ctx context.Context) (freed uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var want uint64
	if c.opts.Usage != nil {
		capacity, available, err := c.opts.Usage(ctx)
		if err != nil {
			return 0, fmt.Errorf("cannot tell how full the file system of the images is: %w", err)
		}
		want = usage{capacity, available}.excess(c.opts.HighThresholdPercent, c.opts.LowThresholdPercent)
	}
	freed, err = c.free(ctx, want)
	if err == nil && freed < want {
		err = fmt.Errorf("failed to garbage collect required amount of images: attempted to free %d bytes, but only found %d bytes eligible to free", want, freed)
	}
	return freed, err
}

// DeleteUnusedImages removes all images that may go, as a node does that runs
// out of disk. It returns how many bytes that has freed.
func (c *Collector) DeleteUnusedImages(ctx context.Context) (freed uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.free(ctx, math.MaxUint64)
}

// Observe notes which images there are, and which of them are in use, and removes none: their
// age counts from then on.
func (c *Collector) Observe(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _, err := c.observe(ctx)
	return err
}

// observe returns the images, and the names and IDs of those in use.
func (c *Collector) observe(ctx context.Context) (images []*runtimeapi.Image, used map[string]bool, err error) {
	// Images come first: one that is pulled, and one whose container is made,
	// in between is not taken for unused.
	images, err = c.opts.Images.ListImages(ctx, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot list images: %w", err)
	}
	if used, err = c.used(ctx); err != nil {
		return nil, nil, err
	}
	c.seen = observe(c.seen, images, used, time.Now())
	return images, used, nil
}

// free removes images until as many bytes are free as wanted, if there are.
func (c *Collector) free(ctx context.Context, want uint64) (freed uint64, err error) {
	before := time.Now()
	images, used, err := c.observe(ctx)
	if err != nil {
		return 0, err
	}
	if c.opts.Records != nil {
		c.opts.Records.Prune(idsOf(images), before)
	}
	now := time.Now()
	rules := policy{c.opts.MinAge, c.opts.MaxAge}
	var errs []error
	for _, image := range rules.candidates(images, used, c.seen, now) {
		if freed >= want && !rules.expired(c.seen[image.Id], now) {
			break // those that follow were in use later still
		}
		log.G(ctx).WithField("image", image.Id).Info("Removing an unused image")
		if err := c.opts.Images.RemoveImage(ctx, &runtimeapi.ImageSpec{Image: image.Id}); err != nil {
			errs = append(errs, fmt.Errorf("cannot remove image %s: %w", image.Id, err))
			continue
		}
		delete(c.seen, image.Id)
		freed += image.Size
	}
	return freed, errors.Join(errs...)
}

func idsOf(images []*runtimeapi.Image) (ids []string) {
	for _, image := range images {
		ids = append(ids, image.Id)
	}
	return ids
}

// used returns the names and IDs of the images that are in use, be it by
// containers that are not ours.
func (c *Collector) used(ctx context.Context) (map[string]bool, error) {
	containers, err := c.opts.Containers.ListContainers(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot tell which images are in use: %w", err)
	}
	used := map[string]bool{}
	add := func(names ...string) {
		for _, name := range names {
			if name != "" {
				used[name], used[imagename.Normalized(name)] = true, true
			}
		}
	}
	for _, container := range containers {
		add(container.ImageId, container.ImageRef, container.GetImage().GetImage(), container.GetImage().GetUserSpecifiedImage())
	}
	if c.opts.InUse != nil {
		more, err := c.opts.InUse(ctx)
		if err != nil {
			return nil, fmt.Errorf("cannot tell which images are in use: %w", err)
		}
		add(more...)
	}
	return used, nil
}
