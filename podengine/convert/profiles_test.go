package convert

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// KEP-135, and KEP-2413 for the default.
func TestSeccomp(t *testing.T) {
	profile := func(kind corev1.SeccompProfileType, path ...string) *corev1.SeccompProfile {
		p := &corev1.SeccompProfile{Type: kind}
		if len(path) > 0 {
			p.LocalhostProfile = &path[0]
		}
		return p
	}
	unconfined, runtimes := profile(corev1.SeccompProfileTypeUnconfined), profile(corev1.SeccompProfileTypeRuntimeDefault)
	for _, test := range []struct {
		what           string
		pod, container *corev1.SeccompProfile
		byDefault      bool
		want, err      string
	}{
		{what: "none", want: `{"profileType": "Unconfined"}`},
		{what: "none, with a default", byDefault: true, want: `{}`},
		{what: "Unconfined, with a default", container: unconfined, byDefault: true, want: `{"profileType": "Unconfined"}`},
		{what: "RuntimeDefault", container: runtimes, want: `{}`},
		{what: "the pod's", pod: runtimes, want: `{}`},
		{what: "the container's before the pod's", pod: runtimes, container: unconfined, want: `{"profileType": "Unconfined"}`},
		{what: "Localhost", container: profile(corev1.SeccompProfileTypeLocalhost, "profiles/a.json"),
			want: `{"profileType": "Localhost", "localhostRef": "/seccomp/profiles/a.json"}`},
		{what: "Localhost without a path", container: profile(corev1.SeccompProfileTypeLocalhost),
			err: "localhostProfile must be set if seccompProfile type is Localhost"},
		{what: "Localhost elsewhere", container: profile(corev1.SeccompProfileTypeLocalhost, "../../etc/passwd"),
			err: `localhostProfile "../../etc/passwd" of seccompProfile is not below the directory of profiles`},
		{what: "unknown", container: profile("Other"), err: `unknown seccompProfile type "Other"`},
	} {
		t.Run(test.what, func(t *testing.T) {
			node := testNode
			node.SeccompDefault = test.byDefault
			pod := security(&corev1.PodSecurityContext{SeccompProfile: test.pod}, &corev1.SecurityContext{SeccompProfile: test.container})
			config, err := node.Container(pod, &pod.Spec.Containers[0], ContainerOptions{})
			wantError(t, err, test.err)
			if err == nil {
				wantJSON(t, config.Linux.SecurityContext.Seccomp, test.want)
			}
		})
	}
}

// KEP-24.
func TestAppArmor(t *testing.T) {
	profile := func(kind corev1.AppArmorProfileType, name ...string) *corev1.AppArmorProfile {
		p := &corev1.AppArmorProfile{Type: kind}
		if len(name) > 0 {
			p.LocalhostProfile = &name[0]
		}
		return p
	}
	unconfined, runtimes := profile(corev1.AppArmorProfileTypeUnconfined), profile(corev1.AppArmorProfileTypeRuntimeDefault)
	for _, test := range []struct {
		what           string
		pod, container *corev1.AppArmorProfile
		annotation     string
		want, err      string
	}{
		{what: "none", want: ""},
		{what: "RuntimeDefault", container: runtimes, want: `{}`},
		{what: "the pod's", pod: unconfined, want: `{"profileType": "Unconfined"}`},
		{what: "the container's before the annotation", container: runtimes, annotation: "unconfined", want: `{}`},
		{what: "the annotation before the pod's", pod: runtimes, annotation: "unconfined", want: `{"profileType": "Unconfined"}`},
		{what: "annotation runtime/default", annotation: "runtime/default", want: `{}`},
		{what: "annotation localhost/", annotation: "localhost/mine", want: `{"profileType": "Localhost", "localhostRef": "mine"}`},
		{what: "annotation localhost/ without a name", annotation: "localhost/", err: `invalid AppArmor profile name: "localhost/"`},
		{what: "annotation nonsense", annotation: "nonsense", err: `invalid AppArmor profile name: "nonsense"`},
		{what: "Localhost", container: profile(corev1.AppArmorProfileTypeLocalhost, "mine"), want: `{"profileType": "Localhost", "localhostRef": "mine"}`},
		{what: "Localhost without a name", container: profile(corev1.AppArmorProfileTypeLocalhost),
			err: "localhostProfile must be set if appArmorProfile type is Localhost"},
		{what: "unknown", container: profile("Other"), err: `unknown appArmorProfile type "Other"`},
	} {
		t.Run(test.what, func(t *testing.T) {
			pod := security(&corev1.PodSecurityContext{AppArmorProfile: test.pod}, &corev1.SecurityContext{AppArmorProfile: test.container})
			pod.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/app": test.annotation}
			config, err := testNode.Container(pod, &pod.Spec.Containers[0], ContainerOptions{})
			wantError(t, err, test.err)
			switch got := config.GetLinux().GetSecurityContext().GetApparmor(); {
			case err != nil:
			case test.want == "":
				equal(t, "has a profile", got != nil, false)
			default:
				wantJSON(t, got, test.want)
			}
		})
	}
}
