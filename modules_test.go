package virtualkubelet_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// byThemselves are the modules that are not released: they build test tools, and
// require nothing of this repository.
var byThemselves = []string{"conformance", "controlplane", "test/browser", "test/cloudproviders", "test/compat", "test/helm", "test/liqo", "test/metricsserver", "test/nomad", "test/observability"}

// goMod is what go mod edit -json says.
type goMod struct {
	Module  struct{ Path string }
	Go      string
	Require []struct{ Path, Version string }
	Replace []struct {
		Old, New struct{ Path, Version string }
	}
}

func readGoMod(t *testing.T, dir string) (m goMod) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", filepath.Join(dir, "go.mod")).Output()
	if err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	if err := json.Unmarshal(out, &m); err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	return m
}

// Each go command sees one module: what is not in a list is neither built nor tested.
func TestEachModuleIsInAList(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^MODULES = \. (.*)$`).FindSubmatch(makefile)
	if line == nil {
		t.Fatal("the Makefile has no MODULES that begin with the root")
	}
	made := strings.Fields(string(line[1]))
	slices.Sort(made)
	if !slices.Equal(made, released) {
		t.Errorf("MODULES of the Makefile are %q, released are %q", made, released)
	}
	err = filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != "." && (strings.HasPrefix(entry.Name(), ".") || path == "bin") {
			return fs.SkipDir
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		if entry.Name() == "go.mod" && dir != "." && !slices.Contains(released, dir) && !slices.Contains(byThemselves, dir) {
			t.Errorf("%s: name the module in MODULES of the Makefile and in released, or in byThemselves", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// In a clone the modules that are released together build with each other as they are
// there, while a program with one replace line for the library needs no other.
func TestReleasedModulesBuildWithEachOther(t *testing.T) {
	library := readGoMod(t, ".")
	if len(library.Replace) > 0 {
		t.Errorf("the root's go.mod replaces %v, which holds for no program that requires it", library.Replace)
	}
	for _, required := range library.Require {
		if strings.HasPrefix(required.Path, module) || slices.Contains(neverRequired, required.Path) {
			t.Errorf("the root requires %s, and so does every program that imports the library", required.Path)
		}
	}
	for _, dir := range released {
		m := readGoMod(t, dir)
		if m.Module.Path != module+dir {
			t.Errorf("%s is module %s, want %s", dir, m.Module.Path, module+dir)
		}
		if m.Go != library.Go {
			t.Errorf("%s has go %s, and the root %s: it decides what the programs do by default", dir, m.Go, library.Go)
		}
		for _, required := range m.Require {
			other, ours := strings.CutPrefix(required.Path+"/", module)
			if !ours {
				continue
			}
			if required.Version != "v0.0.0" {
				t.Errorf("%s requires %s %s, want v0.0.0 except in the commits of a release", dir, required.Path, required.Version)
			}
			replaced := ""
			for _, r := range m.Replace {
				if r.Old.Path == required.Path {
					replaced = r.New.Path
				}
			}
			if want := filepath.Clean("./" + other); replaced == "" || filepath.Join(dir, replaced) != want {
				t.Errorf("%s replaces %s by %q, want the path to %s", dir, required.Path, replaced, want)
			}
		}
	}
}

// go install refuses a module with replace lines, and go get needs versions that are there.
func TestReleasedModulesRequireTheVersion(t *testing.T) {
	copied := t.TempDir()
	for _, name := range []string{"scripts/release-modules.sh", "providers/aci/go.mod", "providers/azurebatch/go.mod", "providers/eci/go.mod", "providers/fargate/go.mod", "providers/machine/ec2/go.mod", "providers/nomad/go.mod", "providers/zun/go.mod", "cmd/virtual-kubelet/go.mod"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(copied, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(copied, name), text, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), filepath.Join(copied, "scripts/release-modules.sh"), "-n", "v1.2.3").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, dir := range released {
		m := readGoMod(t, filepath.Join(copied, dir))
		if len(m.Replace) > 0 {
			t.Errorf("%s replaces %v", dir, m.Replace)
		}
		for _, required := range m.Require {
			if strings.HasPrefix(required.Path+"/", module) && required.Version != "v1.2.3" {
				t.Errorf("%s requires %s %s", dir, required.Path, required.Version)
			}
		}
	}
	if err := exec.CommandContext(t.Context(), filepath.Join(copied, "scripts/release-modules.sh"), "-n", "1.2").Run(); err == nil {
		t.Error("a version without v is taken")
	}
}
