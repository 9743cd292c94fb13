package translate

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// The environment variables by which a client in a pod finds the API server.
const (
	apiServerHost = "KUBERNETES_SERVICE_HOST"
	apiServerPort = "KUBERNETES_SERVICE_PORT"
)

// moveEnvironments moves the values of environment variables from the pod spec, which
// many users may read, to the Secret EnvironmentName: some of the values come from home
// Secrets. A container whose variables are all of Services keeps them in its spec.
func (o *Options) moveEnvironments(pod *corev1.Pod, spec *corev1.PodSpec) {
	original := o.unresolved(pod)
	o.expandProbes(original, spec)
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			o.moveEnvironment(pod, &containers[i], containerOf(original, containers[i].Name))
		}
	}
}

// moveEnvironment moves the values of one container. original is the container before its
// environment was resolved, or nil if that is unknown: where it refers to variables, home
// has written their values, which may be of Secrets, into command and arguments. The remote
// kubelet expands those of original from the same variables.
func (o *Options) moveEnvironment(pod *corev1.Pod, c, original *corev1.Container) {
	variables, changed := o.variables(pod, c.Env, original)
	inSpec := valuesInSpec(variables, original, changed)
	env := c.Env[:0:0]
	for _, v := range variables {
		if text, ok := inSpec[v.Name]; ok {
			v.Value = text
		} else if v.ValueFrom == nil && v.Value != "" {
			v = corev1.EnvVar{Name: v.Name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: o.EnvironmentName(pod)},
				Key:                  variableKey(c.Name, v.Name),
			}}}
		}
		env = append(env, v)
	}
	if original != nil {
		c.Command, c.Args = slices.Clone(original.Command), slices.Clone(original.Args)
	} else {
		unresolved := unresolvedNames(c.Env)
		c.Command, c.Args = escapeAll(c.Command, unresolved), escapeAll(c.Args, unresolved)
	}
	c.Env, c.EnvFrom = env, nil
}

// Environment returns the data of the Secret EnvironmentName: the values of environment
// variables by variableKey. It has those of all containers, also if they are in the specs:
// the remote pod may be one that an earlier version has made. Those that are not certain,
// since an object is gone that the container has started with, are left out.
func (o *Options) Environment(pod *corev1.Pod) map[string][]byte {
	values := map[string][]byte{}
	original := o.unresolved(pod)
	each := func(c *corev1.Container) {
		was := containerOf(original, c.Name)
		variables, _ := o.variables(pod, c.Env, was)
		inSpec := unexpandedValues(variables, was, nil)
		for _, v := range variables {
			if _, ok := inSpec[v.Name]; !ok && v.ValueFrom == nil && v.Value != "" && isCertain(&v, c, was) {
				values[variableKey(c.Name, v.Name)] = []byte(v.Value)
			}
		}
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			each(&containers[i])
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		c := corev1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		each(&c)
	}
	return values
}

// VariableKeys returns the keys of the Secret EnvironmentName that a remote pod refers to.
func (o *Options) VariableKeys(pod, remote *corev1.Pod) (keys []string) {
	name := o.EnvironmentName(pod)
	add := func(env []corev1.EnvVar) {
		for i := range env {
			if from := env[i].ValueFrom; from != nil && from.SecretKeyRef != nil && from.SecretKeyRef.Name == name {
				keys = append(keys, from.SecretKeyRef.Key)
			}
		}
	}
	for _, containers := range [][]corev1.Container{remote.Spec.InitContainers, remote.Spec.Containers} {
		for i := range containers {
			add(containers[i].Env)
		}
	}
	for i := range remote.Spec.EphemeralContainers {
		add(remote.Spec.EphemeralContainers[i].Env)
	}
	return keys
}

// variables returns the environment variables of a container with the API server's address that it
// should see, and, as they are at home, those that this changes. original is as for moveEnvironment: the
// variables that it names are the pod's own.
func (o *Options) variables(pod *corev1.Pod, env []corev1.EnvVar, original *corev1.Container) (variables, changed []corev1.EnvVar) {
	for _, v := range env {
		atHome := v
		switch {
		case v.ValueFrom != nil, original != nil && slices.Contains(namesOf(original.Env), v.Name):
		case usesRemoteAPI(pod):
			if isOfAPIServer(v.Name) {
				changed = append(changed, v)
				continue
			}
		case v.Name == apiServerHost:
			v.Value = cmp.Or(o.APIServer.Host, v.Value)
		case (v.Name == apiServerPort || v.Name == apiServerPort+"_HTTPS") && o.APIServer.Port != 0:
			v.Value = strconv.Itoa(int(o.APIServer.Port))
		}
		if variables = append(variables, v); v.Value != atHome.Value {
			changed = append(changed, atHome)
		}
	}
	return variables, changed
}

// isOfAPIServer reports whether a variable is one of the Service "kubernetes", which each cluster has.
func isOfAPIServer(name string) bool {
	return strings.HasPrefix(name, "KUBERNETES_SERVICE_") || name == "KUBERNETES_PORT" || strings.HasPrefix(name, "KUBERNETES_PORT_")
}

// variableKey returns the Secret key of an environment variable. Names of variables may
// have characters that keys may not.
func variableKey(container, name string) string {
	if validKey.MatchString(name) && len(container)+1+len(name) <= 253 {
		return container + "." + name
	}
	return fmt.Sprintf("%s.%s", container, hash(name))
}

var validKey = regexp.MustCompile(`^[-._a-zA-Z0-9]+$`)

// ErrUnresolved is the error of containers that still refer to ConfigMaps or Secrets of
// the home cluster: the remote cluster would resolve the names in the remote namespace,
// whose objects may not be for those who may create pods at home.
var ErrUnresolved = errors.New("what its variables refer to does not exist")

// CheckResolved returns an ErrUnresolved if the environment of an init or regular
// container of a home pod is not resolved.
func CheckResolved(pod *corev1.Pod) error {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if err := checkResolved(&containers[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkResolved(c *corev1.Container) error {
	refers := func(v corev1.EnvVar) bool {
		return v.ValueFrom != nil && (v.ValueFrom.ConfigMapKeyRef != nil || v.ValueFrom.SecretKeyRef != nil)
	}
	if len(c.EnvFrom) == 0 && !slices.ContainsFunc(c.Env, refers) {
		return nil
	}
	return fmt.Errorf("container %s cannot be started in the remote cluster: %w", c.Name, ErrUnresolved)
}
