package probe

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// expandCommand replaces the references $(NAME) in a probe's command by those
// variables of the container that are plain values, and $$ by $. Others stay as
// they are, as in a kubelet, which knows no other variables at this time.
func expandCommand(command []string, env []corev1.EnvVar) []string {
	values := map[string]string{}
	for _, v := range env {
		if v.ValueFrom == nil {
			values[v.Name] = v.Value
		}
	}
	expanded := make([]string, len(command))
	for i, arg := range command {
		expanded[i] = expand(arg, values)
	}
	return expanded
}

func expand(s string, values map[string]string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(s, "$")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		name, after, closed := strings.Cut(strings.TrimPrefix(rest, "("), ")")
		value, known := values[name]
		switch {
		case strings.HasPrefix(rest, "$"):
			b.WriteByte('$')
			s = rest[1:]
		case strings.HasPrefix(rest, "(") && closed && known:
			b.WriteString(value)
			s = after
		case strings.HasPrefix(rest, "(") && closed:
			b.WriteString("$(" + name + ")")
			s = after
		default:
			b.WriteByte('$')
			s = rest
		}
	}
}
