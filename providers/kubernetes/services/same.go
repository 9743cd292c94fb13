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

// sameService tells whether a remote Service is as it should be, so that nothing need
// be written.
func sameService(found *corev1.Service, wanted *corev1ac.ServiceApplyConfiguration) bool {
	var w corev1.Service
	if !read(wanted, &w) || !sameMeta(found, &w) {
		return false
	}
	f, s := &found.Spec, &w.Spec
	return f.Type == s.Type && f.ExternalName == s.ExternalName && f.PublishNotReadyAddresses == s.PublishNotReadyAddresses &&
		(s.SessionAffinity == "" || f.SessionAffinity == s.SessionAffinity) && equality.Semantic.DeepEqual(f.Ports, s.Ports)
}

// sameSlice tells the same of an EndpointSlice.
func sameSlice(found *discoveryv1.EndpointSlice, wanted *discoveryv1ac.EndpointSliceApplyConfiguration) bool {
	var w discoveryv1.EndpointSlice
	return read(wanted, &w) && sameMeta(found, &w) && found.AddressType == w.AddressType &&
		equality.Semantic.DeepEqual(found.Ports, w.Ports) && equality.Semantic.DeepEqual(found.Endpoints, w.Endpoints)
}

func sameMeta(found, wanted metav1.Object) bool {
	return holds(found.GetLabels(), wanted.GetLabels()) && holds(found.GetAnnotations(), wanted.GetAnnotations())
}

func holds(all, some map[string]string) bool {
	for name, value := range some {
		if all[name] != value {
			return false
		}
	}
	return true
}

// read reads what an apply configuration says.
func read(wanted, into any) bool {
	text, err := json.Marshal(wanted)
	return err == nil && json.Unmarshal(text, into) == nil
}
