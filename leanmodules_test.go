package virtualkubelet_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const rootModule = "github.com/virtual-kubelet/virtual-kubelet"

// lean is what programs that import one package of the library get with it on
// linux/amd64: numbers to lower, and never to raise.
var lean = []struct {
	pkg      string
	packages int // of others that are built, without those of Go: packages of this module are its own order
	linked   int // modules of these packages, this one included
	graph    int // modules of go list -m all, the program included

	neverLinked []string
}{
	{"node", 396, 57, 146, []string{"google.golang.org/grpc", "k8s.io/component-base", "k8s.io/kubectl"}},
	{"node/nodeutil", 830, 91, 211, []string{"k8s.io/kubectl"}},
}

// neverRequired are what providers and the binary need, and nobody else: no
// program that imports the library sees them in its module graph.
var neverRequired = []string{
	"github.com/aliyun/alibaba-cloud-sdk-go", "go.opentelemetry.io/contrib/exporters/autoexport",
}

// Users of the library pay for each module that comes with it, in downloads,
// builds and reports of vulnerabilities. The program is one of a third party, with
// the one replace line that such a program needs to build with a clone.
func TestLibraryIsLean(t *testing.T) {
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	// go.mod is read here so that a cached result of this test ends with its change.
	_, modErr := os.ReadFile("go.mod")
	sum, sumErr := os.ReadFile("go.sum")
	if err := errors.Join(modErr, sumErr); err != nil {
		t.Fatal(err)
	}
	for _, want := range lean {
		t.Run(want.pkg, func(t *testing.T) {
			t.Parallel()
			p := program{t, t.TempDir()}
			p.write("go.sum", string(sum))
			p.write("go.mod", fmt.Sprintf("module example.com/program\n\ngo 1.26.0\n\nrequire %[1]s v0.0.0\n\nreplace %[1]s => %[2]s\n", rootModule, root))
			p.write("main.go", fmt.Sprintf("package main\n\nimport _ %q\n\nfunc main() {}\n", rootModule+"/"+want.pkg))
			p.run("mod", "tidy")

			packages := p.run("list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./...")
			packages = slices.DeleteFunc(packages, func(pkg string) bool { return strings.HasPrefix(pkg, rootModule+"/") })
			linked := p.run("list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./...")
			slices.Sort(linked)
			linked = slices.Compact(linked)
			graph := p.run("list", "-m", "-f", "{{.Path}}", "all")

			atMost(t, "packages", packages, len(packages)-1, want.packages)
			atMost(t, "modules linked", linked, len(linked)-1, want.linked)
			atMost(t, "modules in the graph", graph, len(graph), want.graph)
			for _, module := range want.neverLinked {
				if slices.Contains(linked, module) {
					t.Errorf("links %s", module)
				}
			}
			for _, module := range neverRequired {
				if slices.Contains(graph, module) {
					t.Errorf("requires %s", module)
				}
			}
		})
	}
}

func atMost(t *testing.T, what string, list []string, got, most int) {
	t.Helper()
	switch {
	case got > most:
		t.Errorf("%d %s, want at most %d: import less, or ask for no newer version than needed\n%s", got, what, most, strings.Join(list, "\n"))
	case got < most:
		t.Logf("%d %s, at most %d allowed: lower the number", got, what, most)
	}
}

// program is a module in a directory of its own.
type program struct {
	t   *testing.T
	dir string
}

func (p program) write(name, text string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// run returns the lines that a go command writes.
func (p program) run(args ...string) []string {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), "go", args...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		p.t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return slices.DeleteFunc(strings.Split(string(out), "\n"), func(line string) bool { return line == "" })
}
