package config

import (
	"strings"

	"sigs.k8s.io/yaml"
)

// IsText reports whether what is in the place of a path is the text of a configuration. It
// may have secrets, and so is not to be printed.
func IsText(path string) bool {
	if strings.ContainsAny(path, "\r\n") || strings.HasPrefix(strings.TrimSpace(path), "{") {
		return true
	}
	var fields map[string]any
	return yaml.Unmarshal([]byte(path), &fields) == nil && fields != nil
}
