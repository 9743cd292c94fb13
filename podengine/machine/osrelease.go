package machine

import (
	"os"
	"strings"
)

// osImage is what the operating system calls itself, or nothing.
func osImage() string {
	for _, path := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		if data, err := os.ReadFile(path); err == nil {
			return prettyName(string(data))
		}
	}
	return ""
}

// prettyName reads PRETTY_NAME of an os-release file (see os-release(5)).
func prettyName(release string) string {
	for line := range strings.Lines(release) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			return strings.Trim(value, `"'`)
		}
	}
	return ""
}
