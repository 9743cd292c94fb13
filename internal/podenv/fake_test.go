package podenv_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// fake is a Source that records what it was asked for.
type fake struct {
	configMaps map[string]map[string]string
	secrets    map[string]map[string]string
	services   []*corev1.Service
	errs       map[string]error // by the same keys as asked
	asked      map[string]int
}

func (f *fake) ask(kind, namespace, name string) error {
	key := kind + " " + namespace + "/" + name
	if f.asked == nil {
		f.asked = map[string]int{}
	}
	f.asked[key]++
	return f.errs[key]
}

func (f *fake) ConfigMap(namespace, name string) (*corev1.ConfigMap, error) {
	if err := f.ask("configmap", namespace, name); err != nil {
		return nil, err
	}
	data, ok := f.configMaps[namespace+"/"+name]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
	}
	return &corev1.ConfigMap{Data: data}, nil
}

func (f *fake) Secret(namespace, name string) (*corev1.Secret, error) {
	if err := f.ask("secret", namespace, name); err != nil {
		return nil, err
	}
	values, ok := f.secrets[namespace+"/"+name]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
	}
	data := map[string][]byte{}
	for k, v := range values {
		data[k] = []byte(v)
	}
	return &corev1.Secret{Data: data}, nil
}

func (f *fake) Services(namespace string) ([]*corev1.Service, error) {
	if err := f.ask("services", namespace, ""); err != nil {
		return nil, err
	}
	var list []*corev1.Service
	for _, s := range f.services {
		if s.Namespace == namespace {
			list = append(list, s)
		}
	}
	return list, nil
}

// service makes a service with ports like "80", "http:80" and "dns:53/UDP".
func service(namespace, name, ip string, ports ...string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	s.Spec.ClusterIP = ip
	for _, text := range ports {
		p := corev1.ServicePort{Protocol: corev1.ProtocolTCP}
		for i, c := range text {
			switch c {
			case ':':
				p.Name = text[:i]
				text = text[i+1:]
			}
		}
		if _, err := fmt.Sscanf(text, "%d/%s", &p.Port, &p.Protocol); err != nil && p.Port == 0 {
			panic(err)
		}
		s.Spec.Ports = append(s.Spec.Ports, p)
	}
	return s
}

func configMapRef(name string, optional ...bool) corev1.EnvFromSource {
	ref := &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}
	if len(optional) > 0 {
		ref.Optional = &optional[0]
	}
	return corev1.EnvFromSource{ConfigMapRef: ref}
}

func secretRef(name string, optional ...bool) corev1.EnvFromSource {
	ref := &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}
	if len(optional) > 0 {
		ref.Optional = &optional[0]
	}
	return corev1.EnvFromSource{SecretRef: ref}
}

func value(name, value string) corev1.EnvVar { return corev1.EnvVar{Name: name, Value: value} }

func fromConfigMap(name, object, key string, optional ...bool) corev1.EnvVar {
	ref := &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: object}, Key: key}
	if len(optional) > 0 {
		ref.Optional = &optional[0]
	}
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: ref}}
}

func fromSecret(name, object, key string, optional ...bool) corev1.EnvVar {
	ref := &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: object}, Key: key}
	if len(optional) > 0 {
		ref.Optional = &optional[0]
	}
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: ref}}
}

func fromField(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

func fromResource(name, container, resource, divisor string) corev1.EnvVar {
	ref := &corev1.ResourceFieldSelector{ContainerName: container, Resource: resource}
	if divisor != "" {
		ref.Divisor = quantity(divisor)
	}
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: ref}}
}
