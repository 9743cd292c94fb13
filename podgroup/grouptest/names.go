package grouptest

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Params are the parameters of a call, by names with dots: Container.1.Name.
type Params map[string]string

// Each returns the parameters of each element of a list, without its prefix: of
// Container.1. and so on.
func (p Params) Each(name string) []Params {
	var list []Params
	for i := 1; ; i++ {
		prefix := name + "." + strconv.Itoa(i) + "."
		one := Params{}
		for key, value := range p {
			if rest, ok := strings.CutPrefix(key, prefix); ok {
				one[rest] = value
			}
		}
		if len(one) == 0 {
			return list
		}
		list = append(list, one)
	}
}

// Integer returns a parameter that is a number, or 0.
func (p Params) Integer(name string) int {
	n, _ := strconv.Atoi(p[name])
	return n
}

// Float returns a parameter that is a number, or 0.
func (p Params) Float(name string) float64 {
	f, _ := strconv.ParseFloat(p[name], 64)
	return f
}

// Published are the types of the parameters that each action of an API has, with N for an
// index: string, bool, int32, int64, float32.
type Published map[string]map[string]string

// ParsePublished parses a list: a line "# ACTION" before the lines "NAME TYPE" of its
// parameters.
func ParsePublished(text string) Published {
	all, action := Published{}, ""
	for line := range strings.Lines(text) {
		name, kind, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "#" {
			action = kind
			all[action] = map[string]string{}
			continue
		}
		all[action][name] = kind
	}
	return all
}

var index = regexp.MustCompile(`\.\d+(\.|$)`)

// Wrong returns the parameters that an action does not have, or not of that type, but for
// those that all actions have in common.
func (p Published) Wrong(action string, params Params, common []string) (names []string) {
	for name, value := range params {
		general := name
		for index.MatchString(general) { // matches may overlap
			general = index.ReplaceAllString(general, ".N$1")
		}
		if kind, ok := p[action][general]; !slices.Contains(common, name) && (!ok || !isOf(kind, value)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// isOf reports whether a value is of a type.
func isOf(kind, value string) bool {
	var err error
	switch kind {
	case "bool":
		return value == "true" || value == "false"
	case "int32":
		_, err = strconv.ParseInt(value, 10, 32)
	case "int64":
		_, err = strconv.ParseInt(value, 10, 64)
	case "float32":
		_, err = strconv.ParseFloat(value, 32)
	}
	return err == nil
}
