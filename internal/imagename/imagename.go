// Package imagename compares the names of images.
package imagename

import "github.com/distribution/reference"

// Normalized is how runtimes and services name an image, so that names can be compared: with its registry, and
// by its digest if it has one, or else by its tag. What is no name stays as it is.
func Normalized(image string) string {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return image
	}
	if digested, ok := named.(reference.Digested); ok {
		return named.Name() + "@" + digested.Digest().String()
	}
	return reference.TagNameOnly(named).String()
}
