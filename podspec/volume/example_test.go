package volume_test

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// objects is where ConfigMaps and Secrets come from; a provider has a
// node.ObjectSource.
type objects struct{}

func (objects) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	return &corev1.ConfigMap{Data: map[string]string{"motd": "hello from " + name}}, nil
}

func (objects) Secret(context.Context, string, string) (*corev1.Secret, error) {
	return &corev1.Secret{Data: map[string][]byte{"password": []byte("secret")}}, nil
}

// A backend that takes files rather than directories asks for the contents.
func ExampleSources_Contents() {
	pod := &corev1.Pod{}
	pod.Namespace = "default"
	mode := int32(0o400)
	v := &corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "web"}}},
			{Secret: &corev1.SecretProjection{Items: []corev1.KeyToPath{{Key: "password", Path: "db/password", Mode: &mode}}}},
		},
	}}}
	files, _, err := volume.Sources{Objects: objects{}}.Contents(context.Background(), pod, v)
	if err != nil {
		fmt.Println(err)
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		fmt.Println(files[path].Mode, path, string(files[path].Data))
	}
	// Output:
	// -r-------- db/password secret
	// -rw-r--r-- motd hello from web
}

// What a node cannot do is reported before anything is created.
func ExampleCheck() {
	pod := &corev1.Pod{}
	pod.Spec.Volumes = []corev1.Volume{{Name: "share"}}
	pod.Spec.Volumes[0].NFS = &corev1.NFSVolumeSource{}
	fmt.Println(volume.Check(pod, volume.Support{HostPath: true}))
	// Output: ProviderNotSupported: volume share of kind nfs
}
