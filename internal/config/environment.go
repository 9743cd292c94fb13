package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Environment sets the values of variables, by name, to what getenv returns. Empty ones
// are left as they are. A value is a pointer to a string, a bool, a list of strings (with
// commas), or a type that JSON has as a string, such as resource.Quantity. The error names
// all variables with invalid values.
func Environment(getenv func(string) string, into map[string]any) error {
	var mistakes []error
	for _, name := range slices.Sorted(maps.Keys(into)) {
		text := getenv(name)
		if text == "" {
			continue
		}
		var err error
		switch value := into[name].(type) {
		case *string:
			*value = text
		case *[]string:
			*value = strings.FieldsFunc(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
		case *bool:
			if *value, err = strconv.ParseBool(text); err != nil {
				err = errors.New("it is neither true nor false")
			}
		default:
			var quoted []byte
			if quoted, err = json.Marshal(text); err == nil {
				err = json.Unmarshal(quoted, value)
			}
		}
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("%s: %s", name, oneLine(err)))
		}
	}
	return Join(mistakes...)
}
