package services

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	discoveryv1ac "k8s.io/client-go/applyconfigurations/discovery/v1"
)

// isServiceUpToDate reports whether a remote Service has all that is wanted.
func isServiceUpToDate(found *corev1.Service, wanted *corev1ac.ServiceApplyConfiguration) bool {
	var w corev1.Service
	if !decode(wanted, &w) || !isMetadataUpToDate(found, &w) {
		return false
	}
	f, s := &found.Spec, &w.Spec
	return f.Type == s.Type && f.ExternalName == s.ExternalName && f.PublishNotReadyAddresses == s.PublishNotReadyAddresses &&
		(s.SessionAffinity == "" || f.SessionAffinity == s.SessionAffinity) && equality.Semantic.DeepEqual(f.Ports, s.Ports)
}

// isSliceUpToDate reports whether a remote EndpointSlice has all that is wanted.
func isSliceUpToDate(found *discoveryv1.EndpointSlice, wanted *discoveryv1ac.EndpointSliceApplyConfiguration) bool {
	var w discoveryv1.EndpointSlice
	return decode(wanted, &w) && isMetadataUpToDate(found, &w) && found.AddressType == w.AddressType &&
		equality.Semantic.DeepEqual(found.Ports, w.Ports) && equality.Semantic.DeepEqual(found.Endpoints, w.Endpoints)
}

func isMetadataUpToDate(found, wanted metav1.Object) bool {
	return containsAll(found.GetLabels(), wanted.GetLabels()) && containsAll(found.GetAnnotations(), wanted.GetAnnotations())
}

func containsAll(all, some map[string]string) bool {
	for name, value := range some {
		if all[name] != value {
			return false
		}
	}
	return true
}

// decode converts an apply configuration to an object.
func decode(wanted, into any) bool {
	text, err := json.Marshal(wanted)
	return err == nil && json.Unmarshal(text, into) == nil
}
