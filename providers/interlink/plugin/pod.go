package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink/internal/wire"
)

// uids are UIDs that may be in names of files.
var uids = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z-]{0,127}$`)

// decodeCreate reads the body of a creation: an object, or a list of one. What is in it comes
// from people who may create pods: names end up in paths, and are checked.
func decodeCreate(body []byte) (*wire.PluginCreate, error) {
	var list []wire.PluginCreate
	if json.Unmarshal(body, &list) != nil {
		var one wire.PluginCreate
		if err := json.Unmarshal(body, &one); err != nil {
			return nil, errdefs.InvalidInputf("the body is no pod, and no list of one: %w", err)
		}
		list = append(list, one)
	}
	if len(list) != 1 || list[0].Pod == nil {
		return nil, errdefs.InvalidInput("the body has to have one pod")
	}
	in := &list[0]
	if in.JobScript != "" {
		return nil, errdefs.InvalidInput("job scripts are not run: leave out JobScriptBuilderURL")
	}
	return in, checkNames(in.Pod)
}

func checkNames(pod *corev1.Pod) error {
	var wrong []error
	check := func(ok bool, what, name string) {
		if !ok {
			wrong = append(wrong, fmt.Errorf("%s %.100q is not valid", what, name))
		}
	}
	check(len(validation.IsDNS1123Label(pod.Namespace)) == 0, "namespace", pod.Namespace)
	check(len(validation.IsDNS1123Subdomain(pod.Name)) == 0, "name", pod.Name)
	check(uids.MatchString(string(pod.UID)), "UID", string(pod.UID))
	check(len(pod.Spec.Containers) > 0, "list of containers", "")
	names := map[string]bool{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		check(len(validation.IsDNS1123Label(c.Name)) == 0 && !names[c.Name], "container", c.Name)
		names[c.Name] = true
	}
	for _, name := range references(pod) { // of what has come with another pod
		check(!strings.HasPrefix(name, objectPrefix), "reference to the object", name)
	}
	names = map[string]bool{}
	for _, v := range pod.Spec.Volumes {
		check(len(validation.IsDNS1123Label(v.Name)) == 0 && !names[v.Name], "volume", v.Name)
		names[v.Name] = true
	}
	return errdefs.AsInvalidInput(errors.Join(wrong...))
}

// references returns the names of the objects that variables come from.
func references(pod *corev1.Pod) (names []string) {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, from := range c.EnvFrom {
			if from.ConfigMapRef != nil {
				names = append(names, from.ConfigMapRef.Name)
			}
			if from.SecretRef != nil {
				names = append(names, from.SecretRef.Name)
			}
		}
		for _, v := range c.Env {
			if v.ValueFrom != nil && v.ValueFrom.ConfigMapKeyRef != nil {
				names = append(names, v.ValueFrom.ConfigMapKeyRef.Name)
			}
			if v.ValueFrom != nil && v.ValueFrom.SecretKeyRef != nil {
				names = append(names, v.ValueFrom.SecretKeyRef.Name)
			}
		}
	}
	return names
}

// objectPrefix is what the names of objects begin with that have come with pods. UID and
// volume follow, neither of which has a dot.
const objectPrefix = "interlink."

// newRecord stores a new pod. A pod of its name that has another UID has to be gone.
func (s *Server) newRecord(ctx context.Context, in *wire.PluginCreate) (*record, error) {
	if other := s.cluster.named(in.Pod.Namespace, in.Pod.Name); other != nil {
		if _, err := s.podStatus(ctx, other.Pod); !errdefs.IsNotFound(err) {
			return nil, errdefs.AsConflict(fmt.Errorf("pod %s/%s runs with another UID, %s", in.Pod.Namespace, in.Pod.Name, other.Pod.UID))
		}
		if err := s.cluster.drop(other); err != nil {
			return nil, err
		}
	}
	r := &record{Pod: in.Pod.DeepCopy()}
	r.Pod.Spec.NodeName = s.opts.NodeName
	r.Pod.Status = corev1.PodStatus{Phase: corev1.PodPending}
	r.Pod.DeletionTimestamp, r.Pod.DeletionGracePeriodSeconds, r.Pod.ManagedFields = nil, nil, nil
	if r.Pod.CreationTimestamp.IsZero() {
		r.Pod.CreationTimestamp = metav1.Now()
	}
	if err := r.setVolumes(in); err != nil {
		return nil, err
	}
	return r, s.cluster.set(r)
}

// setVolumes has the volumes with contents refer to objects of the pod's own, which have
// what came with the pod: other pods may have come with other contents of the same object.
// Volumes that no container mounts have not come with any, and are dropped.
func (r *record) setVolumes(in *wire.PluginCreate) error {
	var kept []corev1.Volume
	var wrong []error
	for _, v := range r.Pod.Spec.Volumes {
		by := mounting(r.Pod, v.Name)
		if !volume.HasContents(&v) {
			kept = append(kept, v)
			continue
		}
		if by == "" {
			continue
		}
		got := wire.Container{}
		if i := slices.IndexFunc(in.Containers, func(c wire.Container) bool { return c.Name == by }); i >= 0 {
			got = in.Containers[i]
		}
		meta := metav1.ObjectMeta{Namespace: r.Pod.Namespace, Name: fmt.Sprintf("%s%s.%s", objectPrefix, r.Pod.UID, v.Name)}
		switch {
		case v.ConfigMap != nil:
			i := slices.IndexFunc(got.ConfigMaps, func(o corev1.ConfigMap) bool { return o.Name == v.ConfigMap.Name })
			if i < 0 {
				if v.ConfigMap.Optional == nil || !*v.ConfigMap.Optional {
					wrong = append(wrong, fmt.Errorf("volume %s: ConfigMap %s has not come with the pod", v.Name, v.ConfigMap.Name))
				}
				v.VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
				break
			}
			r.ConfigMaps = append(r.ConfigMaps, corev1.ConfigMap{ObjectMeta: meta, Data: got.ConfigMaps[i].Data, BinaryData: got.ConfigMaps[i].BinaryData})
			v.ConfigMap.Name = meta.Name
		case v.Secret != nil:
			i := slices.IndexFunc(got.Secrets, func(o corev1.Secret) bool { return o.Name == v.Secret.SecretName })
			if i < 0 {
				if v.Secret.Optional == nil || !*v.Secret.Optional {
					wrong = append(wrong, fmt.Errorf("volume %s: Secret %s has not come with the pod", v.Name, v.Secret.SecretName))
				}
				v.VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
				break
			}
			r.Secrets = append(r.Secrets, corev1.Secret{ObjectMeta: meta, Data: got.Secrets[i].Data, Type: corev1.SecretTypeOpaque})
			v.Secret.SecretName = meta.Name
		default: // a virtual kubelet may be configured to send none
			i := slices.IndexFunc(got.Projected, func(o corev1.ConfigMap) bool { return o.Name == v.Name })
			if i < 0 {
				v.VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
				break
			}
			r.addProjected(&v, meta, &got.Projected[i])
		}
		kept = append(kept, v)
	}
	r.Pod.Spec.Volumes = kept
	return errdefs.AsInvalidInput(errors.Join(wrong...))
}

// addProjected makes a Secret of the contents of a projected volume: there are tokens in
// them.
func (r *record) addProjected(v *corev1.Volume, meta metav1.ObjectMeta, contents *corev1.ConfigMap) {
	secret := corev1.Secret{ObjectMeta: meta, Type: corev1.SecretTypeOpaque, Data: maps.Clone(contents.BinaryData)}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	for path, text := range contents.Data {
		secret.Data[path] = []byte(text)
	}
	source := corev1.SecretVolumeSource{SecretName: meta.Name}
	modes := map[string]*int32{}
	if v.Projected != nil {
		source.DefaultMode = v.Projected.DefaultMode
		modes = projectedModes(v.Projected)
	}
	for _, path := range slices.Sorted(maps.Keys(secret.Data)) {
		source.Items = append(source.Items, corev1.KeyToPath{Key: path, Path: path, Mode: modes[path]})
	}
	v.VolumeSource = corev1.VolumeSource{Secret: &source}
	r.Secrets = append(r.Secrets, secret)
}

// projectedModes returns the modes of single files of a projected volume.
func projectedModes(p *corev1.ProjectedVolumeSource) map[string]*int32 {
	modes := map[string]*int32{}
	for _, source := range p.Sources {
		var items []corev1.KeyToPath
		switch {
		case source.ConfigMap != nil:
			items = source.ConfigMap.Items
		case source.Secret != nil:
			items = source.Secret.Items
		case source.DownwardAPI != nil:
			for _, item := range source.DownwardAPI.Items {
				modes[item.Path] = item.Mode
			}
		}
		for _, item := range items {
			modes[item.Path] = item.Mode
		}
	}
	return modes
}

// mounting returns the name of a container that mounts a volume.
func mounting(pod *corev1.Pod, volumeName string) string {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volumeName }) {
			return c.Name
		}
	}
	return ""
}
