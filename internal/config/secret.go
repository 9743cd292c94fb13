package config

// Secret is a string that is never printed: printing, formatting or marshalling it
// results in a placeholder.
type Secret string

const hidden = "[hidden]"

// String implements fmt.Stringer.
func (Secret) String() string { return hidden }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return hidden }

// MarshalText implements encoding.TextMarshaler, for JSON, YAML and TOML.
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// Reveal returns the string.
func (s Secret) Reveal() string { return string(s) }
