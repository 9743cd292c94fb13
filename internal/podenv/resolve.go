package podenv

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// resolver is one run of Resolve.
type resolver struct {
	pod  *corev1.Pod
	src  Source
	opts Options

	started bool // the container that is being resolved runs already

	configMaps map[string]read[*corev1.ConfigMap]
	secrets    map[string]read[*corev1.Secret]

	reported map[Problem]bool
	problems []Problem
	fatal    *fatalError
}

// Resolve fills in env, command and args of all containers (init, regular and
// ephemeral) of pod, in place. Afterwards EnvFrom is empty, and each variable
// has a plain value and occurs once, in the order of definition: service
// variables, envFrom, env.
//
// Two kinds of variables keep their ValueFrom, and have no value: those that
// are not known before the pod runs (status.podIP), for the provider to fill
// in, and those of sources that are no business of the API (fileKeyRef, unless
// Options.File reads them). References to them stay as they are.
//
// The error is non-nil if at least one problem is fatal; it names all that are,
// and the pod is then not fit to be created.
func Resolve(pod *corev1.Pod, src Source, opts Options) ([]Problem, error) {
	opts.MasterServiceNamespace = cmp.Or(opts.MasterServiceNamespace, metav1.NamespaceDefault)
	r := &resolver{
		pod: pod, src: src, opts: opts,
		configMaps: map[string]read[*corev1.ConfigMap]{},
		secrets:    map[string]read[*corev1.Secret]{},
		reported:   map[Problem]bool{},
	}
	services := r.serviceVariables()
	for i := range pod.Spec.InitContainers {
		r.container(&pod.Spec.InitContainers[i], services)
	}
	for i := range pod.Spec.Containers {
		r.container(&pod.Spec.Containers[i], services)
	}
	for i := range pod.Spec.EphemeralContainers {
		r.container((*corev1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon), services)
	}
	if r.fatal != nil {
		return r.problems, r.fatal
	}
	return r.problems, nil
}

func (r *resolver) container(c *corev1.Container, services []corev1.EnvVar) {
	r.started = r.opts.Started != nil && r.opts.Started(c.Name)
	env := newEnvironment(len(services) + len(c.Env))
	for _, v := range services {
		env.set(v)
	}
	var kept []corev1.EnvFromSource
	for i := range c.EnvFrom {
		if !r.envFrom(env, &c.EnvFrom[i]) {
			kept = append(kept, c.EnvFrom[i])
		}
	}
	for i := range c.Env {
		r.env(env, c, &c.Env[i])
	}
	c.Env = env.list()
	c.EnvFrom = kept
	expandAll(c.Command, env)
	expandAll(c.Args, env)
}

// env defines one variable of a container's env.
func (r *resolver) env(env *environment, c *corev1.Container, v *corev1.EnvVar) {
	from := v.ValueFrom
	if from == nil || v.Value != "" {
		env.set(corev1.EnvVar{Name: v.Name, Value: expand(v.Value, env.lookup)})
		return
	}
	switch {
	case from.FieldRef != nil:
		value, known, err := r.field(from.FieldRef.FieldPath)
		if err != nil {
			r.invalidSource(c.Name, v.Name, err)
		} else if known {
			env.set(corev1.EnvVar{Name: v.Name, Value: value})
		} else {
			env.set(*v)
		}
	case from.ResourceFieldRef != nil:
		value, err := r.resource(c, from.ResourceFieldRef)
		if err != nil {
			r.invalidSource(c.Name, v.Name, err)
			return
		}
		env.set(corev1.EnvVar{Name: v.Name, Value: value})
	case from.ConfigMapKeyRef != nil:
		if value, ok := r.configMapKey(from.ConfigMapKeyRef); ok {
			env.set(corev1.EnvVar{Name: v.Name, Value: value})
		} else if r.started && !isTrue(from.ConfigMapKeyRef.Optional) {
			env.set(*v)
		}
	case from.SecretKeyRef != nil:
		if value, ok := r.secretKey(from.SecretKeyRef); ok {
			env.set(corev1.EnvVar{Name: v.Name, Value: value})
		} else if r.started && !isTrue(from.SecretKeyRef.Optional) {
			env.set(*v)
		}
	case from.FileKeyRef != nil && r.opts.File != nil:
		value, ok, err := r.fileKey(from.FileKeyRef)
		if err != nil {
			r.invalidSource(c.Name, v.Name, err)
		} else if ok {
			env.set(corev1.EnvVar{Name: v.Name, Value: value})
		}
	default:
		env.set(*v)
	}
}

// fileKey reads a key of a file in a volume of the pod. It is false of one that
// need not be there and is not.
func (r *resolver) fileKey(ref *corev1.FileKeySelector) (string, bool, error) {
	text, err := r.opts.File(ref.VolumeName, ref.Path)
	var value string
	var found bool
	if err == nil {
		value, found, err = FileValue(string(text), ref.Key)
	}
	optional := ref.Optional != nil && *ref.Optional
	switch {
	case errors.Is(err, fs.ErrNotExist) && optional:
		return "", false, nil
	case err != nil:
		return "", false, fmt.Errorf("file %q of volume %q: %w", ref.Path, ref.VolumeName, err)
	case !found && !optional:
		return "", false, fmt.Errorf("environment variable key %q not found in file %q of volume %q", ref.Key, ref.Path, ref.VolumeName)
	}
	return value, found, nil
}

func expandAll(list []string, env *environment) {
	for i := range list {
		list[i] = expand(list[i], env.lookup)
	}
}
