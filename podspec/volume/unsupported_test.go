package volume

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

func TestCheck(t *testing.T) {
	all := Support{HostPath: true, Claims: true, Images: true, Tokens: true}
	for source, kinds := range map[string]struct{ without, with string }{
		"{}":                                    {},
		"emptyDir: {}":                          {},
		"emptyDir: {medium: Memory}":            {},
		"emptyDir: {medium: HugePages}":         {"emptyDir (medium HugePages)", "emptyDir (medium HugePages)"},
		"configMap: {name: x}":                  {},
		"secret: {secretName: x}":               {},
		"downwardAPI: {}":                       {},
		"projected: {sources: []}":              {},
		"projected: {sources: [{}]}":            {"projected (a source that this version does not know)", "projected (a source that this version does not know)"},
		"hostPath: {path: /x}":                  {"hostPath", ""},
		"persistentVolumeClaim: {claimName: x}": {"persistentVolumeClaim", ""},
		"image: {reference: x}":                 {"image", ""},
		"projected: {sources: [{serviceAccountToken: {path: x}}]}":                                      {"projected (serviceAccountToken)", ""},
		"projected: {sources: [{configMap: {name: x}}, {podCertificate: {signerName: x, keyType: y}}]}": {"projected (podCertificate)", "projected (podCertificate)"},
		"projected: {sources: [{clusterTrustBundle: {path: x}}]}":                                       {"projected (clusterTrustBundle)", "projected (clusterTrustBundle)"},
		"nfs: {server: x, path: /}": {"nfs", "nfs"},
		"csi: {driver: x}":          {"csi", "csi"},
		"storageos: {}":             {"storageos", "storageos"},
		"ephemeral: {}":             {"ephemeral", "ephemeral"},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v"}}}}
		pod.Spec.Volumes[0].VolumeSource = *decode[corev1.VolumeSource](t, source)
		expectUnsupported(t, source, Check(pod, Support{}), kinds.without)
		expectUnsupported(t, source, Check(pod, all), kinds.with)
	}
}

func expectUnsupported(t *testing.T, source string, err error, kind string) {
	t.Helper()
	if kind == "" {
		if err != nil {
			t.Errorf("%s: %v", source, err)
		}
		return
	}
	var got Unsupported
	if !errors.As(err, &got) || got != (Unsupported{"v", kind}) || !errdefs.IsPermanent(err) {
		t.Errorf("%s: the error is %v, want kind %s, permanent", source, err, kind)
	} else if want := "ProviderNotSupported: volume v of kind " + kind; err.Error() != want {
		t.Errorf("%s: the message is %q, want %q", source, err, want)
	}
}

func TestCheckNamesAll(t *testing.T) {
	pod := podWith(t, `[{name: a, nfs: {server: x, path: /}}, {name: b}, {name: c, persistentVolumeClaim: {claimName: x}}, {name: d, csi: {driver: x}}]`)
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{}}
	pod.Spec.EphemeralContainers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "c"}}
	err := newRig(t).Check(pod)
	expect(t, "the error", err.Error(), "ProviderNotSupported: volume a of kind nfs; "+
		"ProviderNotSupported: volume c of kind persistentVolumeClaim (block device); ProviderNotSupported: volume d of kind csi")
	expectError(t, newRig(t, func(o *Options) { o.AllowHostPath = nil }).Check(podWith(t, `[{name: h, hostPath: {path: /}}]`)), "kind hostPath")
}
