package virtualkubelet_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Who writes a provider of their own imports node, and perhaps nodeutil: that
// brings nothing of the providers that are here, nor of what they talk to.
func TestLibraryBringsNoProvider(t *testing.T) {
	// Each is what a provider here needs, and nobody else.
	ofProviders := []string{
		module + "providers/", module + "podengine", "k8s.io/cri-client",
	}
	brings := func(packages ...string) (found []string) {
		for dependency := range strings.Lines(deps(t, packages...)) {
			dependency = strings.TrimSpace(dependency)
			if slices.ContainsFunc(ofProviders, func(prefix string) bool { return strings.HasPrefix(dependency, prefix) }) {
				found = append(found, dependency)
			}
		}
		return found
	}
	if found := brings("./node/...", "./vkubelet", "./podspec/..."); len(found) > 0 {
		t.Errorf("who imports the library gets %v", found)
	}
	if found := brings("./providers/cri"); !slices.ContainsFunc(found, func(dependency string) bool { return strings.HasPrefix(dependency, "k8s.io/cri-client") }) {
		t.Error("the test does not see what providers/cri imports")
	}
}

func deps(t *testing.T, packages ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps"}, packages...)...).Output()
	if err != nil {
		t.Fatalf("go list -deps %v: %v", packages, err)
	}
	return string(out)
}
