package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Environment sets the values of variables, by name, to what getenv returns. Empty ones
// are left as they are. A value is a pointer to a string, or to a type that JSON has as a
// string, such as resource.Quantity. The error names all variables with invalid values.
func Environment(getenv func(string) string, into map[string]any) error {
	var mistakes []error
	for _, name := range slices.Sorted(maps.Keys(into)) {
		text := getenv(name)
		if text == "" {
			continue
		}
		if value, ok := into[name].(*string); ok {
			*value = text
			continue
		}
		quoted, err := json.Marshal(text)
		if err == nil {
			err = json.Unmarshal(quoted, into[name])
		}
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("%s: %s", name, oneLine(err)))
		}
	}
	return Join(mistakes...)
}
