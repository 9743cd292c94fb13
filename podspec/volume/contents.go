package volume

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
)

// Objects reads the ConfigMaps and Secrets of volumes. A node.ObjectSource is
// one. An object that does not exist is an error of class NotFound (package
// errdefs). What it returns is read only.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// Sources is where the contents of volumes come from.
type Sources struct {
	// Objects has ConfigMaps and Secrets.
	Objects Objects
	// Tokens has tokens of service accounts. Volumes with tokens are
	// unsupported without.
	Tokens *Tokens
	// NodeAllocatable are the values of limits in the downward API that neither
	// the container nor the pod sets.
	NodeAllocatable corev1.ResourceList
}

// ContentSource has what is in the volumes of pods that HasContents is true of. Sources is one.
type ContentSource interface {
	// Contents is as that of Sources. The Files are read only.
	Contents(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (files Files, renew time.Time, err error)
}

var _ ContentSource = Sources{}

// HasContents reports whether Contents knows what is in a volume: whether it is a
// configMap, secret, downwardAPI or projected one.
func HasContents(v *corev1.Volume) bool {
	return v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
}

// HasObject reports whether a volume of the pod has the contents of an object that matches: of
// kind "ConfigMap" or "Secret" and of this name, in the pod's namespace.
func HasObject(pod *corev1.Pod, is func(kind, name string) bool) bool {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		switch {
		case v.ConfigMap != nil && is("ConfigMap", v.ConfigMap.Name), v.Secret != nil && is("Secret", v.Secret.SecretName):
			return true
		case v.Projected == nil:
			continue
		}
		for _, from := range v.Projected.Sources {
			if from.ConfigMap != nil && is("ConfigMap", from.ConfigMap.Name) || from.Secret != nil && is("Secret", from.Secret.Name) {
				return true
			}
		}
	}
	return false
}

// Contents returns what is in a configMap, secret, downwardAPI or projected
// volume of pod, and when a token in it is to be renewed, if there is one: a
// call at that time returns a new one. Of files with the same path in several
// sources of a projected volume the last is there.
//
// The error names all that is wrong. It is permanent (errdefs.IsPermanent) if
// the pod's spec is at fault; otherwise trying again may help.
func (s Sources) Contents(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (files Files, renew time.Time, err error) {
	c := contents{Sources: s, pod: pod, volume: v.Name, files: Files{}}
	switch {
	case v.ConfigMap != nil:
		c.mode = v.ConfigMap.DefaultMode
		c.configMap(ctx, v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.Optional)
	case v.Secret != nil:
		c.mode = v.Secret.DefaultMode
		c.secret(ctx, v.Secret.SecretName, v.Secret.Items, v.Secret.Optional)
	case v.DownwardAPI != nil:
		c.mode = v.DownwardAPI.DefaultMode
		c.downwardAPI(v.DownwardAPI.Items)
	case v.Projected != nil:
		c.mode = v.Projected.DefaultMode
		for i := range v.Projected.Sources {
			c.projection(ctx, &v.Projected.Sources[i])
		}
	default:
		return nil, time.Time{}, fmt.Errorf("volume %q of kind %s has no contents of its own: ask HasContents first", v.Name, Kind(v))
	}
	if len(c.problems) == 0 {
		c.problem(c.files.Validate())
	}
	if err := join(c.problems); err != nil {
		return nil, c.renew, err
	}
	return c.files, c.renew, nil
}

// contents is one run of Contents.
type contents struct {
	Sources
	pod    *corev1.Pod
	volume string
	mode   *int32 // of the volume, for files that have none

	files    Files
	renew    time.Time
	problems []error
}

func (c *contents) problem(err error) {
	if err != nil {
		c.problems = append(c.problems, err)
	}
}

func (c *contents) projection(ctx context.Context, p *corev1.VolumeProjection) {
	switch {
	case p.ConfigMap != nil:
		c.configMap(ctx, p.ConfigMap.Name, p.ConfigMap.Items, p.ConfigMap.Optional)
	case p.Secret != nil:
		c.secret(ctx, p.Secret.Name, p.Secret.Items, p.Secret.Optional)
	case p.DownwardAPI != nil:
		c.downwardAPI(p.DownwardAPI.Items)
	case p.ServiceAccountToken != nil && c.Tokens != nil:
		c.token(ctx, p.ServiceAccountToken)
	default:
		one := &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{*p}}
		c.problem(errdefs.AsPermanent(Unsupported{c.volume, Support{}.unsupportedProjection(one)}))
	}
}

func (c *contents) configMap(ctx context.Context, name string, items []corev1.KeyToPath, optional *bool) {
	cm, err := c.Objects.ConfigMap(ctx, c.pod.Namespace, name)
	data := map[string][]byte{}
	if err == nil {
		for key, value := range cm.Data {
			data[key] = []byte(value)
		}
		maps.Copy(data, cm.BinaryData)
	}
	c.object(object{"configmap", "config", name, data, err}, items, optional)
}

func (c *contents) secret(ctx context.Context, name string, items []corev1.KeyToPath, optional *bool) {
	s, err := c.Objects.Secret(ctx, c.pod.Namespace, name)
	var data map[string][]byte
	if err == nil {
		data = s.Data
	}
	c.object(object{"secret", "secret", name, data, err}, items, optional)
}

// object is a ConfigMap or Secret, or why there is none.
type object struct {
	kind, keys string // what problems call it and its keys
	name       string
	data       map[string][]byte
	err        error
}

func (c *contents) object(o object, items []corev1.KeyToPath, optional *bool) {
	isOptional := optional != nil && *optional
	switch {
	case errdefs.IsNotFound(o.err):
		if !isOptional {
			c.problem(fmt.Errorf("%s %q not found", o.kind, o.name))
		}
		return
	case o.err != nil:
		c.problem(fmt.Errorf("failed to read %s %q: %w", o.kind, c.pod.Namespace+"/"+o.name, o.err))
		return
	}
	if len(items) == 0 {
		for _, key := range slices.Sorted(maps.Keys(o.data)) {
			c.put(key, o.data[key], modeOf(c.mode))
		}
	}
	for _, item := range items {
		data, ok := o.data[item.Key]
		if ok {
			c.put(item.Path, data, modeOf(item.Mode, c.mode))
		} else if !isOptional {
			c.problem(fmt.Errorf("references non-existent %s key: %s", o.keys, item.Key))
		}
	}
}

func (c *contents) put(path string, data []byte, mode fs.FileMode) {
	c.problem(c.files.put(path, File{Data: data, Mode: mode}))
}

func (c *contents) downwardAPI(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		value, err := c.downwardValue(&items[i])
		if err != nil {
			c.problem(err)
			continue
		}
		c.put(items[i].Path, []byte(value), modeOf(items[i].Mode, c.mode))
	}
}

func (c *contents) downwardValue(item *corev1.DownwardAPIVolumeFile) (string, error) {
	opts := podenv.Options{NodeAllocatable: c.NodeAllocatable}
	switch {
	case item.FieldRef != nil:
		value, known, err := podenv.Field(c.pod, item.FieldRef.FieldPath, opts)
		if err != nil {
			return "", errdefs.AsPermanent(err)
		}
		if !known {
			return "", fmt.Errorf("field %q is not known yet", item.FieldRef.FieldPath)
		}
		return value, nil
	case item.ResourceFieldRef != nil:
		value, err := podenv.Resource(c.pod, item.ResourceFieldRef, opts)
		return value, errdefs.AsPermanent(err)
	}
	return "", permanentf("%q has neither a fieldRef nor a resourceFieldRef", item.Path)
}
