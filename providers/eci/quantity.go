package eci

import "encoding/json"

// quantity is the text of a quantity in a configuration file, where numbers need no
// quotes. Other values are kept as text, and fail to parse as a quantity later.
type quantity string

// UnmarshalJSON implements json.Unmarshaler, also for YAML.
func (q *quantity) UnmarshalJSON(data []byte) error {
	var text *string
	if json.Unmarshal(data, &text) != nil {
		*q = quantity(data)
		return nil
	}
	if text != nil {
		*q = quantity(*text)
	}
	return nil
}
