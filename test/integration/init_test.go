//go:build integration

package integration

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/daemon"
	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
)

// The repository of a new provider builds, passes its tests and the conformance kit, and its
// manifests and program work, as they are.
func TestInit(t *testing.T) {
	const name = "acme"
	dir := filepath.Join(t.TempDir(), name)
	checkout, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	binaries := filepath.Join(checkout, "bin")
	initialize := func(want string, args ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "virtual-kubelet"), append([]string{"init"}, args...)...).CombinedOutput()
		if want == "" && err != nil || want != "" && err == nil || !strings.Contains(string(out), want) {
			t.Fatalf("init %v: %v, want %q in\n%s", args, err, want, out)
		}
	}
	run := func(program string, args ...string) string {
		t.Helper()
		return runIn(t, dir, program, args...)
	}
	initialize("no release", name, "--directory", dir)
	initialize("no clone", name, "--directory", dir, "--replace", t.TempDir())
	initialize("cannot be the name", "Not_A_Name", "--directory", dir, "--replace", checkout)
	initialize("", name, "--directory", dir, "--replace", checkout, "--module", "example.org/acme-provider")
	initialize("is not empty", name, "--directory", dir, "--replace", checkout)

	run("go", "mod", "tidy")
	if unformatted := run("gofmt", "-l", "."); unformatted != "" {
		t.Errorf("not formatted: %s", unformatted)
	}
	run("go", "vet", "-tags", "conformance", "./...")
	run("go", "test", "-tags", "conformance", "-parallel", "8", "-timeout", "8m", "./...")
	kubectl(t, "apply", "--dry-run=server", "-f", filepath.Join(dir, "deploy"))

	// What docs/write-a-provider.md makes of it passes, too.
	if err := os.CopyFS(filepath.Join(dir, "guide"), os.DirFS("../../examples/acme")); err != nil {
		t.Fatal(err)
	}
	run("go", "vet", "-tags", "conformance", "./guide")
	// After its second step, with its tests, too, where there is no NodeProvider yet.
	if err := os.Mkdir(filepath.Join(dir, "step2"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"service.go", "provider.go", "provider_test.go", "config.go", "main.go"} {
		source, err := os.ReadFile(filepath.Join("../../examples/acme", file))
		if err != nil {
			t.Fatal(err)
		}
		source = bytes.Replace(source, []byte("AsProvider(p), p, nil"), []byte("AsProvider(p), nil, nil"), 1)
		if err := os.WriteFile(filepath.Join(dir, "step2", file), source, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run("go", "vet", "./step2")
	run("go", "test", "./step2")
	run("go", "test", "-tags", "conformance", "-parallel", "8", "-timeout", "8m", "./guide")

	run("go", "build", "-o", name, ".")
	n := &virtualNode{name: name, log: &lockedbuffer.Buffer{}}
	since := time.Now()
	n.process, err = daemon.Launch(exec.Command(filepath.Join(dir, name), "--kubeconfig", cluster.Kubeconfig(), "--config", filepath.Join(dir, "config.yaml"), "--listen", ":0"), n.log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.stop(t, os.Interrupt)
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, n.log)
		}
	})
	n.waitReady(t, since)
	ns := newNamespace(t)
	pod := createPod(t, ns, "hello", podSpec(n), nil)
	waitForPhase(t, ns, "hello", corev1.PodRunning)
	if err := client.CoreV1().Pods(ns).Delete(t.Context(), "hello", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForGone(t, pod)
	// What the page has to be published is made of it.
	page, err := os.ReadFile("../../docs/write-a-provider.md")
	if err != nil {
		t.Fatal(err)
	}
	_, command, _ := strings.Cut(string(page), "\n$ virtual-kubelet conformance ")
	command, _, _ = strings.Cut(command, "\n")
	args := strings.Fields(strings.ReplaceAll(command, "FILE", cluster.Kubeconfig()))
	report := run(filepath.Join(binaries, "virtual-kubelet"), append([]string{"conformance"}, args...)...)
	if _, err := os.Stat(filepath.Join(dir, "conformance.svg")); err != nil {
		t.Error(err)
	}
	_, core, _ := strings.Cut(string(page), "\n| core |")
	core, _, _ = strings.Cut(core, "\n")
	if !strings.Contains(report, "\n| core |"+core+"\n") {
		t.Errorf("the page has another line for the core than the report:\n%s", report)
	}
	if err := client.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// runIn runs a program to its end in a directory, with the binaries of the checkout on the PATH, and
// returns what it prints. Once go mod tidy has run, Go needs no more than there is. It builds as the
// Makefile does, so that what the checkout has in common with the directory is compiled once.
func runIn(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	binaries, err := filepath.Abs(bin)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-trimpath", "CGO_ENABLED=0", "PATH="+binaries+":"+os.Getenv("PATH"))
	if !slices.Equal(args, []string{"mod", "tidy"}) {
		cmd.Env = append(cmd.Env, "GOPROXY=off")
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", program, args, err, out)
	}
	return string(out)
}

// What is written for the other kinds passes the conformance kit as it is, and the API server takes
// its manifests. (TestKinds of package scaffold runs the other tests.)
func TestInitKinds(t *testing.T) {
	checkout, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"podgroup", "podengine", "remote"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel() // they wait most of the time
			dir := filepath.Join(t.TempDir(), "acme")
			runIn(t, checkout, filepath.Join(checkout, "bin", "virtual-kubelet"), "init", "acme", "--kind", kind, "--directory", dir, "--replace", checkout)
			runIn(t, dir, "go", "mod", "tidy")
			runIn(t, dir, "go", "test", "-tags", "conformance", "-parallel", "8", "-timeout", "8m", "-run", "^TestConformance$", ".")
			kubectl(t, "apply", "--dry-run=server", "-f", filepath.Join(dir, "deploy"))
		})
	}
}
