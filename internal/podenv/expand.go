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

// Expand replaces the references $(NAME) in s by those variables of env that are
// plain values. Others stay as they are, and $$ becomes $.
func Expand(s string, env []corev1.EnvVar) string {
	return expand(s, func(name string) (string, bool) { return plainValue(env, name) })
}

// ExpandStrict is Expand for a text, such as a subPathExpr, in which a name that
// env has not, or whose value is not known, is an error.
func ExpandStrict(s string, env []corev1.EnvVar) (string, error) {
	var unknown []string
	expanded := expand(s, func(name string) (string, bool) {
		value, known := plainValue(env, name)
		if !known {
			unknown = append(unknown, name)
		}
		return value, known
	})
	if len(unknown) > 0 {
		return "", fmt.Errorf("missing value for %q", unknown)
	}
	return expanded, nil
}

// plainValue is the value of a variable; of several of a name the last counts.
func plainValue(env []corev1.EnvVar, name string) (string, bool) {
	for i := len(env) - 1; i >= 0; i-- {
		if env[i].Name == name && env[i].ValueFrom == nil {
			return env[i].Value, true
		}
	}
	return "", false
}
