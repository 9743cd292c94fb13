package scaffold

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// root is the checkout.
const root = "../../../.."

// Only what a module can require is taken for a release: Go names the binary of a checkout by a
// pseudo-version.
func TestRelease(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"v1.2.3": true, "v1.2.3-rc.1": true, "v1.2.3-alpha1": true,
		"": false, "devel": false, "(devel)": false, "v1.2": false, "v1.2.3+dirty": false,
		"v0.0.0-20261124030405-0123456789ab": false, "v1.2.4-0.20261124030405-0123456789ab+dirty": false,
	} {
		err := (&Options{Name: "acme", Kind: "pod", Module: "example.org/acme", Version: version}).Check()
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
	read := func(name string) []byte {
		t.Helper()
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	dir := t.TempDir()
	files, err := Write(dir, Options{Name: "acme", Kind: "pod", Module: "example.org/acme", Version: "v0.0.0", Replace: root, RBAC: []byte("rules")})
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

// write makes a repository of the checkout, and returns its directory.
func write(t *testing.T, o Options) (dir string) {
	t.Helper()
	dir = t.TempDir()
	o.Module, o.Version, o.RBAC = "example.org/acme", "v0.0.0", []byte("rules")
	if o.Replace == "" {
		absolute, err := filepath.Abs(root)
		if err != nil {
			t.Fatal(err)
		}
		o.Replace = absolute
	}
	if _, err := Write(dir, o); err != nil {
		t.Fatal(err)
	}
	return dir
}

// What is written is formatted, builds, and passes go vet and its tests, with nothing but the
// modules of the checkout. TestInit runs the conformance kit on the kind pod.
func TestKinds(t *testing.T) {
	t.Parallel()
	for _, kind := range Kinds() {
		t.Run(kind, func(t *testing.T) {
			dir := write(t, Options{Name: "acme", Kind: kind})
			for _, command := range [][]string{
				{"gofmt", "-l", "."},
				{"go", "vet", "-tags", os.Getenv("VET_TAGS"), "./..."}, // as make lint, whose results for the library count here
				{"go", "test", "-vet=off", "-tags", "conformance", "-skip", "^TestConformance$", "./..."},
			} {
				cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
				cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod -trimpath", "CGO_ENABLED=0", "GOPROXY=off", "GOWORK=off")
				if out, err := cmd.CombinedOutput(); err != nil || command[0] == "gofmt" && len(out) > 0 {
					t.Errorf("%v: %v\n%s", command, err, out)
				}
			}
		})
	}
}

// The workflow passes on a machine that does not have the directory that go.mod names. (TestInit has its
// conformance kit.)
func TestWorkflow(t *testing.T) {
	t.Parallel()
	checkout, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	replace := filepath.Join(t.TempDir(), "virtual-kubelet")
	if err := os.Symlink(checkout, replace); err != nil {
		t.Fatal(err)
	}
	dir := write(t, Options{Name: "acme", Kind: "pod", Replace: replace})
	if err := os.Remove(replace); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, ".github", "workflows", "ci.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var workflow struct {
		Jobs struct {
			Test struct{ Steps []struct{ Run string } }
		}
	}
	if err := yaml.Unmarshal(text, &workflow); err != nil {
		t.Fatal(err)
	}
	// What git clones is this checkout, and make has nothing to do.
	programs := t.TempDir()
	for name, script := range map[string]string{"git": `for to; do :; done; exec ln -s "$CHECKOUT" "$to"`, "make": `exec test -e "$2/Makefile"`} {
		if err := os.WriteFile(filepath.Join(programs, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	steps := 0
	for _, step := range workflow.Jobs.Test.Steps {
		if step.Run == "" || strings.Contains(step.Run, "-tags conformance") {
			continue
		}
		steps++
		cmd := exec.CommandContext(t.Context(), "bash", "-e", "-c", strings.ReplaceAll(step.Run, " -race", " -vet=off")) // as TestKinds
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "CHECKOUT="+checkout, "PATH="+programs+":"+os.Getenv("PATH"), "GOFLAGS=-trimpath", "CGO_ENABLED=0", "GOWORK=off")
		if !strings.Contains(step.Run, "go mod tidy") { // once it has run, Go needs no more than there is
			cmd.Env = append(cmd.Env, "GOPROXY=off")
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", step.Run, err, out)
		}
	}
	if steps < 3 {
		t.Errorf("the workflow has %d steps that run something:\n%s", steps, text)
	}
}

// All that is wrong is in the error, with what to do.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		change func(*Options)
		want   string
	}{
		{func(o *Options) { o.Name = "Not_A_Name" }, `"Not_A_Name" cannot be the name of a provider`},
		{func(o *Options) { o.Name = "deploy" }, `"deploy" cannot be the name of a provider: it is that of a directory`},
		{func(o *Options) { o.Kind = "vm" }, `there is no kind "vm": give --kind one of pod`},
		{func(o *Options) { o.Module = "" }, `"" cannot be the path of a module`},
		{func(o *Options) { o.Module = "example.org/a b" }, "give --module one like example.org/acme"},
		{func(o *Options) { o.Module = "example.org/acme\n\nreplace a => b" }, "cannot be the path of a module"},
		{func(o *Options) { o.Module = "example.org/acme/v1" }, "cannot be the path of a module"},
		{func(o *Options) { o.Module = library }, "give --module another one"},
		{func(o *Options) { o.Replace = t.TempDir() }, "is no clone of Virtual Kubelet"},
		{func(o *Options) { o.Version = "v0.0.0-20261124030405-0123456789ab" }, "give --replace the directory of a clone"},
	} {
		o := Options{Name: "acme", Kind: "pod", Module: "example.org/acme", Version: "v1.0.0"}
		c.change(&o)
		dir := filepath.Join(t.TempDir(), "acme")
		if _, err := Write(dir, o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", o, err, c.want)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%+v: something was written", o)
		}
	}
}

