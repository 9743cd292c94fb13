package podenv

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// expand replaces the references $(NAME) in s by what lookup knows. References
// that it does not know stay as they are, and $$ becomes $, so that $$(NAME) is
// the text $(NAME). A value is not searched for further references.
func expand(s string, lookup func(name string) (string, bool)) string {
	dollar := strings.IndexByte(s, '$')
	if dollar < 0 {
		return s
	}
	var b strings.Builder
	for ; dollar >= 0; dollar = strings.IndexByte(s, '$') {
		b.WriteString(s[:dollar])
		s = s[dollar:]
		reference := "$"
		if strings.HasPrefix(s, "$$") {
			s = s[1:]
		} else if strings.HasPrefix(s, "$(") {
			if end := strings.IndexByte(s, ')'); end >= 0 {
				reference = s[:end+1]
			}
		}
		value := reference
		if len(reference) > 1 {
			if v, ok := lookup(reference[2 : len(reference)-1]); ok {
				value = v
			}
		}
		b.WriteString(value)
		s = s[len(reference):]
	}
	b.WriteString(s)
	return b.String()
}

// ExpandStrict replaces the references $(NAME) in s, as in a subPathExpr, by the
// values of an environment that has been resolved. A name that it has not, or
// whose value is not known, is an error.
func ExpandStrict(s string, env []corev1.EnvVar) (string, error) {
	var unknown []string
	expanded := expand(s, func(name string) (string, bool) {
		for i := range env {
			if env[i].Name == name && env[i].ValueFrom == nil {
				return env[i].Value, true
			}
		}
		unknown = append(unknown, name)
		return "", false
	})
	if len(unknown) > 0 {
		return "", fmt.Errorf("missing value for %q", unknown)
	}
	return expanded, nil
}
