package ecitest

import (
	_ "embed" // for published
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// params are the parameters of a call.
type params map[string]string

// each returns the parameters of each element of a list, without its prefix:
// of Container.1.Name and so on.
func (p params) each(name string) []params {
	var list []params
	for i := 1; ; i++ {
		prefix := name + "." + strconv.Itoa(i) + "."
		one := params{}
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

func (p params) integer(name string) int {
	n, _ := strconv.Atoi(p[name])
	return n
}

func (p params) float(name string) float64 {
	f, _ := strconv.ParseFloat(p[name], 64)
	return f
}

// identity returns the parameters that must be the same in two calls with the same
// client token.
func (p params) identity() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p)) {
		if !slices.Contains(common, name) {
			fmt.Fprintf(&b, "%s=%q\n", name, p[name])
		}
	}
	return b.String()
}

// published has the parameters of each action in the published model of the API, with N for
// an index, and their types.
//
//go:embed parameters.txt
var published string

// known are the types of the parameters in published, by action.
var known = sync.OnceValue(func() map[string]map[string]string {
	all, action := map[string]map[string]string{}, ""
	for line := range strings.Lines(published) {
		name, kind, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "#" {
			action = kind
			all[action] = map[string]string{}
			continue
		}
		all[action][name] = kind
	}
	return all
})

// common are the parameters of all actions.
var common = []string{
	"Action", "Version", "Format", "AccessKeyId", "SecurityToken", "SignatureMethod", "SignatureType", "SignatureVersion", "SignatureNonce", "Timestamp", "Signature",
}

var index = regexp.MustCompile(`\.\d+(\.|$)`)

// Wrong returns the parameters that an action does not have, or not of that type.
func Wrong(action string, params map[string]string) []string {
	var names []string
	for name, value := range params {
		general := name
		for index.MatchString(general) { // matches may overlap
			general = index.ReplaceAllString(general, ".N$1")
		}
		if kind, ok := known()[action][general]; !slices.Contains(common, name) && (!ok || !isOf(kind, value)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// isOf reports whether a value is of a type.
func isOf(kind, value string) (ok bool) {
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

func refuse(status int, code, format string, args ...any) error {
	return &grouptest.Refusal{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

func missing(name string) error {
	return refuse(http.StatusBadRequest, "MissingParameter", "The required parameter %s is not supplied.", name)
}

func invalid(name, format string, args ...any) error {
	return refuse(http.StatusBadRequest, "InvalidParameter."+name, format, args...)
}
