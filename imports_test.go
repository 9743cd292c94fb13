package virtualkubelet_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/virtual-kubelet/virtual-kubelet/"

// allowed says which packages of this module a package may import, by prefix of
// its path; the longest prefix counts. Imports point one way.
var allowed = map[string][]string{
	".":                          {},
	"errdefs":                    {},
	"log":                        {"log"},
	"trace":                      {"log", "trace", "errdefs"},
	"internal/buildinfo":         {},
	"internal/queue":             {"log", "internal/periodic"},
	"internal/fault":             {"errdefs", "node"},
	"internal/podenv":            {"errdefs"},
	"internal/imagename":         {},
	"internal/podstatus":         {},
	"internal/resourcelist":      {},
	"internal/admission":         {},
	"internal/clusteruid":        {"errdefs"},
	"internal/daemon":            {},
	"internal/turns":             {},
	"internal/allocs":            {},
	"internal/apierror":          {"errdefs"},
	"internal/config":            {"errdefs"},
	"internal/dirlock":           {},
	"internal/filetree":          {},
	"internal/lastlines":         {},
	"internal/cputime":           {},
	"internal/listen":            {"log"},
	"internal/nodeaddress":       {},
	"internal/kubeconfig":        {},
	"internal/listwatch":         {"log", "internal/periodic"},
	"internal/nodemarks":         {},
	"internal/podobjects":        {"errdefs", "internal/listwatch", "internal/podenv"},
	"internal/lockedbuffer":      {},
	"internal/pendingconns":      {},
	"internal/podstream":         {},
	"internal/podwatch":          {"internal/listwatch"},
	"internal/statuspage":        {},
	"internal/shard":             {"errdefs", "log", "node"},
	"internal/fakeapi":           {},
	"internal/periodic":          {},
	"internal/providercalls":     {"errdefs", "log", "trace"},
	"internal/podlifecycle":      {"errdefs", "log", "trace", "internal/admission", "internal/apierror", "internal/periodic", "internal/podenv", "internal/podstatus", "internal/providercalls", "internal/queue"},
	"node":                       {"errdefs", "log", "trace", "internal/listwatch", "internal/periodic", "internal/podenv", "internal/podlifecycle", "internal/providercalls", "internal/queue", "internal/resourcelist"},
	"node/api":                   {"errdefs", "log", "trace", "node/api"},
	"node/queuemetrics":          {},
	"node/nodetest":              {"errdefs"},
	"node/nodeutil":              {"errdefs", "log", "trace", "node", "internal/buildinfo", "internal/kubeconfig", "internal/listwatch", "internal/nodeaddress", "internal/pendingconns", "internal/periodic", "internal/podobjects", "internal/podstatus", "internal/podwatch", "internal/providercalls", "internal/resourcelist", "internal/shard", "internal/statuspage"},
	"vkubelet":                   {"errdefs", "log", "trace", "node", "internal/listwatch", "internal/podobjects", "internal/podwatch", "internal/providercalls"},
	"podspec":                    {"errdefs", "log", "trace", "node", "internal/filetree", "internal/podenv", "internal/podobjects", "internal/podstatus", "internal/turns"},
	"podengine":                  {"errdefs", "log", "trace", "node", "podspec", "internal/filetree", "internal/imagename", "internal/periodic", "internal/podenv", "internal/podobjects", "internal/podstatus"},
	"podgroup":                   {"errdefs", "log", "trace", "node", "podengine", "podspec", "internal/clusteruid", "internal/cputime", "internal/imagename", "internal/periodic", "internal/podenv", "internal/providercalls", "internal/turns"},
	"podgroup/grouptest":         {"errdefs", "node", "podgroup", "podspec"},
	"internal/ccigateway":        {},
	"internal/nodecheck":         {"internal/listwatch", "internal/periodic", "internal/podstatus", "internal/podstream"},
	"internal/metricsservertest": {"internal/daemon", "internal/lockedbuffer", "test/controlplane"},
	"providers":                  {"errdefs", "log", "trace", "node", "podengine", "podgroup", "podspec", "internal/clusteruid", "internal/config", "internal/dirlock", "internal/filetree", "internal/lastlines", "internal/periodic", "internal/turns"},
	"providers/kubernetes":       {"errdefs", "log", "node", "podspec", "internal/apierror", "internal/clusteruid", "internal/config", "internal/cputime", "internal/kubeconfig", "internal/listwatch", "internal/periodic", "internal/podenv", "internal/podstatus", "internal/podstream"},
	"providers/kubernetes/internal/translate":  {"errdefs", "podspec", "internal/config", "internal/podstatus"},
	"providers/kubernetes/internal/claims":     {"errdefs", "log", "internal/apierror", "internal/listwatch", "providers/kubernetes/internal/translate"},
	"providers/kubernetes/internal/reflection": {"errdefs", "log", "node", "podspec", "internal/apierror", "providers/kubernetes/internal/translate"},
	"providers/kubernetes/internal/services":   {"log", "internal/apierror", "internal/listwatch", "providers/kubernetes/internal/translate"},
	"providers/eci":                            {"errdefs", "log", "trace", "node", "podengine", "podgroup", "podspec", "internal/clusteruid", "internal/config"},
	"providers/aci":                            {"errdefs", "log", "node", "podgroup", "podspec", "internal/config"},
	"providers/azurebatch":                     {"errdefs", "log", "node", "podgroup", "podspec", "internal/config", "internal/periodic"},
	"providers/fargate":                        {"errdefs", "node", "podgroup", "podspec", "internal/clusteruid", "internal/config", "internal/periodic", "internal/turns"},
	"providers/nomad":                          {"errdefs", "log", "node", "podgroup", "podspec", "internal/config", "internal/lastlines", "internal/periodic"},
	"providers/zun":                            {"errdefs", "log", "node", "podgroup", "podspec", "internal/config"},
	"providers/huaweicci":                      {"errdefs", "log", "node", "internal/apierror", "internal/config", "providers/kubernetes"},
	"providers/stackpath":                      {"errdefs", "node", "podgroup", "podspec", "internal/config"},
	"providers/machine":                        {"errdefs", "log", "node", "podgroup", "podspec", "internal/clusteruid", "internal/config", "internal/pendingconns", "internal/periodic", "internal/providercalls", "internal/turns", "providers/machine", "providers/remote"},
	"providers/machine/internal/machinetest":   {"internal/daemon", "node", "providers/machine", "providers/mock"},
	"providers/machine/ec2":                    {"errdefs", "log", "podgroup", "internal/config", "providers/machine"},
	"providers/interlink/plugin":               {"errdefs", "log", "node", "podengine", "podspec", "internal/config", "internal/periodic", "internal/providercalls", "internal/turns", "providers/interlink"},
	"providers/remote":                         {"errdefs", "log", "trace", "node", "podspec", "internal/clusteruid", "internal/config", "internal/listen", "internal/periodic", "internal/providercalls", "internal/turns"},
	"providers/slurm":                          {"errdefs", "log", "node", "podgroup", "podspec", "internal/config", "internal/lastlines"},
	"providers/providertest":                   {"errdefs", "log", "trace", "node", "internal/nodeaddress", "internal/nodecheck", "test/controlplane"},
	"test":                                     {"test", "errdefs", "log", "node", "internal/daemon", "internal/nodecheck", "internal/metricsservertest"},
	"examples":                                 {"errdefs", "log", "trace", "node", "podspec"},
	"bench":                                    {"bench", "node", "internal/daemon", "test"},
	"cmd":                                      {"errdefs", "log", "trace", "node", "podengine", "internal/buildinfo", "internal/config", "internal/kubeconfig", "internal/listen", "internal/nodeaddress", "internal/nodecheck", "internal/nodemarks", "internal/periodic", "internal/statuspage", "providers"},
	"bench/soak":                               {"bench", "internal/daemon", "internal/fault", "internal/periodic", "test"},

	"cmd/virtual-kubelet/internal/doctor":     {"node", "internal/nodemarks", "internal/shard"},
	"cmd/virtual-kubelet/internal/deregister": {"node", "internal/nodemarks", "internal/shard", "cmd/virtual-kubelet/internal/doctor"},
	"cmd/virtual-kubelet/internal/nodepools":  {"internal/config"},
	"cmd/virtual-kubelet/internal/settings":   {"internal/config"},
	"cmd/virtual-kubelet/internal/fleet":      {"log", "node", "internal/nodemarks", "internal/resourcelist", "cmd/virtual-kubelet/internal/nodepools"},
}

