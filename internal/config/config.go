// Package config decodes configurations in YAML or JSON strictly, and names all mistakes
// of one at once: unknown and duplicate fields, and values of wrong types, each with its
// path. Files of other formats are converted to JSON first. Reading files and variables
// is left to the caller.
package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	goyaml "go.yaml.in/yaml/v2"
	strictjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Decoder decodes configurations. Its zero value is the strictest.
type Decoder struct {
	// Loose accepts what the UnmarshalStrict of sigs.k8s.io/yaml accepts: names of fields
	// in any case, numbers and booleans as strings. It is for files that have always been
	// decoded with it.
	Loose bool
	// YAML decodes JSON as the YAML that it is: 1.0 is an integer, and what a
	// json.RawMessage gets has sorted fields and no white space.
	YAML bool
	// At is the path of the value that is decoded, if it is a part of another one.
	At string
	// Docs is where the fields are described. Mistakes refer to it.
	Docs string
}

// Decode decodes data with a zero Decoder.
func Decode(data []byte, into any, validate func() error) error {
	return Decoder{}.Decode(data, into, validate)
}

// Decode decodes data, and calls validate, which may be nil, if the fields have values
// to validate. The error has all mistakes of both, and errors.Join of validate counts as
// one mistake for each error. Empty data leaves the value as it is.
func (d Decoder) Decode(data []byte, into any, validate func() error) error {
	mistakes, decoded := d.Mistakes(data, into)
	if decoded && validate != nil {
		mistakes = append(mistakes, split(validate())...)
	}
	return Join(mistakes...)
}

// Mistakes decodes data, and returns the mistakes in it. Decoded reports whether the
// value has all fields that it can have, as it does if some are unknown or duplicate.
func (d Decoder) Mistakes(data []byte, into any) (mistakes []error, decoded bool) {
	if data = bytes.TrimSpace(data); len(data) == 0 {
		return nil, true
	}
	data = WithoutVersion(data)
	if err := d.oneDocument(data); err != nil {
		return []error{d.at("", err.Error())}, false
	}
	var failed error
	if d.Loose {
		if failed = yaml.UnmarshalStrict(data, into); failed == nil {
			return nil, true
		}
	}
	text, mistakes, err := d.toJSON(data)
	if err != nil {
		return []error{d.at("", err.Error())}, false
	}
	if !d.Loose {
		strict, err := strictjson.UnmarshalStrict(text, into)
		if failed = errors.Join(append(strict, err)...); failed == nil && len(mistakes) == 0 {
			return nil, true
		}
	}
	e := explainer{Decoder: d, mistakes: mistakes}
	e.explain(text, into)
	if d.Loose {
		err = yaml.Unmarshal(data, into)
	} else {
		err = strictjson.UnmarshalCaseSensitivePreserveInts(text, into)
	}
	if len(e.mistakes) == 0 || err != nil && e.wrong == 0 {
		// What the explainer does not know is a mistake all the same.
		e.mistakes = append(e.mistakes, d.at("", oneLine(cmp.Or(err, failed))))
	}
	return e.mistakes, err == nil
}

// version is a line, after comments alone, that says of which version of YAML a text is.
var version = regexp.MustCompile(`\A((?:[ \t]*(?:#.*)?\r?\n)*)%YAML[ \t]+1\.[0-9]+[ \t]*(?:#.*)?\r?\n`)

// WithoutVersion returns YAML with an empty line in place of the one with its version: the
// parsers read what is in a file of version 1.2, but refuse that line.
func WithoutVersion(data []byte) []byte { return version.ReplaceAll(data, []byte("${1}\n")) }

// toJSON returns data as JSON, and the fields that YAML has twice.
func (d Decoder) toJSON(data []byte) (text []byte, duplicates []error, err error) {
	if json.Valid(data) && !d.YAML {
		return data, nil, nil
	}
	text, err = yaml.YAMLToJSON(data)
	if err != nil {
		return nil, nil, notYAML(err)
	}
	if _, err := yaml.YAMLToJSONStrict(data); err != nil {
		twice, ok := errors.AsType[*goyaml.TypeError](err)
		if !ok {
			return nil, nil, notYAML(err)
		}
		for _, text := range twice.Errors {
			duplicates = append(duplicates, d.at("", text))
		}
	}
	return text, duplicates, nil
}

// oneDocument checks that all that is in YAML is in its first document. Without this, the
// others would be ignored, however wrong they are.
func (d Decoder) oneDocument(data []byte) error {
	if json.Valid(data) && !d.YAML {
		return nil
	}
	decoder := goyaml.NewDecoder(bytes.NewReader(data))
	for i := 0; ; i++ {
		var document any
		switch err := decoder.Decode(&document); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return notYAML(err)
		case i > 0 && document != nil:
			return errors.New("there are several YAML documents: write all into one")
		}
	}
}

// quotes are where the errors of YAML quote values, which may be secret: one that begins
// with an asterisk is an unknown anchor.
var quotes = regexp.MustCompile("`.*`|anchor '.*'|(invalid map key: ).*")

func notYAML(err error) error {
	return fmt.Errorf("this is no YAML or JSON: %s", quotes.ReplaceAllString(oneLine(err), "${1}a value"))
}

// at returns a mistake at a path below that of the decoder.
func (d Decoder) at(path, text string) error {
	switch {
	case d.At != "" && path != "":
		path = d.At + "." + path
	case d.At != "":
		path = d.At
	}
	if path != "" {
		text = path + ": " + text
	}
	if d.Docs != "" {
		text += ": see " + d.Docs
	}
	return errors.New(text)
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
