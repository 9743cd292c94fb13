package podengine

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/image"
)

// ImageGC says which images are removed, and when. The zero value removes unused
// ones while the disk is more than 85 percent full, down to 80, as a kubelet does.
type ImageGC struct {
	// Off leaves all images: somebody else sees to them.
	Off bool
	// HighThresholdPercent, LowThresholdPercent, MinAge and MaxAge are as in
	// image.CollectorOptions.
	HighThresholdPercent, LowThresholdPercent int
	MinAge, MaxAge                            time.Duration
	// Usage says how full the file system of the images is. Defaults to
	// image.DiskUsage.
	Usage func(ctx context.Context) (capacity, available uint64, err error)
}

// ImageVerification says of which images that are there a pod must have the
// credentials to pull them. The zero value is a kubelet's default.
type ImageVerification struct {
	// Policy and Allowed are as in image.PullerOptions.
	Policy  image.Verification
	Allowed []string
}

// collectImages removes images from time to time. Dead containers are removed
// by the workers of their pods, which know their logs too.
func (e *Engine) collectImages(ctx context.Context) {
	if e.collector == nil {
		return
	}
	if err := e.collector.Observe(ctx); err != nil && ctx.Err() == nil {
		log.G(ctx).WithError(err).Warn("Cannot tell which images there are")
	}
	periodic.Every(ctx, image.ImagePeriod, func(ctx context.Context) bool {
		_, err := e.collector.CollectImages(ctx)
		if err != nil && ctx.Err() == nil {
			log.G(ctx).WithError(err).Warn("Cannot remove unused images")
		}
		return true
	})
}

// makeCollector makes what removes images, unless somebody else does.
func (e *Engine) makeCollector() {
	gc := e.cfg.ImageGC
	if gc.Off {
		return
	}
	if gc.Usage == nil {
		gc.Usage = image.DiskUsage(e.cfg.Images, nil)
	}
	e.collector = image.NewCollector(image.CollectorOptions{
		Images:               e.cfg.Images,
		Containers:           e.cfg.Runtime,
		Records:              e.records,
		Usage:                gc.Usage,
		InUse:                e.imagesInUse,
		HighThresholdPercent: gc.HighThresholdPercent,
		LowThresholdPercent:  gc.LowThresholdPercent,
		MinAge:               gc.MinAge,
		MaxAge:               gc.MaxAge,
	})
}

// imagesInUse are the images that stay besides those of containers.
func (e *Engine) imagesInUse(ctx context.Context) ([]string, error) {
	sandboxes, err := e.sandboxImage(ctx)
	return append(e.wantedImages(), sandboxes), err
}

// wantedImages are the images of all pods that have not ended: containers that are not
// there yet, or were removed, are to find their images.
func (e *Engine) wantedImages() (images []string) {
	for _, w := range e.all() {
		if w.hasEnded() {
			continue
		}
		pod, _ := w.current()
		eachContainer(pod, func(_ kind, c *corev1.Container) { images = append(images, c.Image) })
		for i := range pod.Spec.Volumes {
			if v := pod.Spec.Volumes[i].Image; v != nil {
				images = append(images, v.Reference)
			}
		}
	}
	return images
}

// sandboxImage is the image of sandboxes, as far as the runtime reports it: that of
// containerd before 1.7, which does not say that it is pinned.
func (e *Engine) sandboxImage(ctx context.Context) (string, error) {
	answer, err := e.cfg.Runtime.Status(ctx, true)
	if err != nil {
		return "", err
	}
	var config struct {
		SandboxImage *string `json:"sandboxImage"`
	}
	_ = json.Unmarshal([]byte(answer.GetInfo()["config"]), &config) // another runtime has another form
	return ptr.Deref(config.SandboxImage, ""), nil
}
