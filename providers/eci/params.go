package eci

import (
	"fmt"
	"reflect"
	"strconv"
)

// params are the parameters of a call by name.
type params map[string]string

// object is a structure of parameters: texts, numbers, lists and other objects by name.
type object map[string]any

// set sets a parameter, or those of an object or a list below the name, with dots: the second
// object of a list is name.2. What is zero is left out, but for what a pointer points to and
// the texts of a list.
func (p params) set(name string, value any) {
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.Invalid:
	case reflect.Map:
		for key, inner := range v.Seq2() {
			if name == "" {
				p.set(key.String(), inner.Interface())
			} else {
				p.set(name+"."+key.String(), inner.Interface())
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			of := name + "." + strconv.Itoa(i+1)
			if element := v.Index(i); element.Kind() == reflect.String {
				p[of] = element.String()
			} else {
				p.set(of, element.Interface())
			}
		}
	case reflect.Pointer:
		if text, ok := value.(fmt.Stringer); ok && !v.IsNil() {
			p[name] = text.String()
		} else if !v.IsNil() {
			p[name] = fmt.Sprint(v.Elem().Interface())
		}
	default:
		if !v.IsZero() {
			p[name] = fmt.Sprint(value)
		}
	}
}

// each returns the objects of a list.
func each[T any](list []T, of func(*T) object) (all []object) {
	for i := range list {
		all = append(all, of(&list[i]))
	}
	return all
}
