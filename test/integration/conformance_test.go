//go:build integration

package integration

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// conformance runs the command with an account that has no more than the rights
// that are documented for it, and returns its exit status and what it prints.
func conformance(t *testing.T, n *virtualNode, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	const account = "virtual-kubelet-conformance"
	ns := newNamespace(t)
	manifests, err := os.ReadFile("../../deploy/conformance-rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	apply := cluster.Kubectl(t.Context(), "apply", "-f", "-")
	apply.Stdin = strings.NewReader(strings.ReplaceAll(string(manifests), "namespace: default", "namespace: "+ns))
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("kubectl apply: %v\n%s", err, out)
	}
	token, err := client.CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	writeKubeconfig(t, kubeconfig, &clientcmdapi.AuthInfo{Token: token.Status.Token})
	command := exec.CommandContext(t.Context(), filepath.Join(bin, "virtual-kubelet"),
		append([]string{"conformance", "--kubeconfig", kubeconfig, "--nodename", n.name, "--namespace", ns}, args...)...)
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	if err := command.Run(); command.ProcessState == nil {
		t.Fatal(err)
	}
	return command.ProcessState.ExitCode(), out.String(), errs.String()
}

// The report of the mock, which runs no commands, says so; that is no failure
// unless commands are required.
func TestConformanceCommand(t *testing.T) {
	t.Parallel() // it waits most of the time
	n, dir := startNode(t), t.TempDir()
	markdown, junit := filepath.Join(dir, "report.md"), filepath.Join(dir, "junit.xml")
	const can = "logs,exec,attach,port-forward,stats,deadlines,ephemeral-containers"
	status, stdout, stderr := conformance(t, n,
		"--capabilities", can+",commands,volumes", "--require", can, "--parallel", "8",
		"--skip", "stop-signal,logs-content,logs-since,logs-follow,attach-input,exec-environment,volume-missing,volume-unsupported,volume-update",
		"--markdown", markdown, "--junit", junit)
	if status != 0 {
		t.Errorf("exit status %d: %s\n%s", status, stdout, stderr)
	}

	report, err := os.ReadFile(markdown)
	if err != nil || string(report) != stdout {
		t.Errorf("the file has %q, %v, other than standard output", report, err)
	}
	for _, line := range []string{
		"| core | 13 | 0 | 0 | 0 |\n",
		"| pod-runs | ",
		"| exec | 5 | 0 | 0 | 1 |\n",
		"| resize | 0 | 0 | 0 | 1 |\n",
		"| resize is not declared |\n",
		"## exit-code failed\n\n    ",
		"phase Succeeded\n",
	} {
		if !strings.Contains(stdout, line) {
			t.Errorf("%q is missing in the report:\n%s", line, stdout)
		}
	}
	// Nothing passes that takes a command that really runs.
	for _, name := range []string{"environment", "arguments", "downward-env", "working-directory", "volume-contents", "volume-emptydir", "volume-subpath"} {
		if !strings.Contains(stdout, "## "+name+" failed\n") {
			t.Errorf("%s passes without commands:\n%s", name, stdout)
		}
	}
	if !strings.Contains(stderr, "\npassed        pod-runs (") {
		t.Errorf("the progress lacks a check:\n%s", stderr)
	}

	content, err := os.ReadFile(junit)
	if err != nil {
		t.Fatal(err)
	}
	var suites struct {
		Suite struct {
			Name     string `xml:"name,attr"`
			Tests    int    `xml:"tests,attr"`
			Failures int    `xml:"failures,attr"`
			Cases    []struct {
				Name    string    `xml:"name,attr"`
				Failure *struct{} `xml:"failure"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(content, &suites); err != nil {
		t.Fatalf("%v in %s", err, content)
	}
	failed := map[string]bool{}
	for _, c := range suites.Suite.Cases {
		failed[c.Name] = c.Failure != nil
	}
	if suites.Suite.Name != n.name || suites.Suite.Tests != len(suites.Suite.Cases) || suites.Suite.Failures == 0 || !failed["exit-code"] || failed["pod-runs"] {
		t.Errorf("got %+v", suites.Suite)
	}

	badge := filepath.Join(dir, "badge.svg")
	status, stdout, stderr = conformance(t, n, "--capabilities", "commands", "--require", "commands", "--skip", "core,stop-signal", "-o", "json", "--badge", badge)
	if status != 1 || !strings.Contains(stderr, "required checks did not pass: ") || !strings.Contains(stderr, "exit-code") {
		t.Errorf("commands are required: exit status %d, %s", status, stderr)
	}
	var encoded struct {
		Node         string
		Capabilities []struct{ Name, Result string }
	}
	if err := json.Unmarshal([]byte(stdout), &encoded); err != nil || encoded.Node != n.name || !strings.Contains(fmt.Sprint(encoded.Capabilities), "{commands failed}") {
		t.Errorf("as JSON: %v, %+v", err, encoded)
	}
	if picture, err := os.ReadFile(badge); err != nil || !strings.HasPrefix(string(picture), "<svg ") || !strings.Contains(string(picture), "1 capability failed") {
		t.Errorf("the badge: %v, %s", err, picture)
	}
}