// released are the directories of the modules that are released with this one. All
// rules hold for them, too.
var released = []string{"cmd/virtual-kubelet", "providers/aci", "providers/azurebatch", "providers/eci", "providers/fargate", "providers/machine/ec2", "providers/nomad", "providers/zun"}

// files calls f for each Go file of this module and the released ones that is no test.
func files(t *testing.T, f func(path string, file *ast.File, set *token.FileSet)) {
	t.Helper()
	count := 0
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			_, nested := os.Stat(filepath.Join(path, "go.mod"))
			nestedOther := nested == nil && !slices.Contains(released, filepath.ToSlash(path))
			if path != "." && (nestedOther || strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		count++
		f(filepath.ToSlash(path), file, set)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if count < 50 {
		t.Fatalf("found %d files only", count)
	}
}

func TestImportsPointOneWay(t *testing.T) {
	files(t, func(path string, file *ast.File, set *token.FileSet) {
		pkg := filepath.ToSlash(filepath.Dir(path))
		rule := ""
		for prefix := range allowed {
			if within(pkg, prefix) && len(prefix) > len(rule) {
				rule = prefix
			}
		}
		if rule == "" {
			t.Errorf("%s: no rule says what package %s may import: add one", path, pkg)
			return
		}
		for _, spec := range file.Imports {
			imported := strings.Trim(spec.Path.Value, `"`)
			if imported == "k8s.io/kubernetes" || strings.HasPrefix(imported, "k8s.io/kubernetes/") {
				t.Errorf("%s imports %s, which only the module controlplane may", path, imported)
			}
			ours, is := strings.CutPrefix(imported, module)
			if !is || within(ours, pkg) || within(pkg, rule) && within(ours, rule) && rule != "node" {
				continue
			}
			ok := false
			for _, prefix := range allowed[rule] {
				ok = ok || within(ours, prefix)
			}
			if !ok {
				t.Errorf("%s imports %s, which packages below %s may not", path, ours, rule)
			}
		}
	})
}

func within(pkg, prefix string) bool { return pkg == prefix || strings.HasPrefix(pkg, prefix+"/") }

// Libraries take what they need as arguments, and return errors: they read no
// environment, flags or files, and do not panic.
func TestLibrariesReadNoEnvironmentAndDoNotPanic(t *testing.T) {
	// What the contract's names promise, and what starts processes for tests.
	readers := map[string]bool{
		"internal/allocs/allocs.go":                    true, // for tests
		"internal/dirlock/dirlock.go":                  true, // the lock
		"internal/listen/listen.go":                    true, // certificates, which change
		"internal/metricsservertest/metricsserver.go":  true, // for tests
		"node/nodeutil/client.go":                      true, // ClientsetFromEnv
		"node/nodeutil/tls.go":                         true, // WithCAFromPath
		"node/nodeutil/polledfiles.go":                 true, // WithKeyPairFromPath, WithClientCAFile
		"providers/process/runtime/runtime_linux.go":   true, // MaybeShim: the arguments of a shim
		"providers/process/runtime/shim/main_linux.go": true, // the same, as a program
		"providers/cri/relay/process_linux.go":         true, // MaybeRelay: the arguments of a relay
		"providers/process/runtime/spec_linux.go":      true, // Config.Environment
		"providers/interlink/files.go":                 true, // tokens and certificates, which change
		"providers/remote/config.go":                   true, // certificates, which change
		"podgroup/grouptest/checkload.go":              true, // for tests
	}
	forbidden := map[string]bool{
		"os.Getenv": true, "os.LookupEnv": true, "os.Environ": true, "os.ExpandEnv": true, "os.Args": true,
		"os.ReadFile": true, "os.Open": true, "os.OpenFile": true, "os.Create": true, "os.WriteFile": true, "os.Stat": true,
		"flag.Parse": true, "flag.String": true, "flag.Bool": true, "flag.Int": true,
	}
	keepers := []string{
		"podspec/volume/",                 // files are what volumes are
		"podengine/",                      // state, logs and termination messages
		"providers/cri/",                  // of a machine: they say what it has,
		"providers/process/",              // and keep processes on it
		"providers/providertest/agent.go", // the log of an agent under test
		"providers/machine/",              // a certificate authority, and records of machines
		"podgroup/grouptest/",             // calls of a provider, as its docs have them
		"test/containerd/",
		"test/slurm/",
	}
	ofFiles := map[string]bool{"ReadFile": true, "Open": true, "OpenFile": true, "Create": true, "WriteFile": true, "Stat": true}
	files(t, func(path string, file *ast.File, set *token.FileSet) {
		if strings.HasPrefix(path, "cmd/") || strings.HasPrefix(path, "examples/") || strings.HasPrefix(path, "bench/") || strings.HasPrefix(path, "test/controlplane/") {
			return
		}
		onDisk := slices.ContainsFunc(keepers, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if name, ok := n.Fun.(*ast.Ident); ok && name.Name == "panic" && !isAbort(n.Args[0]) && path != "internal/fault/call.go" {
					t.Errorf("%s panics: return an error", set.Position(n.Pos()))
				}
			case *ast.SelectorExpr:
				if pkg, ok := n.X.(*ast.Ident); ok && forbidden[pkg.Name+"."+n.Sel.Name] && !readers[path] && !(onDisk && ofFiles[n.Sel.Name]) {
					t.Errorf("%s uses %s.%s: leave that to cmd", set.Position(n.Pos()), pkg.Name, n.Sel.Name)
				}
			}
			return true
		})
	})
}

