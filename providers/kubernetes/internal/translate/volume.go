package translate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// unsupportedVolume returns what makes a volume impossible in a remote pod, or "".
func (o *Options) unsupportedVolume(pod *corev1.Pod, v *corev1.Volume, claims map[string]string) string {
	switch kind := volume.Kind(v); kind {
	case "persistentVolumeClaim", "ephemeral":
		if _, ok := claims[v.Name]; !ok {
			return kind + ": the provider's configuration can give it volumes of the remote cluster with storageClasses"
		}
		return ""
	case "configMap", "secret", "downwardAPI", "emptyDir", "image":
		return ""
	case "hostPath":
		if !o.AllowHostPath {
			return kind + ": the provider's configuration can allow it with allowHostPath"
		}
		return ""
	case "projected":
		for i := range v.Projected.Sources {
			s := &v.Projected.Sources[i]
			if s.ConfigMap == nil && s.Secret == nil && s.DownwardAPI == nil && s.ServiceAccountToken == nil {
				return "projected (other than configMap, secret, downwardAPI and serviceAccountToken)"
			}
			if o.withholdsToken(pod, s) && !isDefaultTokenVolume(v) {
				return "projected with a serviceAccountToken: the provider's configuration has tokens: disabled"
			}
		}
		return ""
	default:
		return kind
	}
}

// rewriteVolume replaces the names of home objects in a volume by those of remote
// objects.
func (o *Options) rewriteVolume(pod *corev1.Pod, v *corev1.Volume, claims map[string]string) {
	switch {
	case v.PersistentVolumeClaim != nil:
		v.PersistentVolumeClaim.ClaimName = claims[v.Name]
	case v.Ephemeral != nil: // its home claim belongs to the pod
		v.VolumeSource = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claims[v.Name]}}
	case v.ConfigMap != nil:
		v.ConfigMap.Name = o.ObjectName(KindConfigMap, pod.Namespace, v.ConfigMap.Name)
	case v.Secret != nil:
		v.Secret.SecretName = o.ObjectName(KindSecret, pod.Namespace, v.Secret.SecretName)
	case v.DownwardAPI != nil && o.isInMetadata(v.DownwardAPI.Items):
		useMetadata(v.DownwardAPI.Items)
	case v.DownwardAPI != nil:
		v.Secret = &corev1.SecretVolumeSource{
			SecretName:  o.FilesName(pod),
			DefaultMode: v.DownwardAPI.DefaultMode,
			Items:       downwardAPIItems(v.Name, v.DownwardAPI.Items),
		}
		v.DownwardAPI = nil
	case v.Projected != nil:
		v.Projected.Sources = slices.DeleteFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return o.withholdsToken(pod, &s) })
		for i := range v.Projected.Sources {
			o.rewriteProjection(pod, v.Name, &v.Projected.Sources[i])
		}
	}
}

func (o *Options) rewriteProjection(pod *corev1.Pod, volume string, s *corev1.VolumeProjection) {
	files := func(items []corev1.KeyToPath) *corev1.SecretProjection {
		return &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: o.FilesName(pod)}, Items: items}
	}
	switch {
	case s.ConfigMap != nil:
		if s.ConfigMap.Name == rootCA && usesRemoteAPI(pod) {
			return
		}
		s.ConfigMap.Name = o.ObjectName(KindConfigMap, pod.Namespace, s.ConfigMap.Name)
	case s.Secret != nil:
		s.Secret.Name = o.ObjectName(KindSecret, pod.Namespace, s.Secret.Name)
	case s.DownwardAPI != nil && o.isInMetadata(s.DownwardAPI.Items):
		useMetadata(s.DownwardAPI.Items)
	case s.DownwardAPI != nil:
		s.Secret, s.DownwardAPI = files(downwardAPIItems(volume, s.DownwardAPI.Items)), nil
	case s.ServiceAccountToken != nil:
		if usesRemoteAPI(pod) {
			return
		}
		path := s.ServiceAccountToken.Path
		s.Secret, s.ServiceAccountToken = files([]corev1.KeyToPath{{Key: FileKey(volume, path), Path: path}}), nil
	}
}

// withholdsToken reports whether a source is a token that is not sent to the remote
// cluster.
func (o *Options) withholdsToken(pod *corev1.Pod, s *corev1.VolumeProjection) bool {
	return o.NoTokens && s.ServiceAccountToken != nil && !usesRemoteAPI(pod)
}

// isDefaultTokenVolume reports whether a volume is the one with the service account
// token that the home cluster adds to each pod, whether or not that uses the API.
func isDefaultTokenVolume(v *corev1.Volume) bool {
	return strings.HasPrefix(v.Name, "kube-api-access-")
}

