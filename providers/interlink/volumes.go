package interlink

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink/internal/wire"
)

// rootCA is the ConfigMap with the CA of the cluster's API server.
const rootCA = "kube-root-ca.crt"

// sentVolumes puts the contents of a pod's volumes into a request, and changes the volumes
// of the pod, which is a copy, to those that are sent. Plugins write each key of an object
// as a file, and do not look at the volume's items: so the keys are the paths. They read text
// only, except from Secrets: so contents that are no text are sent as Secrets.
type sentVolumes struct {
	config  *Config
	request *wire.Create
	// what was sent by the names of objects
	configMaps, secrets map[string]volume.Files
}

func (s *sentVolumes) add(pod *corev1.Pod, files map[string]volume.Files) {
	s.configMaps, s.secrets = map[string]volume.Files{}, map[string]volume.Files{}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		contents := files[v.Name]
		isText := !slices.ContainsFunc(slices.Collect(maps.Values(contents)), func(f volume.File) bool { return !utf8.Valid(f.Data) })
		switch {
		case !volume.HasContents(v):
		case v.Projected != nil && s.config.DisableProjectedVolumes:
		case v.Secret != nil:
			s.addSecret(v, v.Secret.SecretName, v.Secret.DefaultMode, contents)
		case v.ConfigMap != nil && isText:
			s.addConfigMap(v, contents)
		case v.ConfigMap != nil:
			s.addSecret(v, v.ConfigMap.Name, v.ConfigMap.DefaultMode, contents)
		case v.DownwardAPI != nil:
			v.VolumeSource = corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				DefaultMode: v.DownwardAPI.DefaultMode,
				Sources:     []corev1.VolumeProjection{{DownwardAPI: &corev1.DownwardAPIProjection{Items: v.DownwardAPI.Items}}},
			}}
			s.addProjected(v, contents)
		case isText:
			s.addProjected(v, contents)
		default:
			s.addSecret(v, v.Name, v.Projected.DefaultMode, contents)
		}
	}
}

func (s *sentVolumes) addConfigMap(v *corev1.Volume, contents volume.Files) {
	name, isNew := nameFor(s.configMaps, v.ConfigMap.Name, v.Name, contents)
	v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.DefaultMode = name, items(contents), modeOr(v.ConfigMap.DefaultMode)
	if isNew {
		s.request.ConfigMaps = append(s.request.ConfigMaps, s.object(name, contents))
	}
}

func (s *sentVolumes) addSecret(v *corev1.Volume, name string, mode *int32, contents volume.Files) {
	name, isNew := nameFor(s.secrets, name, v.Name, contents)
	v.VolumeSource = corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name, Items: items(contents), DefaultMode: modeOr(mode)}}
	if !isNew {
		return
	}
	secret := corev1.Secret{Data: map[string][]byte{}}
	secret.Namespace, secret.Name = s.request.Pod.Namespace, name
	for path, file := range contents {
		secret.Data[path] = file.Data
	}
	s.request.Secrets = append(s.request.Secrets, secret)
}

func (s *sentVolumes) addProjected(v *corev1.Volume, contents volume.Files) {
	v.Projected.DefaultMode = modeOr(v.Projected.DefaultMode)
	object := s.object(v.Name, contents)
	if ca := s.config.KubernetesAPICACert; ca != "" {
		for _, source := range v.Projected.Sources {
			if source.ConfigMap == nil || source.ConfigMap.Name != rootCA {
				continue
			}
			for _, item := range source.ConfigMap.Items {
				object.Data[item.Path] = ca
			}
			if len(source.ConfigMap.Items) == 0 {
				object.Data["ca.crt"] = ca
			}
		}
	}
	s.request.Projected = append(s.request.Projected, object)
}

func (s *sentVolumes) object(name string, contents volume.Files) corev1.ConfigMap {
	object := corev1.ConfigMap{Data: map[string]string{}}
	object.Namespace, object.Name = s.request.Pod.Namespace, name
	for path, file := range contents {
		object.Data[path] = string(file.Data)
	}
	return object
}

// nameFor returns the name under which contents are sent: that of the object, unless it has
// been sent with other contents, such as other items of it.
func nameFor(sent map[string]volume.Files, object, volumeName string, contents volume.Files) (name string, isNew bool) {
	name = object
	for n := 1; ; n++ {
		known, ok := sent[name]
		if !ok {
			sent[name] = contents
			return name, true
		}
		if maps.EqualFunc(known, contents, func(a, b volume.File) bool { return bytes.Equal(a.Data, b.Data) }) {
			return name, false
		}
		name = fmt.Sprintf("%s.%s.%d", object, volumeName, n)
	}
}

// items name each file by its path, with its mode, for plugins that heed them.
func items(contents volume.Files) (list []corev1.KeyToPath) {
	for _, path := range slices.Sorted(maps.Keys(contents)) {
		mode := int32(contents[path].Mode & fs.ModePerm) // #nosec G115 -- nine bits
		list = append(list, corev1.KeyToPath{Key: path, Path: path, Mode: &mode})
	}
	return list
}

// modeOr returns a mode, since plugins rely on there being one.
func modeOr(mode *int32) *int32 {
	if mode != nil {
		return mode
	}
	otherwise := corev1.ConfigMapVolumeSourceDefaultMode
	return &otherwise
}
