package config

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	strictjson "sigs.k8s.io/json"
)

// explainer finds all mistakes of a value that could not be decoded. Decoders report the
// first value of a wrong type only, and no unknown fields besides it.
type explainer struct {
	Decoder
	mistakes []error
	wrong    int // how many of them are values of wrong types
}

func (e *explainer) explain(text []byte, into any) {
	var tree any
	duplicates, _ := strictjson.UnmarshalStrict(text, &tree)
	for _, err := range duplicates {
		e.mistakes = append(e.mistakes, e.at("", err.Error()))
	}
	e.value(text, reflect.TypeOf(into).Elem(), "")
}

var (
	unmarshaler     = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// value explains the value at a path, which has to be of type t.
func (e *explainer) value(text json.RawMessage, t reflect.Type, path string) {
	if kindOf(text) == "null" {
		return
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	unmarshals := reflect.PointerTo(t).Implements(unmarshaler) || reflect.PointerTo(t).Implements(textUnmarshaler)
	var list []json.RawMessage
	var object map[string]json.RawMessage
	switch {
	case unmarshals:
		e.leaf(text, t, path)
	case t.Kind() == reflect.Struct && json.Unmarshal(text, &object) == nil:
		known := fields(t)
		for _, name := range slices.Sorted(maps.Keys(object)) {
			if field, ok := e.field(known, name); ok {
				e.value(object[name], field, child(path, name))
			} else {
				e.unknown(child(path, name), Nearest(name, slices.Sorted(maps.Keys(known))))
			}
		}
	case t.Kind() == reflect.Map && json.Unmarshal(text, &object) == nil:
		for _, name := range slices.Sorted(maps.Keys(object)) {
			e.value(object[name], t.Elem(), child(path, name))
		}
	case t.Kind() == reflect.Slice && json.Unmarshal(text, &list) == nil:
		for i, item := range list {
			e.value(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
		}
	case e.Loose && t.Kind() == reflect.String && !strings.ContainsAny(string(text[:1]), "{["):
	default:
		e.leaf(text, t, path)
	}
}

func (e *explainer) unknown(path, near string) {
	text := fmt.Sprintf("unknown field %q: leave it out", path)
	if near != "" {
		text += fmt.Sprintf(", or write %q", near)
	}
	e.mistakes = append(e.mistakes, e.at("", text))
}

// leaf explains a value without fields. It never quotes the value, which may be secret;
// the types that unmarshal themselves may.
func (e *explainer) leaf(text json.RawMessage, t reflect.Type, path string) {
	err := json.Unmarshal(text, reflect.New(t).Interface())
	if err == nil {
		return
	}
	what := oneLine(err)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		has, want := kindOf(text), nameOf(wrong.Type)
		what = fmt.Sprintf("it is of type %s, and has to be of type %s", has, want)
		if has == "number" && (want == has || strings.HasPrefix(want, "integer") && !strings.ContainsAny(string(text), ".eE")) {
			what = "it is out of range"
		}
	}
	e.mistakes = append(e.mistakes, e.at(path, what))
	e.wrong++
}

// field returns the type of a field.
func (e *explainer) field(known map[string]reflect.Type, name string) (reflect.Type, bool) {
	if t, ok := known[name]; ok || !e.Loose {
		return t, ok
	}
	for other, t := range known {
		if strings.EqualFold(other, name) {
			return t, true
		}
	}
	return nil, false
}

// fields returns the types of a struct's fields by their names in JSON.
func fields(t reflect.Type) map[string]reflect.Type {
	known := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch embedded := f.Type; {
		case name == "-":
		case f.Anonymous && name == "":
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			if embedded.Kind() == reflect.Struct {
				for name, t := range fields(embedded) {
					if _, ok := known[name]; !ok {
						known[name] = t
					}
				}
			}
		case !f.IsExported():
		case name == "":
			known[f.Name] = f.Type
		default:
			known[name] = f.Type
		}
	}
	return known
}

func child(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// kindOf is the type of a value in JSON.
func kindOf(text json.RawMessage) string {
	switch text[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "bool"
	case 'n':
		return "null"
	}
	return "number"
}

// nameOf is the type that a value in JSON has to have.
func nameOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "object"
	case reflect.Slice, reflect.Array:
		return "array"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "integer"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "integer from 0 on"
	case reflect.Float32, reflect.Float64:
		return "number"
	default:
		return t.Kind().String()
	}
}
