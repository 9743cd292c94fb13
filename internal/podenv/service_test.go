package podenv_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
)

var masterLines = []string{
	"KUBERNETES_SERVICE_HOST=10.0.0.1",
	"KUBERNETES_SERVICE_PORT=443",
	"KUBERNETES_SERVICE_PORT_HTTPS=443",
	"KUBERNETES_PORT=tcp://10.0.0.1:443",
	"KUBERNETES_PORT_443_TCP=tcp://10.0.0.1:443",
	"KUBERNETES_PORT_443_TCP_PROTO=tcp",
	"KUBERNETES_PORT_443_TCP_PORT=443",
	"KUBERNETES_PORT_443_TCP_ADDR=10.0.0.1",
}

func TestServiceVariables(t *testing.T) {
	services := []*corev1.Service{
		service("default", "other", "10.0.0.9", "80"),
		service("default", "kubernetes", "10.0.0.1", "https:443"),
		service("ns", "web-ui", "fd00::5", "80", "d-n-s:53/UDP"),
		service("ns", "headless", "None", "80"),
		service("ns", "external", "", "80"),
		service("ns", "bare", "10.0.0.7"),
		service("yy", "foreign", "10.0.0.8", "80"),
	}
	links := []string{
		"BARE_SERVICE_HOST=10.0.0.7",
		"WEB_UI_SERVICE_HOST=fd00::5",
		"WEB_UI_SERVICE_PORT=80",
		"WEB_UI_SERVICE_PORT_D_N_S=53",
		"WEB_UI_PORT=tcp://[fd00::5]:80",
		"WEB_UI_PORT_80_TCP=tcp://[fd00::5]:80",
		"WEB_UI_PORT_80_TCP_PROTO=tcp",
		"WEB_UI_PORT_80_TCP_PORT=80",
		"WEB_UI_PORT_80_TCP_ADDR=fd00::5",
		"WEB_UI_PORT_53_UDP=udp://[fd00::5]:53",
		"WEB_UI_PORT_53_UDP_PROTO=udp",
		"WEB_UI_PORT_53_UDP_PORT=53",
		"WEB_UI_PORT_53_UDP_ADDR=fd00::5",
	}
	for name, tc := range map[string]struct {
		links *bool
		want  []string
	}{
		"default": {nil, append(append([]string{}, masterLines...), links...)},
		"on":      {boolPtr(true), append(append([]string{}, masterLines...), links...)},
		"off":     {boolPtr(false), masterLines},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod(corev1.Container{})
			pod.Spec.EnableServiceLinks = tc.links
			if _, err := podenv.Resolve(pod, &fake{services: services}, podenv.Options{}); err != nil {
				t.Fatal(err)
			}
			wantEnv(t, pod.Spec.Containers[0].Env, tc.want...)
		})
	}
}

func TestMasterServiceNamespace(t *testing.T) {
	pod := newPod(corev1.Container{})
	f := &fake{services: []*corev1.Service{
		service("default", "kubernetes", "10.0.0.2", "443"), service("cp", "kubernetes", "10.0.0.1", "https:443"),
	}}
	if _, err := podenv.Resolve(pod, f, podenv.Options{MasterServiceNamespace: "cp"}); err != nil {
		t.Fatal(err)
	}
	wantEnv(t, pod.Spec.Containers[0].Env, masterLines...)
}

func TestPodInTheMasterNamespace(t *testing.T) {
	pod := newPod(corev1.Container{})
	pod.Namespace = "default"
	pod.Spec.EnableServiceLinks = nil
	f := &fake{services: []*corev1.Service{service("default", "kubernetes", "10.0.0.1", "https:443")}}
	if _, err := podenv.Resolve(pod, f, podenv.Options{}); err != nil {
		t.Fatal(err)
	}
	wantEnv(t, pod.Spec.Containers[0].Env, masterLines...)
	if n := f.asked["services default/"]; n != 1 {
		t.Errorf("asked %d times for the services", n)
	}
}

func TestOwnServiceNamedKubernetesHidesTheMasters(t *testing.T) {
	pod := newPod(corev1.Container{})
	pod.Spec.EnableServiceLinks = nil
	f := &fake{services: []*corev1.Service{
		service("default", "kubernetes", "10.0.0.2", "443"), service("ns", "kubernetes", "10.0.0.1", "https:443"),
	}}
	if _, err := podenv.Resolve(pod, f, podenv.Options{}); err != nil {
		t.Fatal(err)
	}
	wantEnv(t, pod.Spec.Containers[0].Env, masterLines...)
}

func TestServiceVariablesAreTheFirstAndLosersOfAll(t *testing.T) {
	pod := newPod(corev1.Container{
		Env:     []corev1.EnvVar{value("URL", "$(KUBERNETES_SERVICE_HOST)"), value("A_SERVICE_HOST", "env")},
		EnvFrom: []corev1.EnvFromSource{configMapRef("cm")},
		Args:    []string{"$(A_SERVICE_HOST)"},
	})
	pod.Spec.EnableServiceLinks = nil
	f := &fake{
		services: []*corev1.Service{
			service("default", "kubernetes", "10.0.0.1"), service("ns", "a", "10.0.0.2"), service("ns", "b", "10.0.0.3"),
		},
		configMaps: map[string]map[string]string{"ns/cm": {"B_SERVICE_HOST": "cm"}},
	}
	if _, err := podenv.Resolve(pod, f, podenv.Options{}); err != nil {
		t.Fatal(err)
	}
	wantEnv(t, pod.Spec.Containers[0].Env,
		"KUBERNETES_SERVICE_HOST=10.0.0.1", "B_SERVICE_HOST=cm", "URL=10.0.0.1", "A_SERVICE_HOST=env")
	if pod.Spec.Containers[0].Args[0] != "env" {
		t.Errorf("args %v", pod.Spec.Containers[0].Args)
	}
}
