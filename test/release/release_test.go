//go:build integration

package release

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

const (
	version = "v0.0.1-test"
	page    = "../../docs/release.md"
	binary  = "virtual-kubelet-" + version + "-linux-" + runtime.GOARCH
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run runs a program in a directory to its end, and returns what it prints.
func run(t *testing.T, dir, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// mustRun is run for what has to succeed.
func mustRun(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	out, err := run(t, dir, name, args...)
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return out
}

// releaser is somebody who has a clone of what is committed, with the tag, and a key.
type releaser struct{ clone, commit, key, publicKey string }

func newReleaser(t *testing.T) releaser {
	t.Helper()
	dir := t.TempDir()
	r := releaser{clone: filepath.Join(dir, "clone"), key: filepath.Join(dir, "key")}
	mustRun(t, ".", "git", "clone", "-q", "../..", r.clone)
	mustRun(t, r.clone, "git", "tag", "cmd/virtual-kubelet/"+version)
	r.commit = strings.TrimSpace(mustRun(t, r.clone, "git", "rev-parse", "HEAD"))
	mustRun(t, dir, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", r.key)
	text, err := os.ReadFile(r.key + ".pub")
	must(t, err)
	r.publicKey = strings.TrimSpace(string(text))
	return r
}

// release makes a release for this machine, with the provider mock alone.
func (r releaser) release(t *testing.T, dir string) {
	t.Helper()
	mustRun(t, r.clone, "scripts/release.sh", "-k", r.key, "-a", runtime.GOARCH, "-p", "mock", version, dir)
}

// verify runs the commands of docs/release.md that verify a release.
func verify(t *testing.T, dir, publicKey string) (string, error) {
	t.Helper()
	text, err := os.ReadFile(page)
	must(t, err)
	_, section, _ := strings.Cut(string(text), "\n## Verify it\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var script string
	for _, line := range regexp.MustCompile(`(?m)^    .*\n`).FindAllString(section, -1) {
		script += strings.TrimPrefix(line, "    ")
	}
	if strings.Count(script, "\n") != 6 {
		t.Fatalf("docs/release.md has these commands:\n%s", script)
	}
	script = strings.NewReplacer("PUBLIC-KEY", publicKey, "VERSION", version, "linux-amd64", "linux-"+runtime.GOARCH).Replace(script)
	return run(t, dir, "bash", "-eu", "-o", "pipefail", "-c", script)
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	must(t, err)
	return content
}

func sum(content []byte) string {
	digest := sha256.Sum256(content)
	return hex.EncodeToString(digest[:])
}

// A release is verified by the commands that the page shows, and has what the page says. Another
// run makes the same.
func TestRelease(t *testing.T) {
	r := newReleaser(t)
	// What is not committed is no part of a release.
	must(t, os.WriteFile(filepath.Join(r.clone, "cmd/virtual-kubelet/broken.go"), []byte("package broken"), 0o600))
	first, second := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "second")
	r.release(t, first)
	mustRun(t, r.clone, "git", "tag", "cmd/virtual-kubelet/v0.0.1") // the commit is that of a later release, too
	t.Setenv("GOAMD64", "v3")                                       // of the one who makes it, not of those who run it
	r.release(t, second)
	names := strings.Fields(mustRun(t, first, "ls"))
	want := []string{"SHA256SUMS", "SHA256SUMS.sig", "virtual-kubelet-" + version + "-image.tar", binary, binary + ".cdx.json", "virtual-kubelet-" + version + ".provenance.json"}
	if len(names) != len(want) {
		t.Errorf("the release has %q, want %q", names, want)
	}
	for _, name := range want {
		if !bytes.Equal(read(t, filepath.Join(first, name)), read(t, filepath.Join(second, name))) {
			t.Errorf("two runs have made different files %s", name)
		}
	}
	if left, err := filepath.Glob(first + ".*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}

	out, err := verify(t, first, r.publicKey)
	if err != nil || !strings.Contains(out, "Good \"virtual-kubelet-release\" signature") || strings.Count(out, ": OK") != len(want)-2 || !strings.Contains(out, r.commit) {
		t.Errorf("to verify it: %v\n%s", err, out)
	}
	t.Run("binary", func(t *testing.T) { r.checkBinary(t, first) })
	t.Run("image", func(t *testing.T) { checkImage(t, first) })
	t.Run("provenance", func(t *testing.T) { r.checkProvenance(t, first, want[2:5]) })
	t.Run("hostile", func(t *testing.T) { r.checkHostile(t, first) })
}

// checkBinary checks that the binary is the tagged one, and that its bill of materials has the
// modules that the binary itself says it is made of.
func (r releaser) checkBinary(t *testing.T, dir string) {
	file := filepath.Join(dir, binary)
	out := mustRun(t, dir, file, "providers")
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 1 || !strings.HasPrefix(lines[0], "mock") {
		t.Errorf("it has the providers\n%s", out)
	}
	info, err := buildinfo.ReadFile(file)
	must(t, err)
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if settings["vcs.revision"] != r.commit || settings["vcs.modified"] != "false" || settings["CGO_ENABLED"] != "0" || info.Main.Version != version {
		t.Errorf("it is %s, built with %v, want %s, of commit %s without changes", info.Main.Version, settings, version, r.commit)
	}
	var bill struct {
		BOMFormat, SpecVersion string
		Metadata               struct {
			Component struct {
				Version string
				Hashes  []struct{ Alg, Content string }
			}
		}
		Components   []struct{ Name, Version, PURL string }
		Dependencies []struct{ DependsOn []string }
	}
	must(t, json.Unmarshal(read(t, file+".cdx.json"), &bill))
	about := bill.Metadata.Component
	if bill.BOMFormat != "CycloneDX" || about.Version != version || len(about.Hashes) != 1 || about.Hashes[0].Content != sum(read(t, file)) {
		t.Errorf("the bill of materials is about %+v", about)
	}
	listed := map[string]string{}
	for _, c := range bill.Components {
		if c.Version == "" || c.PURL != "pkg:golang/"+c.Name+"@"+strings.ReplaceAll(c.Version, "+", "%2B") {
			t.Errorf("a component is %+v", c)
		}
		listed[c.Name] = c.Version
	}
	want := map[string]string{"std": strings.TrimPrefix(info.GoVersion, "go")}
	for _, dep := range info.Deps {
		if dep.Replace != nil { // by the directory of the same release
			want[dep.Path] = version
			continue
		}
		want[dep.Path] = dep.Version
	}
	if len(listed) != len(want) || len(bill.Dependencies) != 1 || len(bill.Dependencies[0].DependsOn) != len(want) {
		t.Errorf("it lists %d modules, and the binary has %d", len(listed), len(want))
	}
	for name, is := range want {
		if listed[name] != is {
			t.Errorf("it lists %s %q, and the binary has %q", name, listed[name], is)
		}
	}
}

// checkImage checks that the image has the binary of the release, and that each blob is what its name says.
func checkImage(t *testing.T, dir string) {
	files := map[string][]byte{}
	archive := tar.NewReader(bytes.NewReader(read(t, filepath.Join(dir, "virtual-kubelet-"+version+"-image.tar"))))
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		content, err := io.ReadAll(archive)
		must(t, err)
		files[header.Name] = content
		if digest, ok := strings.CutPrefix(header.Name, "blobs/sha256/"); ok && digest != "" && sum(content) != digest {
			t.Errorf("%s has another digest", header.Name)
		}
	}
	type descriptor struct {
		MediaType, Digest string
		Size              int
		Annotations       map[string]string
		Platform          struct{ OS, Architecture string }
	}
	type document struct {
		Manifests, Layers []descriptor
		Config            descriptor
	}
	follow := func(d descriptor) (next document) {
		t.Helper()
		content := files["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
		if len(content) == 0 || len(content) != d.Size {
			t.Fatalf("%+v has %d bytes", d, len(content))
		}
		must(t, json.Unmarshal(content, &next))
		return next
	}
	var top document
	must(t, json.Unmarshal(files["index.json"], &top))
	if len(top.Manifests) != 1 || top.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != version ||
		top.Manifests[0].Annotations["io.containerd.image.name"] != "localhost/virtual-kubelet:"+version {
		t.Fatalf("the layout has %+v", top)
	}
	index := follow(top.Manifests[0])
	if len(index.Manifests) != 1 || index.Manifests[0].Platform.OS != "linux" || index.Manifests[0].Platform.Architecture != runtime.GOARCH {
		t.Fatalf("the image is for %+v", index)
	}
	manifest := follow(index.Manifests[0])
	follow(manifest.Config)
	if len(manifest.Layers) != 1 {
		t.Fatalf("the image has the layers %+v", manifest.Layers)
	}
	unpacked := t.TempDir()
	must(t, os.WriteFile(filepath.Join(unpacked, "layer"), files["blobs/sha256/"+strings.TrimPrefix(manifest.Layers[0].Digest, "sha256:")], 0o600))
	mustRun(t, unpacked, "tar", "-xzf", "layer", "virtual-kubelet")
	if !bytes.Equal(read(t, filepath.Join(unpacked, "virtual-kubelet")), read(t, filepath.Join(dir, binary))) {
		t.Error("the image has another binary")
	}
}

// checkProvenance checks that the statement is about the commit and all files that were built.
func (r releaser) checkProvenance(t *testing.T, dir string, files []string) {
	var statement struct {
		Type          string `json:"_type"`
		PredicateType string
		Subject       []struct {
			Name   string
			Digest map[string]string
		}
		Predicate struct {
			BuildDefinition struct {
				ExternalParameters   struct{ Version string }
				InternalParameters   struct{ Go string }
				ResolvedDependencies []struct {
					URI    string
					Digest map[string]string
				}
			}
		}
	}
	must(t, json.Unmarshal(read(t, filepath.Join(dir, "virtual-kubelet-"+version+".provenance.json")), &statement))
	if statement.Type != "https://in-toto.io/Statement/v1" || statement.PredicateType != "https://slsa.dev/provenance/v1" {
		t.Errorf("it is a %s about %s", statement.Type, statement.PredicateType)
	}
	build := statement.Predicate.BuildDefinition
	if build.ExternalParameters.Version != version || build.InternalParameters.Go == "" || len(build.ResolvedDependencies) != 2 || build.ResolvedDependencies[0].Digest["gitCommit"] != r.commit {
		t.Errorf("it says of the build %+v", build)
	}
	subjects := map[string]string{}
	for _, s := range statement.Subject {
		subjects[s.Name] = s.Digest["sha256"]
	}
	if len(subjects) != len(files) {
		t.Errorf("it is about %v, want %q", subjects, files)
	}
	for _, name := range files {
		if subjects[name] != sum(read(t, filepath.Join(dir, name))) {
			t.Errorf("it has the digest %s of %s", subjects[name], name)
		}
	}
}

// checkHostile checks that what was changed afterwards, or signed by another key, is not verified,
// and that a release that cannot be made leaves nothing.
func (r releaser) checkHostile(t *testing.T, dir string) {
	if out, err := verify(t, dir, newReleaser(t).publicKey); err == nil {
		t.Errorf("it is verified with another key:\n%s", out)
	}
	changed := filepath.Join(t.TempDir(), "changed")
	mustRun(t, ".", "cp", "-r", dir, changed)
	file := filepath.Join(changed, binary)
	must(t, os.WriteFile(file, append(read(t, file), 0), 0o700))
	if out, err := verify(t, changed, r.publicKey); err == nil {
		t.Errorf("a binary that was changed is verified:\n%s", out)
	}
	beside := filepath.Join(t.TempDir(), "beside")
	mustRun(t, ".", "cp", "-r", dir, beside)
	must(t, os.WriteFile(filepath.Join(beside, "virtual-kubelet-"+version+"-linux-other"), nil, 0o700))
	if out, err := verify(t, beside, r.publicKey); err == nil {
		t.Errorf("a binary that is not signed is verified beside those that are:\n%s", out)
	}
	mustRun(t, changed, "bash", "-c", "sha256sum virtual-* > SHA256SUMS") // and their checksums
	if out, err := verify(t, changed, r.publicKey); err == nil {
		t.Errorf("checksums that were changed are verified:\n%s", out)
	}

	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-k", r.key, version, dir}, "is there already"},
		{[]string{"-k", r.key, "v9.9.9", dir + "-none"}, "no tag cmd/virtual-kubelet/v9.9.9"},
		{[]string{"-k", r.key, "latest", dir + "-none"}, "no version"},
		{[]string{"-k", r.key + "-none", version, dir + "-none"}, "ssh-keygen -t ed25519"},
		{[]string{version, dir + "-none"}, "scripts/release.sh -k KEY"},
		{[]string{"-k", r.key, "-p", "nothing", "-a", runtime.GOARCH, version, dir + "-none"}, "there is no providers/nothing"},
		{[]string{"-k", r.key + ".none", "-p", "mock", "-a", runtime.GOARCH, version, dir + "-none"}, "cannot be read"},
	} {
		if out, err := run(t, r.clone, "scripts/release.sh", c.args...); err == nil || !strings.Contains(out, c.want) {
			t.Errorf("scripts/release.sh %q: %v, want an error with %q:\n%s", c.args, err, c.want, out)
		}
	}
	if left, err := filepath.Glob(dir + "-none*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}
