package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
)

// File is a configuration file, which may have other documents besides the configuration.
type File struct {
	name    string
	config  *document
	others  []*document
	strange []Mistake // documents that do not belong here, and what is no YAML
}

// document is one of the YAML documents of a file.
type document struct {
	text []byte // with an empty line for each line before it
	line int
	kind string
	root *yaml.Node // nil if it is no YAML
	err  error
}

// Parse finds the documents of a file. Without one of the table's kind it returns nil, since
// it is no configuration file then. Of each other kind there may be one document.
func (t *Table) Parse(name string, data []byte, others ...string) *File {
	f := &File{name: name}
	seen := map[string]int{}
	for _, d := range documents(config.WithoutVersion(data)) {
		at := Origin{Name: name, Line: d.line}
		switch first, twice := seen[d.kind]; {
		case twice:
			f.strange = append(f.strange, Mistake{at, fmt.Sprintf("there is a %s in line %d already: write all into that one", d.kind, first)})
			continue
		case d.kind == t.Kind:
			f.config = d
		case slices.Contains(others, d.kind):
			f.others = append(f.others, d)
		case d.err != nil:
			f.strange = append(f.strange, notYAML(name, d))
			continue
		default:
			f.strange = append(f.strange, Mistake{at, fmt.Sprintf("kind: it is %q: use one of %s", d.kind, strings.Join(append([]string{t.Kind}, others...), ", "))})
			continue
		}
		seen[d.kind] = d.line
	}
	if f.config == nil {
		return nil
	}
	return f
}

// Other returns the document of that kind with an empty line for each line before it, or nil
// if there is none.
func (f *File) Other(kind string) []byte {
	for _, d := range f.others {
		if d.kind == kind {
			return d.text
		}
	}
	return nil
}

var (
	separator = regexp.MustCompile(`^---(\s|$)`)
	kindLine  = regexp.MustCompile(`(?m)^["']?kind["']?:[ \t]*["']?([A-Za-z]+)`)
	errorLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)
)

// documents splits a file. A line that begins with three dashes begins a document wherever it
// is, also within a text.
func documents(data []byte) (all []*document) {
	start, lines := 0, bytes.SplitAfter(data, []byte("\n"))
	for i := 1; i <= len(lines); i++ {
		if i < len(lines) && !separator.Match(lines[i]) {
			continue
		}
		text := append(bytes.Repeat([]byte("\n"), start), bytes.Join(lines[start:i], nil)...)
		if d := parse(text, start+1); d != nil {
			all = append(all, d)
		}
		start = i
	}
	return all
}

// parse parses one document; nil means that it is empty.
func parse(text []byte, line int) *document {
	d := &document{text: text, line: line}
	var node yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	switch err := decoder.Decode(&node); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		d.err = err
		if match := kindLine.FindSubmatch(text); match != nil {
			d.kind = string(match[1])
		}
		return d
	}
	if node.Kind != yaml.DocumentNode || len(node.Content) == 0 {
		return nil
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		d.err = errors.New("there is more after a line with three dots, which end it")
	}
	root := node.Content[0]
	if root.ShortTag() == "!!null" {
		return nil
	}
	d.root, d.line = root, root.Line
	if root.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(root.Content); i += 2 {
			if root.Content[i].Value == "kind" {
				d.kind = root.Content[i+1].Value
			}
		}
	}
	return d
}

// notYAML says in which line what is no YAML. The parser's words may quote a value, which may
// be secret.
func notYAML(name string, d *document) Mistake {
	at, text := Origin{Name: name, Line: d.line}, strings.Join(strings.Fields(d.err.Error()), " ")
	if match := errorLine.FindStringSubmatch(text); match != nil {
		fmt.Sscan(match[1], &at.Line)
		text = text[len(match[0]):]
	}
	text = strings.TrimPrefix(text, "yaml: ")
	return Mistake{at, "this is no YAML or JSON: " + quoted.ReplaceAllString(text, "${1}a value")}
}

var quoted = regexp.MustCompile("`[^`]*`|(anchor )'[^']*'")
