package podspec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// The hash is stored with running containers: other values than these restart
// all of them.
func TestHashContainerIsStable(t *testing.T) {
	for _, test := range []struct {
		container corev1.Container
		want      uint64
	}{
		{corev1.Container{}, 0xaf63bd4c8601b7df},
		{corev1.Container{Name: "web", Image: "nginx:1.27"}, 0x91d50c1ded99d8e9},
	} {
		if got := HashContainer(&test.container); got != test.want {
			t.Errorf("%s %s: %#x, want %#x", test.container.Name, test.container.Image, got, test.want)
		}
	}
}

// Only an image (or another container) is a reason to start again.
func TestHashContainer(t *testing.T) {
	base := corev1.Container{Name: "web", Image: "nginx:1"}
	for _, test := range []struct {
		what   string
		change func(*corev1.Container)
		same   bool
	}{
		{"image", func(c *corev1.Container) { c.Image = "nginx:2" }, false},
		{"name", func(c *corev1.Container) { c.Name = "other" }, false},
		{"shifted text", func(c *corev1.Container) { c.Name, c.Image = "webn", "ginx:1" }, false},
		{"command", func(c *corev1.Container) { c.Command = []string{"sh"} }, true},
		{"resources", func(c *corev1.Container) { c.Resources = limits("cpu", "1") }, true},
		{"environment", func(c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "A"}} }, true},
		{"probe", func(c *corev1.Container) { c.LivenessProbe = &corev1.Probe{} }, true},
	} {
		t.Run(test.what, func(t *testing.T) {
			changed := *base.DeepCopy()
			test.change(&changed)
			if same := HashContainer(&changed) == HashContainer(&base); same != test.same {
				t.Errorf("same hash: %t, want %t", same, test.same)
			}
		})
	}
}