// A checkout in a directory whose name go.mod has in quotes is found.
func TestReplaceWithSpaces(t *testing.T) {
	t.Parallel()
	absolute, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	replace := filepath.Join(t.TempDir(), "my (virtual) kubelet")
	if err := os.Symlink(absolute, replace); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(write(t, Options{Name: "acme", Kind: "pod", Replace: replace}), "go.mod")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := modfile.Parse(name, text, nil)
	if err != nil || len(mod.Replace) != 1 || mod.Replace[0].New.Path != replace {
		t.Errorf("%v of\n%s", err, text)
	}
}

// A name that YAML takes for something else than text is the name all the same.
func TestNamesInYAML(t *testing.T) {
	t.Parallel()
	for _, kind := range Kinds() {
		for _, name := range []string{"123", "1e3", "0x1f", "true", "null", "on", "2026-11-26"} {
			dir := write(t, Options{Name: name, Kind: kind})
			file, err := os.Open(filepath.Join(dir, "deploy", "node.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			documents := yaml.NewYAMLOrJSONDecoder(file, 4096)
			for range 2 {
				var object struct {
					Metadata struct{ Name any }
					Spec     struct {
						Selector struct{ MatchLabels map[string]any }
						Template struct {
							Spec struct{ ServiceAccountName any }
						}
					}
				}
				if err := documents.Decode(&object); err != nil {
					t.Fatal(err)
				}
				of := []any{object.Metadata.Name}
				if object.Spec.Selector.MatchLabels != nil {
					of = append(of, object.Spec.Selector.MatchLabels["app"], object.Spec.Template.Spec.ServiceAccountName)
				}
				for _, got := range of {
					if got != name {
						t.Errorf("%s: %q is %v in deploy/node.yaml", kind, name, got)
					}
				}
			}
			if err := file.Close(); err != nil {
				t.Error(err)
			}
			text, err := os.ReadFile(filepath.Join(dir, "chart-values.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			var values struct {
				NodeName        any
				Image, Provider struct{ Repository, Name any }
			}
			if err := yaml.Unmarshal(text, &values); err != nil {
				t.Fatal(err)
			}
			want := []any{name, name, name}
			if kind == "remote" { // it is virtual-kubelet that the chart runs
				want = []any{name, "localhost/virtual-kubelet", "remote"}
			}
			if got := []any{values.NodeName, values.Image.Repository, values.Provider.Name}; !slices.Equal(got, want) {
				t.Errorf("%s: in chart-values.yaml %q is %v, want %v", kind, name, got, want)
			}
		}
	}
}
