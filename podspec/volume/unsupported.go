package volume

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// Unsupported is the error of a volume of a kind that this node cannot have. It
// is found in errors of this package with errors.As; those are permanent (see
// errdefs.IsPermanent).
type Unsupported struct {
	// Volume is the name of the volume in the pod.
	Volume string
	// Kind is the volume's kind as the API spells it, with what exactly is
	// unsupported of it where the kind as such is not.
	Kind string
}

// Error says which volume it is.
func (u Unsupported) Error() string {
	return fmt.Sprintf("ProviderNotSupported: volume %s of kind %s", u.Volume, u.Kind)
}

// Support says which volumes a node has of those that need more than a disk.
// All but these, and those of no known kind, are always there: configMap,
// secret, downwardAPI, projected and emptyDir.
type Support struct {
	// HostPath: pods may ask for paths of the host.
	HostPath bool
	// Claims: persistent volume claims are resolved, if the volume turns out
	// to be a path of the host.
	Claims bool
	// Images: the backend mounts images.
	Images bool
	// Tokens: tokens of service accounts can be requested.
	Tokens bool
}

// Check returns an error that names all volumes of pod that s does not support,
// mounted or not. It looks at nothing but the pod.
func Check(pod *corev1.Pod, s Support) error {
	var found []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		kind := s.unsupported(v)
		if kind == "" && isDevice(pod, v.Name) {
			kind = Kind(v) + " (block device)"
		}
		if kind != "" {
			found = append(found, errdefs.AsPermanent(Unsupported{v.Name, kind}))
		}
	}
	return join(found)
}

// Kind returns the kind of a volume as the API spells it, such as "configMap".
func Kind(v *corev1.Volume) string {
	return cmp.Or(sourceKind(v.VolumeSource), "emptyDir") // which is the API's default
}

// sourceKind returns the name of the field that is set in one of the API's
// unions.
func sourceKind(union any) string {
	source := reflect.ValueOf(union)
	for i := range source.NumField() {
		if !source.Field(i).IsNil() {
			name, _, _ := strings.Cut(source.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return ""
}

// unsupported returns what of v is not supported, or nothing.
func (s Support) unsupported(v *corev1.Volume) string {
	kind := Kind(v)
	switch kind {
	case "configMap", "secret", "downwardAPI":
		return ""
	case "emptyDir":
		return unsupportedMedium(v.EmptyDir)
	case "projected":
		return s.unsupportedProjection(v.Projected)
	}
	supported := map[string]bool{"hostPath": s.HostPath, "persistentVolumeClaim": s.Claims, "image": s.Images}
	if supported[kind] {
		return ""
	}
	return kind
}

func unsupportedMedium(source *corev1.EmptyDirVolumeSource) string {
	if source == nil || source.Medium == corev1.StorageMediumDefault || source.Medium == corev1.StorageMediumMemory {
		return ""
	}
	return fmt.Sprintf("emptyDir (medium %s)", source.Medium)
}

func (s Support) unsupportedProjection(source *corev1.ProjectedVolumeSource) string {
	for i := range source.Sources {
		switch p := &source.Sources[i]; {
		case p.ConfigMap != nil, p.Secret != nil, p.DownwardAPI != nil, p.ServiceAccountToken != nil && s.Tokens:
		case p.ServiceAccountToken != nil:
			return "projected (serviceAccountToken)"
		case p.ClusterTrustBundle != nil:
			return "projected (clusterTrustBundle)"
		case p.PodCertificate != nil:
			return "projected (podCertificate)"
		default:
			return "projected (a source that this version does not know)"
		}
	}
	return ""
}

// eachContainer calls f for all containers of a pod.
func eachContainer(pod *corev1.Pod, f func(c *corev1.Container)) {
	for i := range pod.Spec.InitContainers {
		f(&pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		f(&pod.Spec.Containers[i])
	}
	for i := range pod.Spec.EphemeralContainers {
		f((*corev1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
}

func isDevice(pod *corev1.Pod, volume string) (found bool) {
	eachContainer(pod, func(c *corev1.Container) {
		found = found || slices.ContainsFunc(c.VolumeDevices, func(d corev1.VolumeDevice) bool { return d.Name == volume })
	})
	return found
}

// mounted returns the volumes that some container mounts, in the pod's order. The
// others need not exist: a kubelet ignores them, too.
func mounted(pod *corev1.Pod) []*corev1.Volume {
	names := map[string]bool{}
	eachContainer(pod, func(c *corev1.Container) {
		for i := range c.VolumeMounts {
			names[c.VolumeMounts[i].Name] = true
		}
	})
	var volumes []*corev1.Volume
	for i := range pod.Spec.Volumes {
		if names[pod.Spec.Volumes[i].Name] {
			volumes = append(volumes, &pod.Spec.Volumes[i])
		}
	}
	return volumes
}
