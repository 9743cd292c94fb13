package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// What is installed by one manifest of deploy/ takes no rights from what another one, or
// print-rbac for any account and node, has installed.
func TestRolesOfManifestsAreOfOne(t *testing.T) {
	noCluster(t)
	files, err := filepath.Glob("../../deploy/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	from := map[string]string{} // object to the manifest that is no output of print-rbac
	for _, file := range files {
		if name := filepath.Base(file); name == "rbac.yaml" || name == "kubernetes-rbac.yaml" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for role, name := range rolesIn(t, string(text)) {
			if other, ok := from[role]; ok {
				t.Errorf("%s is in %s and in %s", role, other, file)
			}
			from[role] = file
			// With these print-rbac would give a role that name.
			for _, account := range []string{"kube-system/" + name, strings.Replace(name, ":", "/", 1)} {
				if status, stdout, _ := execute(t, "config", "print-rbac", "--nodename", "", "--service-account", account); status == 0 && rolesIn(t, stdout)[role] != "" {
					t.Errorf("%s of %s is also printed for the account %s", role, file, account)
				}
			}
		}
	}
	if len(from) < 10 {
		t.Fatalf("the roles and bindings are %v", from)
	}
	for _, args := range printedByREADME(t) {
		status, stdout, stderr := execute(t, args...)
		if status != 0 {
			t.Fatalf("%q: exit status %d: %s", args, status, stderr)
		}
		for role := range rolesIn(t, stdout) {
			if file := from[role]; file != "" {
				t.Errorf("%s of %s is also printed by %q", role, file, args)
			}
		}
	}
}

// rolesIn returns the roles and bindings of manifests, with their names.
func rolesIn(t *testing.T, text string) map[string]string {
	t.Helper()
	roles := map[string]string{}
	for document := range strings.SplitSeq(text, "\n---\n") {
		var object metav1.PartialObjectMetadata
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(object.APIVersion, "rbac.authorization.k8s.io/") {
			roles[object.Kind+" "+object.Namespace+"/"+object.Name] = object.Name
		}
	}
	return roles
}

// printedByREADME returns the arguments of the print-rbac commands of deploy/README.md.
func printedByREADME(t *testing.T) (commands [][]string) {
	t.Helper()
	page, err := os.ReadFile("../../deploy/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(strings.ReplaceAll(string(page), "\\\n", "")) {
		_, command, found := strings.Cut(line, "virtual-kubelet config print-rbac")
		if !found || !strings.HasPrefix(line, "\t") {
			continue
		}
		command, _, _ = strings.Cut(command, "|")
		args := strings.Fields("config print-rbac" + strings.NewReplacer("PROVIDER", "nomad", "NAMESPACE", "apps", "NAME", "edge").Replace(command))
		if i := slices.Index(args, `""`); i >= 0 {
			args[i] = ""
		}
		commands = append(commands, args)
	}
	if len(commands) < 5 {
		t.Fatalf("the commands are %q", commands)
	}
	return commands
}
