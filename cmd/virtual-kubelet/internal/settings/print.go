package settings

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Default returns a configuration file with the defaults of all fields and what they mean.
// Those that are empty by default are comments. Values that are set do not show.
func (t *Table) Default() []byte {
	return t.print(func(s *Setting) (string, []string, bool) {
		copied := *s
		copied.Value = newValue(s.Value)
		copied.reset()
		return copied.yaml(), wrap(t.Describe(*s), 90-2*strings.Count(s.Field, ".")), copied.isEmpty()
	})
}

// View returns a configuration file with the values in force, and where each comes from.
// Objects, which may have secrets, are left out.
func (t *Table) View() []byte {
	return t.print(func(s *Setting) (string, []string, bool) {
		text, origin := s.yaml(), t.originOf(s)
		if s.Object != nil && *s.Object != nil {
			text = `"[hidden]"`
		}
		return text + " # " + origin.String(), nil, s.isEmpty() && origin.Name == ""
	})
}

// print writes the fields with the text of their values, the lines of a comment before them,
// and as comments those that are left out.
func (t *Table) print(of func(*Setting) (text string, comment []string, left bool)) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "apiVersion: %s\nkind: %s\n", t.APIVersion, t.Kind)
	var groups []string
	for i := range t.Settings {
		s := &t.Settings[i]
		if s.Field == "" {
			continue
		}
		parts := strings.Split(s.Field, ".")
		common := 0
		for common < len(groups) && common < len(parts)-1 && groups[common] == parts[common] {
			common++
		}
		for depth := common; depth < len(parts)-1; depth++ {
			fmt.Fprintf(&b, "%s%s:\n", strings.Repeat("  ", depth), parts[depth])
		}
		groups = parts[:len(parts)-1]
		indent := strings.Repeat("  ", len(groups))
		text, comment, left := of(s)
		for _, line := range comment {
			fmt.Fprintf(&b, "%s# %s\n", indent, line)
		}
		if left {
			indent += "# "
		}
		fmt.Fprintf(&b, "%s%s: %s\n", indent, parts[len(parts)-1], text)
	}
	return b.Bytes()
}

// isEmpty reports whether the value is that of a field that is left out.
func (s *Setting) isEmpty() bool {
	switch p := s.Value.(type) {
	case *string:
		return *p == "" && (s.Object == nil || *s.Object == nil)
	case *map[string]string:
		return len(*p) == 0
	}
	return false
}

// text returns the value as it is written in a sentence.
func (s *Setting) text() string { return strings.Trim(s.yaml(), `"`) }

// yaml returns the value as YAML in one line.
func (s *Setting) yaml() string {
	var value any
	switch p := s.Value.(type) {
	case *string:
		value = *p
	case *bool:
		value = *p
	case *int:
		value = *p
	case *float32:
		value = *p
	case *time.Duration:
		value = durationText(*p)
	case *map[string]string:
		value = *p
	}
	var node yaml.Node
	if err := node.Encode(value); err != nil {
		return "null" // no value of these types
	}
	if node.Kind == yaml.ScalarNode && node.Style != 0 || node.Value == "" {
		node.Style = yaml.DoubleQuotedStyle // not in several lines
	}
	if node.Kind == yaml.MappingNode {
		node.Style = yaml.FlowStyle
	}
	text, err := yaml.Marshal(&node)
	if err != nil {
		return "null"
	}
	return strings.Join(strings.Fields(string(text)), " ")
}

// durationText returns a duration without parts that are zero.
func durationText(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// newValue returns another value of the same type.
func newValue(value any) any {
	switch value.(type) {
	case *bool:
		return new(bool)
	case *int:
		return new(int)
	case *float32:
		return new(float32)
	case *time.Duration:
		return new(time.Duration)
	case *map[string]string:
		return new(map[string]string)
	}
	return new(string)
}

// wrap breaks a text into lines.
func wrap(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}

// Values returns the values in force, by field.
func (t *Table) Values() map[string]string {
	values := map[string]string{}
	for i := range t.Settings {
		s := &t.Settings[i]
		if s.Field == "" {
			continue
		}
		values[s.Field] = s.yaml()
		if s.Object != nil {
			values[s.Field] += string(*s.Object)
		}
	}
	return values
}