// isAbort reports whether a panic is http.ErrAbortHandler, net/http's own way to
// end a request.
func isAbort(arg ast.Expr) bool {
	selector, ok := arg.(*ast.SelectorExpr)
	return ok && selector.Sel.Name == "ErrAbortHandler"
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	documented := map[string]bool{}
	files(t, func(path string, file *ast.File, _ *token.FileSet) {
		pkg := filepath.Dir(path)
		documented[pkg] = documented[pkg] || file.Doc != nil
	})
	for pkg, ok := range documented {
		if !ok {
			t.Errorf("package %s has no doc comment", pkg)
		}
	}
}

// What the README shows as a provider is a program that compiles.
func TestReadmeShowsTheExample(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("examples/minimal/main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, body, ok := bytes.Cut(program, []byte("// provider holds"))
	if !ok || !bytes.Contains(readme, bytes.TrimSpace(body)) {
		t.Error("README.md does not show examples/minimal/main.go as it is: copy it from \"// provider holds\" on")
	}
}

// What docs/write-a-provider.md shows as Go is, word for word, of a program that its tests
// run, and TestInit with the conformance kit.
func TestGuideShowsTheExample(t *testing.T) {
	page, err := os.ReadFile("docs/write-a-provider.md")
	if err != nil {
		t.Fatal(err)
	}
	sources, err := filepath.Glob("examples/acme/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var program []byte
	for _, name := range sources {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		program = append(program, source...)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) == 0 {
		t.Error("the page has no code")
	}
	for _, block := range blocks {
		if !bytes.Contains(program, block[1]) {
			t.Errorf("docs/write-a-provider.md shows what examples/acme does not have:\n%s", block[1])
		}
	}
}

// The code that docs/choose.md measures has as many lines as it says, give or take a tenth.
func TestChoicesAreMeasured(t *testing.T) {
	page, err := os.ReadFile("docs/choose.md")
	if err != nil {
		t.Fatal(err)
	}
	measured := regexp.MustCompile(`\]\(\.\./([^)]+)\): (\d+) lines`).FindAllStringSubmatch(string(page), -1)
	if len(measured) < 5 {
		t.Errorf("%d numbers were found on the page", len(measured))
	}
	for _, m := range measured {
		paths := []string{m[1]}
		if filepath.Ext(m[1]) == "" {
			if paths, err = filepath.Glob(m[1] + "/*.go"); err != nil {
				t.Fatal(err)
			}
		}
		lines := 0
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") && !strings.HasPrefix(line, "#") {
					lines++
				}
			}
		}
		if says, _ := strconv.Atoi(m[2]); says*10 < lines*9 || says*10 > lines*11 {
			t.Errorf("docs/choose.md has %d lines for %s, which has %d", says, m[1], lines)
		}
	}
}

