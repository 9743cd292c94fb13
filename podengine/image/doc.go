// Package image sees to it that the images of pods are there, and that those
// which nobody needs go.
//
// A Puller gets the image of a container or of an image volume by its pull
// policy, with the credentials of the pod's pull secrets, and puts off what has
// failed. A Collector removes unused images when the disk fills up. The runtime is any
// implementation of the CRI's Go interfaces.
package image
