package settings

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
)

// Apply sets the values that the file has, unless a flag or an environment variable has set
// them. It returns all mistakes in the file but those that Check finds.
func (t *Table) Apply(f *File) []Mistake {
	d := decoder{table: t, file: f, mistakes: f.strange}
	if f.config.err != nil {
		return append(d.mistakes, notYAML(f.name, f.config))
	}
	d.group(f.config.root, "")
	if !d.version {
		d.add(f.config.root, "apiVersion: it is missing: write %s", t.APIVersion)
	}
	slices.SortStableFunc(d.mistakes, func(a, b Mistake) int { return a.Line - b.Line })
	return d.mistakes
}

type decoder struct {
	table    *Table
	file     *File
	version  bool // there is an apiVersion
	mistakes []Mistake
}

func (d *decoder) add(node *yaml.Node, format string, args ...any) {
	d.mistakes = append(d.mistakes, Mistake{Origin{Name: d.file.name, Line: node.Line}, fmt.Sprintf(format, args...)})
}

// group decodes the object whose fields begin with prefix.
func (d *decoder) group(node *yaml.Node, prefix string) {
	seen := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], resolve(node.Content[i+1])
		path := prefix + key.Value
		if line, twice := seen[key.Value]; twice {
			d.add(key, "%s: it is set in line %d already: leave out one of the two", path, line)
			continue
		}
		seen[key.Value] = key.Line
		switch {
		case path == "kind":
		case path == "apiVersion":
			d.version = true
			if value.Value != d.table.APIVersion {
				d.add(key, "apiVersion: it is %q: use %s", value.Value, d.table.APIVersion)
			}
		case d.table.field(path) != nil:
			d.value(key, value, d.table.field(path))
		case !d.table.isGroup(path):
			d.unknown(key, prefix)
		case value.Kind == yaml.MappingNode:
			d.group(value, path+".")
		case value.ShortTag() == "!!null":
		default:
			d.add(key, "%s: it is of type %s, and has to be of type object", path, typeOf(value))
		}
	}
}

func resolve(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

func (t *Table) field(path string) *Setting {
	for i, s := range t.Settings {
		if s.Field == path {
			return &t.Settings[i]
		}
	}
	return nil
}

func (t *Table) isGroup(path string) bool {
	return slices.ContainsFunc(t.Settings, func(s Setting) bool { return strings.HasPrefix(s.Field, path+".") })
}

// unknown reports a field that does not exist, and which may be meant.
func (d *decoder) unknown(key *yaml.Node, prefix string) {
	siblings, elsewhere := map[string]bool{}, ""
	for _, s := range d.table.Settings {
		if s.Field == "" {
			continue
		}
		if rest, ok := strings.CutPrefix(s.Field, prefix); ok {
			name, _, _ := strings.Cut(rest, ".")
			siblings[name] = true
		}
		if last := s.Field[strings.LastIndex(s.Field, ".")+1:]; strings.EqualFold(last, key.Value) || s.Flag == strings.TrimLeft(key.Value, "-") {
			elsewhere = s.Field
		}
	}
	near := config.Nearest(key.Value, slices.Sorted(maps.Keys(siblings)))
	if near == "" && elsewhere != "" {
		d.add(key, "%s%s: unknown field: leave it out, or write %s", prefix, key.Value, elsewhere)
		return
	}
	text := "unknown field: leave it out"
	if near != "" {
		text += ", or write " + prefix + near
	}
	d.add(key, "%s%s: %s", prefix, key.Value, text)
}

// value sets the value of a setting.
func (d *decoder) value(key, node *yaml.Node, s *Setting) {
	set, problem := s.decode(node, d.directory())
	if problem != "" {
		d.add(key, "%s: %s", s.Field, problem)
		return
	}
	if origin := d.table.originOf(s); origin.Name != "" && origin.Line == 0 {
		return // a flag or a variable goes before the file
	}
	set()
	s.origin = Origin{Name: d.file.name, Line: key.Line}
}

func (d *decoder) directory() string {
	directory, err := filepath.Abs(filepath.Dir(d.file.name))
	if err != nil {
		return filepath.Dir(d.file.name)
	}
	return directory
}

// decode returns what sets the value to that of a node, or what is wrong with that.
func (s *Setting) decode(node *yaml.Node, directory string) (set func(), problem string) {
	has := typeOf(node)
	wrong := func(want string) (func(), string) {
		return nil, fmt.Sprintf("it is of type %s, and has to be of type %s", has, want)
	}
	switch p := s.Value.(type) {
	case *string:
		switch {
		case has == "object" && s.Object != nil:
			content, err := yaml.Marshal(node)
			if err != nil {
				return nil, "it cannot be written as YAML"
			}
			return func() { *s.Object, *p = content, "" }, ""
		case has != "string":
			return wrong("string" + s.orObject())
		case s.Object != nil && config.IsText(node.Value):
			return nil, "write the configuration as an object, not as text (without |), or the path of its file"
		}
		value := node.Value
		if s.Path && value != "" && !filepath.IsAbs(value) {
			value = filepath.Join(directory, value)
		}
		return func() { *p = value }, ""
	case *bool:
		var value bool
		if has != "bool" || node.Decode(&value) != nil {
			return wrong("bool, true or false")
		}
		return func() { *p = value }, ""
	case *int:
		var value int
		if has != "integer" {
			return wrong("integer")
		}
		if node.Decode(&value) != nil {
			return nil, "it is out of range"
		}
		return func() { *p = value }, ""
	case *float32:
		var value float64
		if has != "integer" && has != "number" || node.Decode(&value) != nil {
			return wrong("number")
		}
		if math.IsNaN(value) || math.Abs(value) > math.MaxFloat32 {
			return nil, "it is out of range"
		}
		return func() { *p = float32(value) }, ""
	case *time.Duration:
		if has != "string" {
			return wrong(`string, such as "30s"`)
		}
		value, err := time.ParseDuration(node.Value)
		if err != nil {
			return nil, fmt.Sprintf("%q is no duration: write one such as 30s or 1h30m", node.Value)
		}
		return func() { *p = value }, ""
	case *map[string]string:
		if has != "object" {
			return wrong("object")
		}
		value := map[string]string{}
		for i := 0; i+1 < len(node.Content); i += 2 {
			name, text := node.Content[i].Value, resolve(node.Content[i+1])
			if _, twice := value[name]; twice {
				return nil, fmt.Sprintf("%s is set twice: leave out one of the two", name)
			}
			if has := typeOf(text); has != "string" {
				return nil, fmt.Sprintf("%s is of type %s, and has to be of type string", name, has)
			}
			value[name] = text.Value
		}
		return func() { *p = value }, ""
	}
	return nil, "it cannot be set in a file"
}

func (s *Setting) orObject() string {
	if s.Object == nil {
		return ""
	}
	return " (the path of a file) or object"
}

// typeOf returns the type of a value in the words of JSON.
func typeOf(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "object"
	case yaml.SequenceNode:
		return "array"
	}
	switch tag := node.ShortTag(); tag {
	case "!!str", "!!timestamp":
		return "string"
	case "!!int":
		return "integer"
	case "!!float":
		return "number"
	case "!!bool":
		return "bool"
	case "!!null":
		return "null"
	default:
		return tag
	}
}
