package observability

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// docs/observability.md has each metric that is ours, and no other.
func TestMetricsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	ours := map[string]bool{}
	for line := range strings.Lines(string(list)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(name, "kubelet_") || strings.HasPrefix(name, "vk_") {
			ours[name] = true
		}
	}
	documented := map[string]bool{}
	for _, match := range regexp.MustCompile("`((?:kubelet|vk)_\\w+)`").FindAllStringSubmatch(string(text), -1) {
		documented[match[1]] = true
		if !ours[match[1]] {
			t.Errorf("docs/observability.md has %s, which there is not", match[1])
		}
	}
	for name := range ours {
		if !documented[name] {
			t.Errorf("docs/observability.md lacks %s", name)
		}
	}
}
