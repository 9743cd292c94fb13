package config

import "regexp"

var tomlLine = regexp.MustCompile(`(?m)^[ \t]*([A-Za-z0-9_-]+)[ \t]*=[ \t]*`)

// FromFlatTOML returns a TOML file of the form that older providers have, a setting a line
// and no tables, as the YAML of the same meaning. Other data is returned as it is.
func FromFlatTOML(data []byte) []byte {
	return tomlLine.ReplaceAll(data, []byte("$1: "))
}
