package podstatus

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
)

// otherFields are fields of a struct, by index, that are rarely set.
type otherFields []int

// fieldsBut are the fields of T but for the named ones.
func fieldsBut[T any](names ...string) otherFields {
	var others otherFields
	kind := reflect.TypeFor[T]()
	for i := range kind.NumField() {
		if !slices.Contains(names, kind.Field(i).Name) {
			others = append(others, i)
		}
	}
	return others
}

// same reports whether two structs, to which a and b point, are the same in these
// fields.
func (fields otherFields) same(a, b any) bool {
	x, y := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for _, i := range fields {
		f, g := x.Field(i), y.Field(i)
		if f.IsZero() && g.IsZero() {
			continue
		}
		if !equality.Semantic.DeepEqual(f.Interface(), g.Interface()) {
			return false
		}
	}
	return true
}
