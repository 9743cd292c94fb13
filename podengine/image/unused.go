package image

import (
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/imagename"
)

// seen is when an image was first seen, and last seen in use. Of one that was
// never in use both are the same.
type seen struct{ first, used time.Time }

// observe returns what is known of images after a look at them. Those that have
// gone are forgotten.
func observe(before map[string]seen, images []*runtimeapi.Image, used map[string]bool, now time.Time) map[string]seen {
	after := make(map[string]seen, len(images))
	for _, image := range images {
		s, known := before[image.Id]
		if !known {
			s = seen{first: now, used: now}
		}
		if isUsed(image, used) {
			s.used = now
		}
		after[image.Id] = s
	}
	return after
}

// isUsed reports whether an image is one of those in use, by any of its names.
func isUsed(image *runtimeapi.Image, used map[string]bool) bool {
	return used[image.Id] || slices.ContainsFunc(slices.Concat(image.RepoTags, image.RepoDigests), func(name string) bool {
		return used[name] || used[imagename.Normalized(name)]
	})
}

// policy is which images may go. The zero maxAge means that none is too old.
type policy struct{ minAge, maxAge time.Duration }

// candidates returns the images that may be removed, the longest unused first.
// Those in use, pinned ones, and those younger than the minimum age stay.
func (p policy) candidates(images []*runtimeapi.Image, used map[string]bool, known map[string]seen, now time.Time) []*runtimeapi.Image {
	free := slices.DeleteFunc(slices.Clone(images), func(image *runtimeapi.Image) bool {
		return image.Pinned || isUsed(image, used) || now.Sub(known[image.Id].first) < p.minAge
	})
	slices.SortStableFunc(free, func(a, b *runtimeapi.Image) int {
		if byUse := known[a.Id].used.Compare(known[b.Id].used); byUse != 0 {
			return byUse
		}
		return known[a.Id].first.Compare(known[b.Id].first)
	})
	return free
}

// expired reports whether an image was unused for longer than it may be.
func (p policy) expired(s seen, now time.Time) bool {
	return p.maxAge > 0 && now.Sub(s.used) > p.maxAge
}

// usage is how full a file system is, in bytes.
type usage struct{ capacity, available uint64 }

// excess returns how many bytes are to be freed to come down to the low
// percentage: none as long as less than the high one is in use.
func (u usage) excess(high, low int) uint64 {
	available := min(u.available, u.capacity)
	if u.capacity == 0 || float64(u.capacity-available) < float64(u.capacity)*float64(high)/100 {
		return 0
	}
	wanted := uint64(float64(u.capacity) * float64(100-low) / 100)
	return max(wanted, available) - available
}
