package podenv

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubectl/pkg/util/fieldpath"
	"k8s.io/kubectl/pkg/util/resource"
)

// kubectl describe shows these values with its own code, which is the kubelet's.

func FuzzMetadataIsAsKubectlShowsIt(f *testing.F) {
	for _, path := range []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations",
		"metadata.labels['app']", "metadata.labels['example.com/App']", "metadata.labels['']", "metadata.labels['a b']",
		"metadata.annotations['Example.com/Key']", "metadata.annotations['a[b]c']", "metadata.annotations['no/such/key']",
		"metadata.name['x']", "['x']", "']", "metadata.labels['x", "metadata.labelsx']", "metadata.labels['a']['b']",
		"metadata.generation", "metadata", "",
	} {
		f.Add(path, "app", "q\"uote\n\t\xff")
		f.Add(path, "example.com/App", "")
		f.Add(path, "Example.com/Key", "value")
	}
	f.Fuzz(func(t *testing.T, path, key, value string) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "p", Namespace: "ns", UID: "uid-1",
			Labels:      map[string]string{"b": "2", key: value, "a": "1"},
			Annotations: map[string]string{key: value},
		}}
		want, wantErr := fieldpath.ExtractFieldPathAsString(pod, path)
		got, err := metadata(pod, path)
		if got != want || (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
			t.Errorf("%q is %q (%v), want %q (%v)", path, got, err, want, wantErr)
		}
	})
}

func FuzzResourcesAreAsKubectlShowsThem(f *testing.F) {
	for _, of := range []string{
		"limits.cpu", "requests.cpu", "limits.memory", "requests.memory", "limits.ephemeral-storage", "requests.ephemeral-storage",
		"limits.hugepages-2Mi", "requests.hugepages-1Gi", "limits.hugepages", "limits.nvidia.com/gpu", "limits", "limits.", "cpu", "",
		"claims.cpu", "limits.limits.cpu",
	} {
		for _, amount := range []string{"0", "1", "1500m", "1m", "3Gi", "1.5", "9E", "100n"} {
			for _, divisor := range []string{"0", "1", "1m", "1Mi", "3", "1k", "1n"} {
				f.Add(of, amount, divisor)
			}
		}
	}
	f.Fuzz(func(t *testing.T, of, amount, divisor string) {
		quantity, err := apiresource.ParseQuantity(amount)
		if err != nil {
			return
		}
		units, err := apiresource.ParseQuantity(divisor)
		if err != nil {
			return
		}
		list := corev1.ResourceList{}
		for _, name := range []corev1.ResourceName{"cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "hugepages-1Gi", "nvidia.com/gpu"} {
			list[name] = quantity.DeepCopy()
		}
		for _, resources := range []corev1.ResourceRequirements{{Limits: list}, {Requests: list}, {}} {
			ref := &corev1.ResourceFieldSelector{Resource: of, Divisor: units}
			want, wantErr := resource.ExtractContainerResourceValue(ref, &corev1.Container{Resources: resources})
			got, err := inUnits(ref, resources)
			if got != want || (err == nil) != (wantErr == nil) {
				t.Errorf("%q of %s in units of %s is %q (%v), want %q (%v)", of, amount, divisor, got, err, want, wantErr)
			}
		}
	})
}
