package vkubelet

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

func TestResourceManager(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "thing", Labels: map[string]string{}}
	core := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Core().V1()
	rm, err := NewResourceManager(core.Pods().Lister(), core.Secrets().Lister(), core.ConfigMaps().Lister(), core.Services().Lister())
	if err != nil {
		t.Fatal(err)
	}
	if pods := rm.GetPods(); pods == nil || len(pods) != 0 {
		t.Errorf("pods in an empty cache: %v", pods)
	}
	if _, err := rm.GetConfigMap("thing", "ns"); !errdefs.IsNotFound(err) {
		t.Errorf("a config map that does not exist: %v", err)
	}
	if _, err := rm.GetSecret("thing", "ns"); !errdefs.IsNotFound(err) {
		t.Errorf("a secret that does not exist: %v", err)
	}
	for _, err := range []error{
		core.Pods().Informer().GetIndexer().Add(&corev1.Pod{ObjectMeta: meta}),
		core.Secrets().Informer().GetIndexer().Add(&corev1.Secret{ObjectMeta: meta}),
		core.ConfigMaps().Informer().GetIndexer().Add(&corev1.ConfigMap{ObjectMeta: meta}),
		core.Services().Informer().GetIndexer().Add(&corev1.Service{ObjectMeta: meta}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // what is changed in the first round must not be seen in the second
		configMap, err1 := rm.GetConfigMap("thing", "ns")
		secret, err2 := rm.GetSecret("thing", "ns")
		services, err3 := rm.ListServices()
		pods := rm.GetPods()
		if err1 != nil || err2 != nil || err3 != nil || len(services) != 1 || len(pods) != 1 {
			t.Fatal(err1, err2, err3, services, pods)
		}
		for _, obj := range []metav1.Object{configMap, secret, services[0], pods[0]} {
			if len(obj.GetLabels()) != 0 {
				t.Errorf("%T is not a copy", obj)
			}
			obj.GetLabels()["mine"] = "now"
		}
	}
}

func TestNewResourceManagerRefusesNil(t *testing.T) {
	core := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Core().V1()
	pods, secrets, configMaps, services := core.Pods(), core.Secrets(), core.ConfigMaps(), core.Services()
	var errs []error
	add := func(_ *ResourceManager, err error) { errs = append(errs, err) }
	add(NewResourceManager(nil, secrets.Lister(), configMaps.Lister(), services.Lister()))
	add(NewResourceManager(pods.Lister(), nil, configMaps.Lister(), services.Lister()))
	add(NewResourceManager(pods.Lister(), secrets.Lister(), nil, services.Lister()))
	add(NewResourceManager(pods.Lister(), secrets.Lister(), configMaps.Lister(), nil))
	add(NewResourceManagerFromInformers(nil, secrets, configMaps, services))
	add(NewResourceManagerFromInformers(pods, nil, configMaps, services))
	add(NewResourceManagerFromInformers(pods, secrets, nil, services))
	add(NewResourceManagerFromInformers(pods, secrets, configMaps, nil))
	for i, err := range errs {
		if !errdefs.IsInvalidInput(err) {
			t.Errorf("case %d: %v", i, err)
		}
	}
}
