package ecitest

import (
	_ "embed" // for published
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// params are the parameters of a call.
type params = grouptest.Params

// identity returns the parameters that must be the same in two calls with the same
// client token.
func identity(p params) string {
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

var known = sync.OnceValue(func() grouptest.Published { return grouptest.ParsePublished(published) })

// common are the parameters of all actions.
var common = []string{
	"Action", "Version", "Format", "AccessKeyId", "SecurityToken", "SignatureMethod", "SignatureType", "SignatureVersion", "SignatureNonce", "Timestamp", "Signature",
}

// Wrong returns the parameters that an action does not have, or not of that type.
func Wrong(action string, p map[string]string) []string { return known().Wrong(action, p, common) }

func refuse(status int, code, format string, args ...any) error {
	return &grouptest.Refusal{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

func missing(name string) error {
	return refuse(http.StatusBadRequest, "MissingParameter", "The required parameter %s is not supplied.", name)
}

func invalid(name, format string, args ...any) error {
	return refuse(http.StatusBadRequest, "InvalidParameter."+name, format, args...)
}
