package config_test

import (
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
)

func TestIsText(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "~": false, "a": false, "a.yaml": false, "/etc/a b/c:d.yaml": false, `C:\a\b.json`: false, "../[a].toml": false,
		"a: 1\nb: 2\n": true, "a\n": true, "a: 1": true, "{a: 1}": true, `{"a": 1`: true, " {}": true,
	} {
		if got := config.IsText(text); got != want {
			t.Errorf("%q: got %v", text, got)
		}
	}
}