// WithoutTokens returns a volume of Files without the tokens that are not sent to the
// remote cluster, and the paths of these.
func (o *Options) WithoutTokens(pod *corev1.Pod, v corev1.Volume) (_ corev1.Volume, paths []string) {
	var sources []corev1.VolumeProjection
	for _, s := range v.Projected.Sources {
		if o.withholdsToken(pod, &s) {
			paths = append(paths, s.ServiceAccountToken.Path)
		} else {
			sources = append(sources, s)
		}
	}
	return corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources}}}, paths
}

// rootCA is the ConfigMap with the certificate authority of the API server, which each
// cluster has in each namespace.
const rootCA = "kube-root-ca.crt"

// inMetadata are the fields of a home pod that its remote pod has, as long as it lives, in
// its labels and annotations.
var inMetadata = map[string]string{
	"metadata.name":      "metadata.annotations['" + AnnotationName + "']",
	"metadata.namespace": "metadata.labels['" + LabelNamespace + "']",
	"metadata.uid":       "metadata.labels['" + LabelUID + "']",
}

// isInMetadata reports whether the remote cluster can write downward API files by itself.
func (o *Options) isInMetadata(items []corev1.DownwardAPIVolumeFile) bool {
	return !o.IsService && !slices.ContainsFunc(items, func(item corev1.DownwardAPIVolumeFile) bool {
		return item.FieldRef == nil || inMetadata[item.FieldRef.FieldPath] == ""
	})
}

func useMetadata(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		items[i].FieldRef.FieldPath = inMetadata[items[i].FieldRef.FieldPath]
	}
}

func downwardAPIItems(volume string, items []corev1.DownwardAPIVolumeFile) []corev1.KeyToPath {
	files := make([]corev1.KeyToPath, len(items))
	for i, item := range items {
		files[i] = corev1.KeyToPath{Key: FileKey(volume, item.Path), Path: item.Path, Mode: item.Mode}
	}
	return files
}

// FileKey is the key of a file of a volume in the Secret of kind KindFiles.
func FileKey(volume, path string) string { return volume + "." + hash(path) }

// FilePaths returns the paths of the files of a source of Files.
func FilePaths(s *corev1.VolumeProjection) (paths []string) {
	if s.ServiceAccountToken != nil {
		paths = append(paths, s.ServiceAccountToken.Path)
	}
	if s.DownwardAPI != nil {
		for _, item := range s.DownwardAPI.Items {
			paths = append(paths, item.Path)
		}
	}
	return paths
}

// Files returns the volumes of a pod, reduced to the sources that the Secret FilesName
// can stand for. It has the files of all of them if the remote pod refers to it: one that
// an earlier version has made does so for each.
func Files(pod *corev1.Pod) []corev1.Volume {
	var found []corev1.Volume
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		var sources []corev1.VolumeProjection
		switch {
		case v.DownwardAPI != nil:
			sources = append(sources, corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{Items: v.DownwardAPI.Items}})
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				if s.DownwardAPI != nil || s.ServiceAccountToken != nil && !usesRemoteAPI(pod) {
					sources = append(sources, s)
				}
			}
		}
		if len(sources) > 0 {
			found = append(found, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources}}})
		}
	}
	return found
}

// Object identifies a ConfigMap or Secret in the home cluster.
type Object struct{ Kind, Name string }

// Objects returns the ConfigMaps and Secrets that the remote cluster must have for a
// pod, and whether the pod cannot run without: those of volumes, and image pull
// secrets. Those of the environment are resolved at home.
func Objects(pod *corev1.Pod) map[Object]bool {
	found := map[Object]bool{}
	add := func(kind, name string, optional *bool) {
		if o := (Object{kind, name}); name != "" {
			found[o] = found[o] || !ptr.Deref(optional, false)
		}
	}
	for _, s := range pod.Spec.ImagePullSecrets {
		add(KindSecret, s.Name, nil)
	}
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.ConfigMap != nil:
			add(KindConfigMap, v.ConfigMap.Name, v.ConfigMap.Optional)
		case v.Secret != nil:
			add(KindSecret, v.Secret.SecretName, v.Secret.Optional)
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				if s.ConfigMap != nil && !(s.ConfigMap.Name == rootCA && usesRemoteAPI(pod)) {
					add(KindConfigMap, s.ConfigMap.Name, s.ConfigMap.Optional)
				}
				if s.Secret != nil {
					add(KindSecret, s.Secret.Name, s.Secret.Optional)
				}
			}
		}
	}
	return found
}
