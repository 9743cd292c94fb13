//go:build containers

package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// longLease is for how long nobody takes over from a process that the machine
// starves, which has other tests to run: two thirds of it the process itself goes
// on. A deleted pod gives up its leases at once, and that is what is tested.
const longLease = "        - --leader-elect-lease-duration=45s\n"

// patientManifests are a copy of the directory deploy, with long leases.
func patientManifests(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "deploy")
	must(t, os.CopyFS(dir, os.DirFS(manifests)))
	for name, before := range map[string]string{
		"deployment.yaml":            "        - --provider=mock\n",
		"kubernetes-deployment.yaml": "        - --leader-elect\n",
	} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		must(t, err)
		patient := strings.Replace(string(text), before, before+longLease, 1)
		if patient == string(text) {
			t.Fatalf("%s lacks the line %q", name, before)
		}
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(patient), 0o600))
	}
	return dir
}

// patientKubectl is a kubectl that waits as long as this test does, unless --timeout
// is set.
func patientKubectl(controlplane string) string {
	return `#!/bin/sh
case " $* " in
*" --timeout"*) ;;
*" wait "*) set -- "$@" --timeout=` + patience.String() + ` ;;
esac
exec ` + controlplane + ` kubectl "$@"
`
}
