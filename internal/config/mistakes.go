package config

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// several are the mistakes of a configuration.
type several []error

// Join returns an error that names all mistakes in one line, or nil if there are none.
// Nil errors do not count.
func Join(mistakes ...error) error {
	var all several
	for _, err := range mistakes {
		if err != nil {
			all = append(all, err)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return all
}

func (s several) Error() string {
	texts := make([]string, len(s))
	for i, err := range s {
		texts[i] = err.Error()
	}
	return fmt.Sprintf("%d mistakes: %s", len(s), strings.Join(texts, "; "))
}

func (s several) Unwrap() []error { return s }

// split returns the errors that errors.Join or Join has joined.
func split(err error) (all []error) {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if _, ours := err.(several); !ok || !ours && reflect.TypeOf(err) != reflect.TypeOf(errors.Join(err)) {
		return []error{err}
	}
	for _, err := range joined.Unwrap() {
		all = append(all, split(err)...)
	}
	return all
}