// Metrics belong to the registry of a node, or of a program: package main alone registers
// them for the whole process, and sets client-go's hooks.
func TestNoGlobalMetrics(t *testing.T) {
	global := regexp.MustCompile(`^(legacyregistry\.(\w*Register|Registerer|Handler)|prometheus\.(Register|MustRegister|DefaultRegisterer)|promauto\.\w+|workqueue\.SetProvider)$`)
	files(t, func(path string, file *ast.File, set *token.FileSet) {
		if file.Name.Name == "main" {
			return
		}
		for _, spec := range file.Imports {
			if spec.Name != nil && spec.Name.Name == "_" && strings.Contains(spec.Path.Value, "component-base/metrics") {
				t.Errorf("%s: importing %s sets hooks of the whole process; leave that to main", set.Position(spec.Pos()), spec.Path.Value)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if pkg, ok := sel.X.(*ast.Ident); ok && global.MatchString(pkg.Name+"."+sel.Sel.Name) {
					t.Errorf("%s: %s.%s is of the whole process; use a registry of the node, or of the caller", set.Position(sel.Pos()), pkg.Name, sel.Sel.Name)
				}
			}
			return true
		})
	})
}

// These pages say which test keeps what; each of them is there.
func TestNamedTestsExist(t *testing.T) {
	pages := map[string][]byte{"docs/architecture.md": nil, "docs/choose.md": nil, "docs/migrate.md": nil, "docs/write-a-provider.md": nil}
	for name := range pages {
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		pages[name] = page
	}
	exist := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			exist[found[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for page, text := range pages {
		for _, name := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(text), -1) {
			if !exist[name[1]] {
				t.Errorf("%s names %s, and there is no such test", page, name[1])
			}
		}
	}
}

// docs/architecture.md has a map of the packages: each is named, or is part of one that is.
func TestMapOfPackages(t *testing.T) {
	page, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]bool{}
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || path == "examples" || path == "bin") {
			return fs.SkipDir
		}
		if dir := filepath.ToSlash(filepath.Dir(path)); dir != "." && strings.HasSuffix(path, ".go") {
			packages[dir] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := func(dir string) bool {
		for ; dir != "."; dir = filepath.ToSlash(filepath.Dir(dir)) {
			if bytes.Contains(page, []byte("\n"+dir+"/ ")) || bytes.Contains(page, []byte(" "+dir+"/ ")) {
				return true
			}
		}
		return false
	}
	for dir := range packages {
		if !named(dir) {
			t.Errorf("docs/architecture.md does not name package %s", dir)
		}
	}
}
