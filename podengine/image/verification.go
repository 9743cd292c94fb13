package image

import (
	"slices"
	"strings"
)

// Verification says of which images that are on the machine a pod must prove that it
// could pull them, under a kubelet's names.
type Verification string

const (
	// NeverVerifyPreloadedImages: of those that this node has pulled. It is the
	// default.
	NeverVerifyPreloadedImages Verification = "NeverVerifyPreloadedImages"
	// NeverVerify: of none.
	NeverVerify Verification = "NeverVerify"
	// NeverVerifyAllowlistedImages: of all but those that are listed.
	NeverVerifyAllowlistedImages Verification = "NeverVerifyAllowlistedImages"
	// AlwaysVerify: of all.
	AlwaysVerify Verification = "AlwaysVerify"
)

// needed reports whether a pod has to prove that it could pull an image of a
// repository; ours is set if this node has pulled it.
func (v Verification) needed(repository string, ours bool, allowed []string) bool {
	switch v {
	case NeverVerify:
		return false
	case AlwaysVerify:
		return true
	case NeverVerifyAllowlistedImages:
		return !slices.ContainsFunc(allowed, func(pattern string) bool {
			prefix, below := strings.CutSuffix(pattern, "/*")
			return below && strings.HasPrefix(repository, prefix+"/") || pattern == repository
		})
	}
	return ours
}
