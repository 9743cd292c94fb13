package translate

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// unresolved returns a home pod before its environment was resolved, or nil.
func (o *Options) unresolved(pod *corev1.Pod) *corev1.Pod {
	if o.Unresolved == nil {
		return nil
	}
	return o.Unresolved(pod)
}

// containerOf returns the container of a pod, of any kind, that has the name, or nil.
func containerOf(pod *corev1.Pod, name string) *corev1.Container {
	if pod == nil {
		return nil
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if containers[i].Name == name {
				return &containers[i]
			}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if c := (*corev1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon); c.Name == name {
			return c
		}
	}
	return nil
}

// HasContainer reports whether a pod, which may be nil, has a container of that name, of any
// kind.
func HasContainer(pod *corev1.Pod, name string) bool { return containerOf(pod, name) != nil }

// valuesInSpec returns the values, by name of the variable, that stay in the spec of the
// remote pod: those that unexpandedValues has. The variables of a container that is known
// to name none are of Services, and all stay.
func valuesInSpec(env []corev1.EnvVar, original *corev1.Container, changed []corev1.EnvVar) map[string]string {
	if original == nil || len(original.Env)+len(original.EnvFrom) > 0 {
		return unexpandedValues(env, original, changed)
	}
	values := map[string]string{}
	for i := range env {
		values[env[i].Name] = escape(env[i].Value, nil)
	}
	return values
}

// unexpandedValues returns the values, by name of the variable, that refer to variables
// which only the remote cluster can resolve, or have other values there, as those in changed: its
// kubelet expands the values in specs, and not those in Secrets. They are those of original, the container before its environment
// was resolved, without the values of Secrets that home has expanded. If that is nil,
// they are as home has expanded them.
func unexpandedValues(env []corev1.EnvVar, original *corev1.Container, changed []corev1.EnvVar) map[string]string {
	values := map[string]string{}
	unresolved := unresolvedNames(env)
	there := namesOf(changed) // the variables so far that the remote cluster resolves or expands; those of Services are the first
	for i := range env {
		v := &env[i]
		switch {
		case v.ValueFrom != nil:
			there = append(there, v.Name)
		case original == nil && refersTo(v.Value, unresolved):
			values[v.Name] = escape(v.Value, unresolved)
		case original != nil && refersTo(definition(original, v.Name), there):
			if values[v.Name] = definition(original, v.Name); refersTo(values[v.Name], namesOf(env[i:])) {
				values[v.Name] = withEarlierValues(values[v.Name], env, i, changed)
			}
			there = append(there, v.Name)
		}
	}
	return values
}

// withEarlierValues returns the definition of env[i], whose value home has expanded, with the values of the
// variables to which it refers and that are defined again, here or later: of what they were before, that
// value alone has the values. changed has those at home.
func withEarlierValues(definition string, env []corev1.EnvVar, i int, changed []corev1.EnvVar) string {
	again := namesOf(env[i:])
	all := pieces(definition)
	pattern := "(?s)^"
	for _, p := range all {
		isNamed := func(v corev1.EnvVar) bool { return v.Name == p.name && v.ValueFrom == nil }
		text := p.text
		if slices.Contains(again, p.name) {
			pattern += "(.*?)"
			continue
		} else if at := slices.IndexFunc(changed, isNamed); at >= 0 {
			text = changed[at].Value
		} else if at := slices.IndexFunc(env[:i], isNamed); at >= 0 {
			text = env[at].Value
		}
		pattern += regexp.QuoteMeta(text)
	}
	var found []string
	if compiled, err := regexp.Compile(pattern + "$"); err == nil { // values need not be text
		found = compiled.FindStringSubmatch(env[i].Value)
	}
	if found == nil {
		return escape(env[i].Value, unresolvedNames(env))
	}
	var text, b strings.Builder
	for _, p := range all {
		switch {
		case p.name == "":
			text.WriteString(p.text)
		case slices.Contains(again, p.name):
			found = found[1:]
			text.WriteString(found[0])
		default:
			if b.WriteString(escape(text.String(), nil)); strings.HasSuffix(text.String(), "$") {
				b.WriteByte('$') // or it escapes the reference
			}
			b.WriteString(p.text)
			text.Reset()
		}
	}
	return b.String() + escape(text.String(), nil)
}

// piece is a part of a text that a kubelet expands: a reference to a variable, or text.
type piece struct{ text, name string }

func pieces(text string) (all []piece) {
	var plain strings.Builder
	flush := func() {
		if plain.Len() > 0 {
			all = append(all, piece{text: plain.String()})
		}
		plain.Reset()
	}
	for {
		before, after, found := strings.Cut(text, "$")
		plain.WriteString(before)
		if !found {
			flush()
			return all
		}
		name, rest, isReference := cutReference(after)
		switch {
		case isReference && name != "":
			flush()
			all = append(all, piece{"$(" + name + ")", name})
			after = rest
		case strings.HasPrefix(after, "$"):
			after = after[1:]
			fallthrough
		default:
			plain.WriteByte('$')
		}
		text = after
	}
}

// isCertain reports whether the value of a variable does not depend on sources of variables
// that are gone, and are kept in c.EnvFrom: it may be of one, or refer to variables of one.
func isCertain(v *corev1.EnvVar, c, original *corev1.Container) bool {
	if len(c.EnvFrom) == 0 {
		return true
	}
	if original == nil {
		return !strings.Contains(v.Value, "$(")
	}
	return slices.Contains(namesOf(original.Env), v.Name) && !strings.Contains(definition(original, v.Name), "$(")
}

// definition returns the text that is the value of a variable of a container, which is
// empty if that comes from elsewhere.
func definition(c *corev1.Container, name string) string {
	for _, v := range slices.Backward(c.Env) {
		if v.Name == name {
			return v.Value
		}
	}
	return ""
}

// unresolvedNames returns the variables whose value only the remote cluster can
// resolve.
func unresolvedNames(env []corev1.EnvVar) (names []string) {
	for i := range env {
		if env[i].ValueFrom != nil {
			names = append(names, env[i].Name)
		}
	}
	return names
}

func namesOf(env []corev1.EnvVar) []string {
	names := make([]string, len(env))
	for i := range env {
		names[i] = env[i].Name
	}
	return names
}

func refersTo(text string, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return strings.Contains(text, "$("+name+")") })
}

// escape escapes text that is already expanded, so that only references to names are
// expanded again.
func escape(text string, names []string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "$")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteByte('$')
		if name, rest, ok := cutReference(after); ok && slices.Contains(names, name) {
			b.WriteString(after[:len(after)-len(rest)])
			after = rest
		} else if strings.HasPrefix(after, "$") || strings.HasPrefix(after, "(") { // or it is text to the kubelet, too
			b.WriteByte('$')
		}
		text = after
	}
}

// cutReference returns the name of the reference that text begins with, without its $,
// and what follows.
func cutReference(text string) (name, rest string, found bool) {
	if text, found = strings.CutPrefix(text, "("); !found {
		return "", "", false
	}
	return strings.Cut(text, ")")
}

func escapeAll(texts, names []string) []string {
	escaped := slices.Clone(texts)
	for i := range escaped {
		escaped[i] = escape(escaped[i], names)
	}
	return escaped
}
