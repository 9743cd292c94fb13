package machine

import (
	"strings"
	"testing"
)

func TestQemuConfig(t *testing.T) {
	c, err := ParseConfig([]byte(`{cluster: home, stateDir: /state, qemu: {image: /image, subnet: 10.9.0.0/24}}`))
	if err != nil || c.Bootstrap.URL != "https://10.9.0.1:10271" || c.Bootstrap.Listen != "10.9.0.1:10271" || c.Qemu.Accel != "auto" {
		t.Errorf("the configuration is %+v: %v", c, err)
	}
	for text, want := range map[string]string{
		`qemu: {image: image}`:                                 "qemu.image",
		`qemu: {image: /i, accel: fast}`:                       "qemu.accel",
		`qemu: {image: /i, bridge: "a b"}`:                     "qemu.bridge",
		`qemu: {image: /i, subnet: 10.9.0.0/31}`:               "qemu.subnet",
		`qemu: {image: /i, subnet: "fd00::/64"}`:               "qemu.subnet",
		`qemu: {image: /i, disk: 1Mi}`:                         "qemu.disk",
		`qemu: {image: /i, memory: -1Gi}`:                      "qemu.memory",
		`qemu: {image: /i}, exec: {command: [x]}`:              "one of them",
		`bootstrap: {url: "https://10.0.0.5:10271"}`:           "one of them",
		`exec: {}, bootstrap: {url: "https://10.0.0.5:10271"}`: "exec.command",
	} {
		if _, err := ParseConfig([]byte("{cluster: home, stateDir: /state, " + text + "}")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
