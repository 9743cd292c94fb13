package podobjects

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
)

// The kinds of the objects.
const (
	kindConfigMap = "ConfigMap"
	kindSecret    = "Secret"
)

// References returns the ConfigMaps and Secrets that a pod names, whether or not
// it can do without them: by environment variables, volumes and image pull
// secrets.
func References(pod *corev1.Pod) map[podenv.Object]struct{} {
	r := references{namespace: pod.Namespace, found: map[podenv.Object]struct{}{}}
	for i := range pod.Spec.ImagePullSecrets {
		r.localSecret(&pod.Spec.ImagePullSecrets[i])
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			r.environment(containers[i].Env, containers[i].EnvFrom)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		r.environment(pod.Spec.EphemeralContainers[i].Env, pod.Spec.EphemeralContainers[i].EnvFrom)
	}
	for i := range pod.Spec.Volumes {
		r.volume(&pod.Spec.Volumes[i].VolumeSource)
	}
	return r.found
}

type references struct {
	namespace string
	found     map[podenv.Object]struct{}
}

func (r *references) add(kind, namespace, name string) {
	if name != "" {
		r.found[podenv.Object{Kind: kind, Namespace: namespace, Name: name}] = struct{}{}
	}
}

func (r *references) configMap(name string) { r.add(kindConfigMap, r.namespace, name) }
func (r *references) secret(name string)    { r.add(kindSecret, r.namespace, name) }

func (r *references) localSecret(ref *corev1.LocalObjectReference) {
	if ref != nil {
		r.secret(ref.Name)
	}
}

func (r *references) environment(env []corev1.EnvVar, from []corev1.EnvFromSource) {
	for i := range env {
		source := env[i].ValueFrom
		if source == nil {
			continue
		}
		if source.ConfigMapKeyRef != nil {
			r.configMap(source.ConfigMapKeyRef.Name)
		}
		if source.SecretKeyRef != nil {
			r.secret(source.SecretKeyRef.Name)
		}
	}
	for i := range from {
		if from[i].ConfigMapRef != nil {
			r.configMap(from[i].ConfigMapRef.Name)
		}
		if from[i].SecretRef != nil {
			r.secret(from[i].SecretRef.Name)
		}
	}
}

func (r *references) volume(v *corev1.VolumeSource) {
	switch {
	case v.ConfigMap != nil:
		r.configMap(v.ConfigMap.Name)
	case v.Secret != nil:
		r.secret(v.Secret.SecretName)
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			source := &v.Projected.Sources[i]
			if source.ConfigMap != nil {
				r.configMap(source.ConfigMap.Name)
			}
			if source.Secret != nil {
				r.secret(source.Secret.Name)
			}
		}
	case v.AzureFile != nil:
		r.secret(v.AzureFile.SecretName)
	case v.CSI != nil:
		r.localSecret(v.CSI.NodePublishSecretRef)
	case v.CephFS != nil:
		r.localSecret(v.CephFS.SecretRef)
	case v.Cinder != nil:
		r.localSecret(v.Cinder.SecretRef)
	case v.FlexVolume != nil:
		r.localSecret(v.FlexVolume.SecretRef)
	case v.ISCSI != nil:
		r.localSecret(v.ISCSI.SecretRef)
	case v.RBD != nil:
		r.localSecret(v.RBD.SecretRef)
	case v.ScaleIO != nil:
		r.localSecret(v.ScaleIO.SecretRef)
	case v.StorageOS != nil:
		r.localSecret(v.StorageOS.SecretRef)
	}
}
