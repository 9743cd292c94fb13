package podenv

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// read is what came of reading an object, kept so that each is read once.
type read[T any] struct {
	object T
	found  bool
	err    error
}

// kind is how problems speak of ConfigMaps and Secrets.
type kind struct {
	name, text string

	optionalNotFound, optionalKeyNotFound, failedToReadOptional    string
	mandatoryNotFound, mandatoryKeyNotFound, failedToReadMandatory string
}

var (
	configMapKind = kind{
		"ConfigMap", "configmap",
		ReasonOptionalConfigMapNotFound, ReasonOptionalConfigMapKeyNotFound, ReasonFailedToReadOptionalConfigMap,
		ReasonMandatoryConfigMapNotFound, ReasonMandatoryConfigMapKeyNotFound, ReasonFailedToReadMandatoryConfigMap,
	}
	secretKind = kind{
		"Secret", "secret",
		ReasonOptionalSecretNotFound, ReasonOptionalSecretKeyNotFound, ReasonFailedToReadOptionalSecret,
		ReasonMandatorySecretNotFound, ReasonMandatorySecretKeyNotFound, ReasonFailedToReadMandatorySecret,
	}
)

// configMap returns the named ConfigMap. If there is none it has reported why.
func (r *resolver) configMap(name string, optional *bool) (*corev1.ConfigMap, bool) {
	got, ok := r.configMaps[name]
	if !ok {
		cm, err := r.src.ConfigMap(r.pod.Namespace, name)
		got = read[*corev1.ConfigMap]{cm, cm != nil && err == nil, err}
		r.configMaps[name] = got
	}
	if !got.found {
		r.missing(configMapKind, name, isTrue(optional), got.err)
	}
	return got.object, got.found
}

// secret returns the named Secret. If there is none it has reported why.
func (r *resolver) secret(name string, optional *bool) (*corev1.Secret, bool) {
	got, ok := r.secrets[name]
	if !ok {
		s, err := r.src.Secret(r.pod.Namespace, name)
		got = read[*corev1.Secret]{s, s != nil && err == nil, err}
		r.secrets[name] = got
	}
	if !got.found {
		r.missing(secretKind, name, isTrue(optional), got.err)
	}
	return got.object, got.found
}

func (r *resolver) configMapKey(ref *corev1.ConfigMapKeySelector) (string, bool) {
	cm, ok := r.configMap(ref.Name, ref.Optional)
	if !ok {
		return "", false
	}
	value, ok := cm.Data[ref.Key]
	if !ok {
		r.missingKey(configMapKind, ref.Name, ref.Key, isTrue(ref.Optional))
	}
	return value, ok
}

func (r *resolver) secretKey(ref *corev1.SecretKeySelector) (string, bool) {
	s, ok := r.secret(ref.Name, ref.Optional)
	if !ok {
		return "", false
	}
	value, ok := s.Data[ref.Key]
	if !ok {
		r.missingKey(secretKind, ref.Name, ref.Key, isTrue(ref.Optional))
	}
	return string(value), ok
}

// missing reports why an object could not be read. An optional one is left out only
// if it does not exist: as long as that is not known the pod waits, since it would
// otherwise run for ever without what is there.
func (r *resolver) missing(k kind, name string, optional bool, err error) {
	p := Problem{Fatal: true, Object: Object{k.name, r.pod.Namespace, name}}
	if err == nil || errdefs.IsNotFound(err) {
		p.Fatal = !optional && !r.started
		p.Reason = pick(optional, k.optionalNotFound, k.mandatoryNotFound)
		p.Message = fmt.Sprintf("%s %q not found", k.text, name)
		r.report(p, nil)
		return
	}
	p.Reason = pick(optional, k.failedToReadOptional, k.failedToReadMandatory)
	p.Message = fmt.Sprintf("failed to read %s %q: %v", k.text, r.pod.Namespace+"/"+name, err)
	r.report(p, err)
}

func (r *resolver) missingKey(k kind, name, key string, optional bool) {
	r.report(Problem{
		Reason:  pick(optional, k.optionalKeyNotFound, k.mandatoryKeyNotFound),
		Message: fmt.Sprintf("key %q not found in %s %q", key, k.text, r.pod.Namespace+"/"+name),
		Fatal:   !optional && !r.started,
		Object:  Object{k.name, r.pod.Namespace, name},
	}, nil)
}

func pick(optional bool, ifOptional, ifMandatory string) string {
	if optional {
		return ifOptional
	}
	return ifMandatory
}

func isTrue(b *bool) bool { return b != nil && *b }
