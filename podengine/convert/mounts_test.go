package convert

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestMounts(t *testing.T) {
	image := &runtimeapi.ImageSpec{Image: "sha256:abc"}
	const mapped = `, "uidMappings": [{"hostId": 65536, "length": 65536}], "gidMappings": [{"hostId": 131072, "length": 65536}]`
	for _, test := range []struct {
		what      string
		mount     Mount
		hostUsers *bool
		want      string
	}{
		{"plain", Mount{ContainerPath: "/c", HostPath: "/h"}, nil, `{"containerPath": "/c", "hostPath": "/h"}`},
		{"read-only", Mount{HostPath: "/h", ReadOnly: true}, nil, `{"hostPath": "/h", "readonly": true}`},
		{"recursively (KEP-3857)", Mount{HostPath: "/h", ReadOnly: true, RecursiveReadOnly: true}, nil,
			`{"hostPath": "/h", "readonly": true, "recursiveReadOnly": true}`},
		{"relabelled", Mount{HostPath: "/h", SELinuxRelabel: true}, nil, `{"hostPath": "/h", "selinuxRelabel": true}`},
		{"None", Mount{HostPath: "/h", Propagation: new(corev1.MountPropagationNone)}, nil, `{"hostPath": "/h"}`},
		{"HostToContainer", Mount{HostPath: "/h", Propagation: new(corev1.MountPropagationHostToContainer)}, nil,
			`{"hostPath": "/h", "propagation": "PROPAGATION_HOST_TO_CONTAINER"}`},
		{"Bidirectional", Mount{HostPath: "/h", Propagation: new(corev1.MountPropagationBidirectional)}, nil,
			`{"hostPath": "/h", "propagation": "PROPAGATION_BIDIRECTIONAL"}`},
		{"an unknown propagation is none", Mount{HostPath: "/h", Propagation: new(corev1.MountPropagationMode("x"))}, nil, `{"hostPath": "/h"}`},
		{"an image (KEP-4639)", Mount{Image: image, ImageSubPath: "lib", ReadOnly: true}, nil,
			`{"image": {"image": "sha256:abc"}, "imageSubPath": "lib", "readonly": true}`},
		{"users of the pod's own (KEP-127)", Mount{HostPath: "/h"}, new(false), `{"hostPath": "/h"` + mapped + `}`},
		{"which are nothing to an image", Mount{Image: image}, new(false), `{"image": {"image": "sha256:abc"}}`},
		{"the host's users", Mount{HostPath: "/h"}, new(true), `{"hostPath": "/h"}`},
	} {
		t.Run(test.what, func(t *testing.T) {
			pod := podOf(func(pod *corev1.Pod, _ *corev1.Container) { pod.Spec.HostUsers = test.hostUsers })
			config := containerOf(t, testNode, pod, ContainerOptions{Mounts: []Mount{test.mount}, UserNamespace: testUsers})
			wantJSON(t, config.Mounts[0], test.want)
		})
	}
}

// The modes are those of KEP-3857 and of the API's VolumeMount.
func TestRecursiveReadOnly(t *testing.T) {
	for _, test := range []struct {
		mode        corev1.RecursiveReadOnlyMode
		supported   bool
		readOnly    bool
		propagation corev1.MountPropagationMode
		want        bool
		err         string
	}{
		{corev1.RecursiveReadOnlyDisabled, true, true, "", false, ""},
		{corev1.RecursiveReadOnlyIfPossible, true, true, "", true, ""},
		{corev1.RecursiveReadOnlyIfPossible, false, true, "", false, ""},
		{corev1.RecursiveReadOnlyIfPossible, true, false, "", false, ""},
		{corev1.RecursiveReadOnlyIfPossible, true, true, corev1.MountPropagationHostToContainer, false, ""},
		{corev1.RecursiveReadOnlyEnabled, true, true, corev1.MountPropagationNone, true, ""},
		{corev1.RecursiveReadOnlyEnabled, false, true, "", false, `volume "v" requested recursive read-only mode, but it is not supported by the runtime`},
		{corev1.RecursiveReadOnlyEnabled, true, false, "", false, `volume "v" requested recursive read-only mode, but it is not read-only, or its mounts propagate`},
		{"Other", true, true, "", false, `volume "v" has an unknown recursive read-only mode "Other"`},
	} {
		mount := &corev1.VolumeMount{Name: "v", ReadOnly: test.readOnly, RecursiveReadOnly: &test.mode}
		if test.propagation != "" {
			mount.MountPropagation = &test.propagation
		}
		got, err := RecursiveReadOnly(mount, test.supported)
		wantError(t, err, test.err)
		equal(t, string(test.mode), got, test.want)
	}
	if got, err := RecursiveReadOnly(&corev1.VolumeMount{ReadOnly: true}, true); got || err != nil {
		t.Errorf("not asked for: %t, %v", got, err)
	}
}
