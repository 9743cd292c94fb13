//go:build containers

package deploy

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// block returns the commands of deploy/README.md, those of one block of a section.
func block(t *testing.T, section string, number int) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(manifests, "README.md"))
	must(t, err)
	_, rest, _ := strings.Cut(string(text), "\n## "+section+"\n")
	rest, _, _ = strings.Cut(rest, "\n## ")
	var blocks []string
	for part := range strings.SplitSeq(rest, "\n\n") {
		if !strings.HasPrefix(part, "\t") {
			continue
		}
		if before := len(blocks) - 1; before >= 0 && strings.Contains(rest, blocks[before]+"\n\n"+part) {
			blocks[before] += "\n\n" + part // with an empty line within
			continue
		}
		blocks = append(blocks, part)
	}
	if number >= len(blocks) {
		t.Fatalf("section %q of deploy/README.md has %d blocks of commands, want number %d", section, len(blocks), number)
	}
	return strings.ReplaceAll("\n"+blocks[number], "\n\t", "\n")
}

// runAsUser runs commands as somebody who has cloned the repository and built it. The
// administrator's kubeconfig has the contexts "home" and "remote", too, of which the
// latter is the current one by another name.
func (w *world) runAsUser(t *testing.T, commands string) {
	t.Helper()
	dir := t.TempDir()
	programs, err := filepath.Abs(bin)
	must(t, err)
	for name, path := range map[string]string{"bin": programs, "deploy": w.manifests} {
		must(t, os.Symlink(path, filepath.Join(dir, name)))
	}
	config, err := clientcmd.LoadFromFile(w.Kubeconfig())
	must(t, err)
	config.Contexts["remote"] = config.Contexts[config.CurrentContext]
	home, err := clientcmd.LoadFromFile(w.home.Kubeconfig())
	must(t, err)
	current := home.Contexts[home.CurrentContext]
	config.Contexts["home"] = &api.Context{Cluster: "home", AuthInfo: "home"}
	config.Clusters["home"], config.AuthInfos["home"] = home.Clusters[current.Cluster], home.AuthInfos[current.AuthInfo]
	must(t, clientcmd.WriteToFile(*config, filepath.Join(dir, "kubeconfig")))
	must(t, os.Mkdir(filepath.Join(dir, "path"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "path", "kubectl"), []byte(patientKubectl(filepath.Join(dir, "bin", "controlplane"))), 0o700))

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-eux", "-c", commands)
	cmd.Dir = dir
	cmd.Env = append(w.Kubectl(ctx).Env, "KUBECONFIG="+filepath.Join(dir, "kubeconfig"), "PATH="+filepath.Join(dir, "path")+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
