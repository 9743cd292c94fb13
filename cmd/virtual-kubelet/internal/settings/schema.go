package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// node is a part of a JSON schema, in the order in which it is printed.
type node struct {
	Schema      string  `json:"$schema,omitempty"`
	Title       string  `json:"title,omitempty"`
	Description string  `json:"description,omitempty"`
	Type        any     `json:"type,omitempty"`
	Enum        []any   `json:"enum,omitempty"`
	Const       string  `json:"const,omitempty"`
	Pattern     string  `json:"pattern,omitempty"`
	Minimum     any     `json:"minimum,omitempty"`
	Maximum     any     `json:"maximum,omitempty"`
	Not         *node   `json:"not,omitempty"`
	Default     any     `json:"default,omitempty"`
	Properties  *fields `json:"properties,omitempty"`
	Additional  any     `json:"additionalProperties,omitempty"`
	Required    []any   `json:"required,omitempty"`
}

// fields are the fields of an object, in the order of the table.
type fields struct {
	names []string
	nodes map[string]*node
}

// MarshalJSON implements json.Marshaler.
func (f *fields) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range f.names {
		if i > 0 {
			b.WriteByte(',')
		}
		text, err := marshal(f.nodes[name])
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%q:%s", name, text)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func (f *fields) add(name string, n *node) *node {
	if f.nodes == nil {
		f.nodes = map[string]*node{}
	}
	f.names, f.nodes[name] = append(f.names, name), n
	return n
}

// Schema returns the JSON schema of a configuration.
func (t *Table) Schema() ([]byte, error) {
	root := &node{
		Schema: "https://json-schema.org/draft/2020-12/schema", Title: t.Kind, Type: "object",
		Properties: &fields{}, Additional: false, Required: []any{"apiVersion", "kind"},
	}
	root.Properties.add("apiVersion", &node{Const: t.APIVersion})
	root.Properties.add("kind", &node{Const: t.Kind})
	for _, s := range t.Settings {
		if s.Field == "" {
			continue
		}
		parent, parts := root, strings.Split(s.Field, ".")
		for _, part := range parts[:len(parts)-1] {
			group := parent.Properties.nodes[part]
			if group == nil {
				group = parent.Properties.add(part, &node{Type: []string{"object", "null"}, Properties: &fields{}, Additional: false})
			}
			parent = group
		}
		parent.Properties.add(parts[len(parts)-1], t.schemaOf(s))
	}
	text, err := marshal(root)
	if err != nil {
		return nil, fmt.Errorf("cannot print the schema: %w", err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return nil, fmt.Errorf("cannot print the schema: %w", err)
	}
	return b.Bytes(), nil
}

// schemaOf returns the schema of a field.
func (t *Table) schemaOf(s Setting) *node {
	n := &node{Description: t.Describe(s), Default: s.Default}
	if s.Min != nil {
		n.Minimum = *s.Min
	}
	if s.Max != nil {
		n.Maximum = *s.Max
	}
	switch s.Value.(type) {
	case *string:
		n.Type = "string"
		if s.Object != nil {
			n.Type = []string{"string", "object"}
		}
		for _, value := range s.OneOf {
			n.Enum = append(n.Enum, value)
		}
		if n.Enum != nil && s.preset() == "" {
			n.Enum = append(n.Enum, "")
		}
	case *bool:
		n.Type = "boolean"
	case *int:
		n.Type = "integer"
	case *float32:
		n.Type = "number"
	case *time.Duration:
		n.Type, n.Pattern = "string", durationPattern
		if s.Min != nil {
			n.Pattern = strings.Replace(durationPattern, "[-+]", `\+`, 1)
			n.Minimum = nil
		}
		if d, ok := s.Default.(time.Duration); ok {
			n.Default = durationText(d)
		}
	case *map[string]string:
		n.Type, n.Additional = "object", &node{Type: "string"}
	}
	if s.NotZero {
		n.Not = &node{Enum: []any{0}}
	}
	return n
}

// durationPattern matches what time.ParseDuration takes.
const durationPattern = `^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`

// marshal returns value as JSON, in which <, > and & are as they are.
func marshal(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimSpace(b.Bytes()), err
}
