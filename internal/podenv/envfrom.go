package podenv

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// envFrom defines the variables of one source of a container's envFrom, unless it is to
// be kept: the container started with it, and it is gone.
func (r *resolver) envFrom(env *environment, from *corev1.EnvFromSource) (defined bool) {
	defined = true
	if ref := from.ConfigMapRef; ref != nil {
		if cm, ok := r.configMap(ref.Name, ref.Optional); ok {
			setAll(r, env, configMapKind, ref.Name, from.Prefix, cm.Data)
		} else if r.started && !isTrue(ref.Optional) {
			defined = false
		}
	}
	if ref := from.SecretRef; ref != nil {
		if s, ok := r.secret(ref.Name, ref.Optional); ok {
			setAll(r, env, secretKind, ref.Name, from.Prefix, s.Data)
		} else if r.started && !isTrue(ref.Optional) {
			defined = false
		}
	}
	return defined
}

// setAll defines a variable for each key of an object, in the order of the
// keys. Those that cannot be the name of a variable are left out and reported.
// The rule is that of Kubernetes 1.34 and later: any printable ASCII but '='.
func setAll[V ~string | ~[]byte](r *resolver, env *environment, k kind, object, prefix string, data map[string]V) {
	var invalid []string
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if name := prefix + key; len(validation.IsRelaxedEnvVarName(name)) > 0 {
			invalid = append(invalid, name)
		} else {
			env.set(corev1.EnvVar{Name: name, Value: string(data[key])})
		}
	}
	if len(invalid) == 0 {
		return
	}
	r.report(Problem{
		Reason: ReasonInvalidEnvironmentVariableNames,
		Message: fmt.Sprintf("keys [%s] of %s %q were skipped: they are no valid names of environment variables",
			strings.Join(invalid, ", "), k.text, r.pod.Namespace+"/"+object),
		Object: Object{k.name, r.pod.Namespace, object},
	}, nil)
}
