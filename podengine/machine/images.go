package machine

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podengine"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/image"
)

// ImageConfig is what the configuration files of providers with images have in
// common, under a kubelet's names and with its defaults.
type ImageConfig struct {
	// ImageGCHighThresholdPercent of the images' disk in use has unused images
	// removed, down to ImageGCLowThresholdPercent. Both are 1 to 100. Default 85
	// and 80; with 100 none is removed for want of room.
	ImageGCHighThresholdPercent *int `json:"imageGCHighThresholdPercent,omitempty"`
	ImageGCLowThresholdPercent  *int `json:"imageGCLowThresholdPercent,omitempty"`
	// ImageMinimumGCAge is how long ago an image must have been seen first to be
	// removed. Default 2m, also if it is 0.
	ImageMinimumGCAge metav1.Duration `json:"imageMinimumGCAge,omitempty"`
	// ImageMaximumGCAge is how long an image may be unused, however much room
	// there is. Default 0, which is for ever.
	ImageMaximumGCAge metav1.Duration `json:"imageMaximumGCAge,omitempty"`
	// SerializeImagePulls has images pulled one at a time. Default true, unless
	// MaxParallelImagePulls is more than 1.
	SerializeImagePulls *bool `json:"serializeImagePulls,omitempty"`
	// MaxParallelImagePulls is how many images are pulled at once. Default 1, and
	// no limit if SerializeImagePulls is false.
	MaxParallelImagePulls *int `json:"maxParallelImagePulls,omitempty"`
	// ImagePullCredentialsVerificationPolicy says of which images that are there a pod
	// must have the credentials to pull them: NeverVerify, NeverVerifyPreloadedImages
	// (those that this node did not pull are free), NeverVerifyAllowlistedImages (those
	// of PreloadedImagesVerificationAllowlist are, as REGISTRY/PATH or REGISTRY/PATH/*)
	// or AlwaysVerify. Default NeverVerifyPreloadedImages.
	ImagePullCredentialsVerificationPolicy image.Verification `json:"imagePullCredentialsVerificationPolicy,omitempty"`
	PreloadedImagesVerificationAllowlist   []string           `json:"preloadedImagesVerificationAllowlist,omitempty"`
}

const (
	defaultHighThreshold = 85
	defaultLowThreshold  = 80
	defaultMinimumAge    = 2 * time.Minute
	noHighThreshold      = 100
)

// Validate returns an error of class InvalidInput for a value that is none, or
// for values that contradict each other.
func (cfg *ImageConfig) Validate() error {
	for name, percent := range map[string]*int{
		"imageGCHighThresholdPercent": cfg.ImageGCHighThresholdPercent,
		"imageGCLowThresholdPercent":  cfg.ImageGCLowThresholdPercent,
	} {
		if percent != nil && (*percent < 1 || *percent > 100) {
			return errdefs.InvalidInputf("%s is %d: give 1 to 100", name, *percent)
		}
	}
	gc := cfg.gc()
	if gc.LowThresholdPercent >= gc.HighThresholdPercent {
		return errdefs.InvalidInputf("imageGCLowThresholdPercent is %d, and imageGCHighThresholdPercent %d: the low one must be less", gc.LowThresholdPercent, gc.HighThresholdPercent)
	}
	if gc.MinAge < 0 || gc.MaxAge < 0 {
		return errdefs.InvalidInputf("imageMinimumGCAge is %v, and imageMaximumGCAge %v: they must not be negative", gc.MinAge, gc.MaxAge)
	}
	if gc.MaxAge > 0 && gc.MaxAge <= gc.MinAge {
		return errdefs.InvalidInputf("imageMaximumGCAge is %v, and imageMinimumGCAge %v: the maximum must be more", gc.MaxAge, gc.MinAge)
	}
	switch v := cfg.ImagePullCredentialsVerificationPolicy; v {
	case "", image.NeverVerify, image.NeverVerifyPreloadedImages, image.AlwaysVerify, image.NeverVerifyAllowlistedImages:
		if len(cfg.PreloadedImagesVerificationAllowlist) > 0 && v != image.NeverVerifyAllowlistedImages {
			return errdefs.InvalidInputf("preloadedImagesVerificationAllowlist is for imagePullCredentialsVerificationPolicy %s only", image.NeverVerifyAllowlistedImages)
		}
	default:
		return errdefs.InvalidInputf("imagePullCredentialsVerificationPolicy is %q: give NeverVerify, NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages or AlwaysVerify", v)
	}
	switch parallel := cfg.MaxParallelImagePulls; {
	case parallel == nil:
	case *parallel < 1:
		return errdefs.InvalidInputf("maxParallelImagePulls is %d: give 1 or more", *parallel)
	case *parallel > 1 && ptr.Deref(cfg.SerializeImagePulls, false):
		return errdefs.InvalidInputf("maxParallelImagePulls is %d, which serializeImagePulls forbids: set that to false", *parallel)
	}
	return nil
}

// gc is the configuration of the removal of images, complete.
func (cfg *ImageConfig) gc() podengine.ImageGC {
	gc := podengine.ImageGC{
		HighThresholdPercent: ptr.Deref(cfg.ImageGCHighThresholdPercent, defaultHighThreshold),
		LowThresholdPercent:  ptr.Deref(cfg.ImageGCLowThresholdPercent, defaultLowThreshold),
		MinAge:               cmp.Or(cfg.ImageMinimumGCAge.Duration, defaultMinimumAge),
		MaxAge:               cfg.ImageMaximumGCAge.Duration,
	}
	gc.Off = gc.HighThresholdPercent == noHighThreshold && gc.MaxAge == 0
	return gc
}

// parallelPulls is how many images are pulled at once, as the engine counts:
// without a limit if it is negative.
func (cfg *ImageConfig) parallelPulls() int {
	switch {
	case cfg.MaxParallelImagePulls != nil:
		return *cfg.MaxParallelImagePulls
	case ptr.Deref(cfg.SerializeImagePulls, true):
		return 1
	default:
		return -1
	}
}
