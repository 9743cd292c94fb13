package podcgroup

import (
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// Driver is how a runtime makes control groups.
type Driver string

const (
	// Cgroupfs makes directories.
	Cgroupfs Driver = "cgroupfs"
	// Systemd makes slices and scopes.
	Systemd Driver = "systemd"
)

// Validate returns an error of class InvalidInput for a driver that is none.
func (d Driver) Validate() error {
	if d != Cgroupfs && d != Systemd {
		return errdefs.InvalidInputf("cgroupDriver: there is no driver %q: use %s or %s", string(d), Cgroupfs, Systemd)
	}
	return nil
}

const sliceSuffix = ".slice"

// name is a control group, by the names of those it is in and its own, the root
// first. None of them depends on the driver.
type name []string

// parseRoot reads a control group as an operator writes it: a path, or a slice.
func parseRoot(text string) name {
	base := path.Base(path.Clean("/" + text))
	if unit, ok := strings.CutSuffix(base, sliceSuffix); ok {
		return strings.Split(unit, "-")
	}
	return strings.FieldsFunc(text, func(r rune) bool { return r == '/' })
}

// child is a control group in this one.
func (n name) child(names ...string) name { return append(append(name{}, n...), names...) }

// of is the control group of the pods of a QoS class.
func (n name) of(class corev1.PodQOSClass) name {
	if class == corev1.PodQOSGuaranteed {
		return n
	}
	return n.child(strings.ToLower(string(class)))
}

// pod is the control group of a pod.
func (n name) pod(class corev1.PodQOSClass, uid types.UID) name {
	return n.of(class).child("pod" + string(uid))
}

// path is where a driver has the group, from the root of the hierarchy.
func (n name) path(driver Driver) string {
	if driver != Systemd {
		return "/" + path.Join(n...)
	}
	// systemd takes a - for the way from a slice to one in it.
	whole, slice := "/", ""
	for _, part := range n {
		slice = strings.TrimPrefix(slice+"-"+strings.ReplaceAll(part, "-", "_"), "-")
		whole = path.Join(whole, slice+sliceSuffix)
	}
	return whole
}
