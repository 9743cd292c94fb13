package ecitest

import (
	_ "embed" // for published
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// list returns the values of a list: of Command.1 and so on.
func (p params) list(name string) []string {
	var list []string
	for i := 1; ; i++ {
		value, ok := p[name+"."+strconv.Itoa(i)]
		if !ok {
			return list
		}
		list = append(list, value)
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

// published has the names of the parameters of each action in the published model of
// the API, with N for an index.
//
//go:embed parameters.txt
var published string

// known are the names in published, by action.
var known = sync.OnceValue(func() map[string]map[string]bool {
	all, action := map[string]map[string]bool{}, ""
	for name := range strings.FieldsSeq(strings.ReplaceAll(published, "# ", "#")) {
		if next, ok := strings.CutPrefix(name, "#"); ok {
			action = next
			all[action] = map[string]bool{}
			continue
		}
		all[action][name] = true
	}
	return all
})

// common are the parameters of all actions.
var common = []string{
	"Action", "Version", "Format", "AccessKeyId", "SignatureMethod", "SignatureType", "SignatureVersion", "SignatureNonce", "Timestamp", "Signature",
}

var index = regexp.MustCompile(`\.\d+(\.|$)`)

// Unknown returns the names among those of params that are no parameters of an action.
func Unknown(action string, params map[string]string) []string {
	var names []string
	for name := range params {
		general := name
		for index.MatchString(general) { // matches may overlap
			general = index.ReplaceAllString(general, ".N$1")
		}
		if !known()[action][general] && !slices.Contains(common, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// checkNames refuses parameters that the action does not have. The real API may ignore
// them, so that nobody notices.
func (p params) checkNames() *apiError {
	if names := Unknown(p["Action"], p); len(names) > 0 {
		return refuse(http.StatusBadRequest, "InvalidParameter."+names[0], "%s does not have that parameter.", p["Action"])
	}
	return nil
}
