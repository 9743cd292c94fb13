package scaffold

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Only what a module can require is taken for a release: Go names the binary of a checkout by a
// pseudo-version.
func TestRelease(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"v1.2.3": true, "v1.2.3-rc.1": true, "v1.2.3-alpha1": true,
		"": false, "devel": false, "(devel)": false, "v1.2": false, "v1.2.3+dirty": false,
		"v0.0.0-20261124030405-0123456789ab": false, "v1.2.4-0.20261124030405-0123456789ab+dirty": false,
	} {
		err := (&Options{Name: "acme", Module: "example.org/acme", Version: version}).Check()
		if (err == nil) != want {
			t.Errorf("%q: %v", version, err)
		}
		if err != nil && !strings.Contains(err.Error(), "no release") {
			t.Errorf("%q: %v", version, err)
		}
	}
}

// docs/write-a-provider.md begins with what is written, and names each file; examples/acme, where
// it leads, has what the author of a provider need not change as it was written.
func TestGuideBeginsWithWhatIsWritten(t *testing.T) {
	t.Parallel()
	const root = "../../../.."
	read := func(name string) []byte {
		t.Helper()
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	dir := t.TempDir()
	files, err := Write(dir, Options{Name: "acme", Module: "example.org/acme", Version: "v0.0.0", Replace: root, RBAC: []byte("rules")})
	if err != nil {
		t.Fatal(err)
	}
	page := read(filepath.Join(root, "docs", "write-a-provider.md"))
	for _, name := range files {
		if !bytes.Contains(page, []byte("`"+name+"`")) {
			t.Errorf("the page does not name %s", name)
		}
	}
	for name, to := range map[string]string{"config.go": "", "config.yaml": "", "main.go": "// NewProvider ", "conformance_test.go": "\t// TODO"} {
		written := read(filepath.Join(dir, name))
		if to != "" {
			written, _, _ = bytes.Cut(written, []byte(to))
		}
		if !bytes.HasPrefix(read(filepath.Join(root, "examples", "acme", name)), written) {
			t.Errorf("examples/acme/%s is not what was written: copy it%s", name, map[bool]string{true: ", to " + to}[to != ""])
		}
	}
}
