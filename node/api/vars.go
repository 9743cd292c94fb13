package api

import (
	"net/http"
	"strings"

	"github.com/gorilla/mux"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// pathVar returns a variable of the request's path, from net/http's pattern or
// else from gorilla's.
func pathVar(r *http.Request, name string) string {
	if value := r.PathValue(name); value != "" {
		return value
	}
	return mux.Vars(r)[name]
}

// podVars returns the variables {namespace} and {pod} and the optional {uid},
// or an InvalidInput error: nothing that cannot be a name reaches a provider.
func podVars(r *http.Request) (namespace, pod, uid string, err error) {
	namespace, err = nameVar(r, "namespace", validation.IsDNS1123Label)
	if err != nil {
		return "", "", "", err
	}
	pod, err = nameVar(r, "pod", validation.IsDNS1123Subdomain)
	if err != nil {
		return "", "", "", err
	}
	return namespace, pod, pathVar(r, "uid"), nil
}

// containerVars is podVars with the variable {container}.
func containerVars(r *http.Request) (namespace, pod, uid, container string, err error) {
	namespace, pod, uid, err = podVars(r)
	if err != nil {
		return "", "", "", "", err
	}
	container, err = nameVar(r, "container", validation.IsDNS1123Label)
	if err != nil {
		return "", "", "", "", err
	}
	return namespace, pod, uid, container, nil
}

func nameVar(r *http.Request, name string, check func(string) []string) (string, error) {
	value := pathVar(r, name)
	if problems := check(value); len(problems) > 0 {
		return "", errdefs.InvalidInputf("invalid %s %q in the path: %s", name, shortText(value), strings.Join(problems, "; "))
	}
	return value, nil
}
