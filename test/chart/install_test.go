//go:build integration

package chart

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// A release is installed, upgraded, rolled back and uninstalled by both versions of Helm,
// while the pods of its node run.
func TestRelease(t *testing.T) {
	w := newWorld(t)
	t.Run("releases", func(t *testing.T) { // which the control plane outlives
		for _, helm := range helms {
			t.Run(helm, func(t *testing.T) { t.Parallel(); w.testOneNode(t, helm) })
		}
		t.Run("pools", func(t *testing.T) { t.Parallel(); w.testPools(t, "helm4") })
		t.Run("notes", func(t *testing.T) { t.Parallel(); w.testNotes(t, "helm4") })
		t.Run("identity", func(t *testing.T) { t.Parallel(); w.testIdentity(t, "helm4") })
		t.Run("monitoring", func(t *testing.T) { t.Parallel(); w.testMonitoring(t) })
	})
}

// helm runs Helm on the control plane; it has to succeed.
func (w *world) helm(t *testing.T, helm, namespace string, args ...string) string {
	t.Helper()
	out, err := run(t, helm, append(args, "--kubeconfig", w.Kubeconfig(), "--namespace", namespace)...)
	must(t, err)
	return out
}

func (w *world) testOneNode(t *testing.T, helm string) {
	name := "edge-" + helm // of namespace, release and node
	p := w.play(t, name)
	journal := filepath.Join(t.TempDir(), "journal")
	values := fmt.Sprintf("provider: {config: {%s: {journal: %q}}}\n", name, journal)
	if helm == "helm4" {
		values += "watchNamespace: " + name + "\n"
	}
	w.helm(t, helm, name, "install", name, chartDir, "--create-namespace", "--wait", "--timeout", patience.String(), "--values", writeValues(t, values))
	w.awaitReady(t, name)
	notes := commandsOf(w.helm(t, helm, name, "get", "notes", name))
	w.runNotes(t, notes, "rollout status", 0)
	w.runNotes(t, notes, "doctor", 0)

	for i := range 3 {
		_, err := w.client.CoreV1().Pods(name).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", i)},
			Spec: corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "main", Image: "none"}}}}, metav1.CreateOptions{})
		must(t, err)
	}
	before := w.runningPods(t, name)
	stop := w.watchNode(t, name)
	started, _ := p.starts()
	for i, step := range []struct {
		starts int
		args   []string
	}{
		{2, []string{"upgrade", name, chartDir, "--values", writeValues(t, values+"extraArgs: [--log-level=debug]")}},
		{1, []string{"upgrade", name, chartDir, "--values", writeValues(t, values+"replicas: 1")}},
		{2, []string{"rollback", name, "1"}},
	} {
		args := step.args
		w.helm(t, helm, name, append(args, "--wait", "--timeout", patience.String())...)
		p.rolledOut(name)
		if now, _ := p.starts(); now < started+step.starts {
			t.Fatalf("after %q %d processes were started, want %d more than %d", args, now, step.starts, started)
		} else {
			started = now
		}
		// The new one that leads sees the pods, and takes further ones.
		late := fmt.Sprint("after-", i)
		_, err := w.client.CoreV1().Pods(name).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: late},
			Spec: corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "main", Image: "none"}}}}, metav1.CreateOptions{})
		must(t, err)
		now := w.runningPods(t, name)
		for pod, was := range before {
			if is := now[pod]; is.UID != was.UID || !equality.Semantic.DeepEqual(is.Status, was.Status) {
				t.Errorf("after %q pod %s has changed from\n%+v to\n%+v", args, pod, was.Status, is.Status)
			}
		}
		before = now
	}
	stop()
	content, err := os.ReadFile(journal)
	must(t, err)
	if creates := bytes.Count(content, []byte(`"create"`)); creates != len(before) {
		t.Errorf("%d pods were created by the provider, want %d:\n%s", creates, len(before), content)
	}

	w.runNotes(t, notes, "deregister", 1) // it runs
	for pod := range before {
		must(t, w.client.CoreV1().Pods(name).Delete(t.Context(), pod, metav1.DeleteOptions{}))
	}
	eventually(t, "the pods are gone", func() (bool, string) {
		pods, err := w.client.CoreV1().Pods(name).List(t.Context(), metav1.ListOptions{LabelSelector: "!app.kubernetes.io/name"})
		return err == nil && len(pods.Items) == 0, fmt.Sprint(err, pods)
	})
	w.helm(t, helm, name, "uninstall", name, "--wait", "--timeout", patience.String())
	eventually(t, "no process runs", func() (bool, string) {
		_, running := p.starts()
		return running == 0, fmt.Sprint(running)
	})
	w.assertNothingLeft(t, name)
	// What is left is what docs/install.md says. That the leases run out is waited for elsewhere.
	if _, err := w.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	w.runNotes(t, strings.ReplaceAll(notes, "--yes", "--yes --force"), "deregister", 0)
	if _, err := w.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{}); !gone(err) {
		t.Errorf("the Node: %v", err)
	}
	if _, err := w.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), name, metav1.GetOptions{}); !gone(err) {
		t.Errorf("its lease: %v", err)
	}
	leases, err := w.client.CoordinationV1().Leases(name).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	if len(leases.Items) > 0 {
		t.Errorf("leases are left: %v", leases.Items)
	}
}

// What the notes have the doctor look at has the provider's configuration, wherever that is.
func (w *world) testNotes(t *testing.T, helm string) {
	const name = "notes"
	config := "address: unix:///run/provider/socket\n"
	for i, values := range []string{"{name: remote, config: {address: \"unix:///run/provider/socket\"}}", "{name: remote, secretName: provider}"} {
		w.helm(t, helm, name, "upgrade", "--install", name, chartDir, "--create-namespace", "--values", writeValues(t, "{replicas: 0, provider: "+values+"}"))
		if i == 0 {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "provider"}, StringData: map[string]string{"provider.yaml": config}}
			_, err := w.client.CoreV1().Secrets(name).Create(t.Context(), secret, metav1.CreateOptions{})
			must(t, err)
		}
		out, _ := w.shell(t, t.TempDir(), scriptOf(t, commandsOf(w.helm(t, helm, name, "get", "notes", name)), "doctor")) // there is no node
		if !regexp.MustCompile(`(?m)^ok +configuration `).MatchString(out) {
			t.Errorf("with %s the doctor finds\n%s", values, out)
		}
	}
}

// Pools change without a restart, and processes share them.
func (w *world) testPools(t *testing.T, helm string) {
	const name = "pools"
	p := w.play(t, name)
	values := func(count int) string { return fmt.Sprintf("{pools: [{name: shared, count: %d}], shards: 4}", count) }
	w.helm(t, helm, name, "install", name, chartDir, "--create-namespace", "--wait", "--timeout", patience.String(), "--values", writeValues(t, values(3)))
	w.awaitReady(t, "shared-0", "shared-1", "shared-2")
	started, _ := p.starts()
	w.helm(t, helm, name, "upgrade", name, chartDir, "--wait", "--timeout", patience.String(), "--values", writeValues(t, values(5)))
	w.awaitReady(t, "shared-3", "shared-4")
	if now, running := p.starts(); now != started || running != 2 {
		t.Errorf("%d processes were started, and %d run, want %d and 2", now, running, started)
	}
	// The process that came first had all shards, and gives half of them to the other.
	eventually(t, "the processes share the shards", func() (bool, string) {
		leases, err := w.client.CoordinationV1().Leases(name).List(t.Context(), metav1.ListOptions{})
		held := map[string]int{}
		for i := range leases.Items {
			if lease := &leases.Items[i]; strings.HasPrefix(lease.Name, name+"-shard-") {
				held[ptr.Deref(lease.Spec.HolderIdentity, "")]++
			}
		}
		return err == nil && held[""] == 0 && slices.Equal(slices.Collect(maps.Values(held)), []int{2, 2}), fmt.Sprint(held, err)
	})
	notes := commandsOf(w.helm(t, helm, name, "get", "notes", name))
	w.runNotes(t, notes, "doctor", 0)
	w.helm(t, helm, name, "uninstall", name, "--wait", "--timeout", patience.String())
	w.assertNothingLeft(t, name)
}

// runningPods waits until all pods of nodes run, and returns them by name.
func (w *world) runningPods(t *testing.T, namespace string) map[string]corev1.Pod {
	t.Helper()
	pods := map[string]corev1.Pod{}
	eventually(t, "the pods run", func() (bool, string) {
		list, err := w.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "!app.kubernetes.io/name"})
		if err != nil {
			return false, err.Error()
		}
		for _, pod := range list.Items {
			if pod.Status.Phase != corev1.PodRunning {
				return false, fmt.Sprintf("%s: %+v", pod.Name, pod.Status)
			}
			pods[pod.Name] = pod
		}
		return true, ""
	})
	return pods
}

// assertNothingLeft fails the test if objects of a release are there.
func (w *world) assertNothingLeft(t *testing.T, name string) {
	t.Helper()
	const kinds = "deployments,statefulsets,replicasets,configmaps,secrets,serviceaccounts,roles,rolebindings,poddisruptionbudgets,networkpolicies,clusterroles,clusterrolebindings"
	eventually(t, "nothing is left of the release", func() (bool, string) {
		out, err := w.Kubectl(t.Context(), "get", kinds, "-A", "-o", "name", "-l", "app.kubernetes.io/instance="+name).CombinedOutput()
		return err == nil && len(out) == 0, string(out)
	})
	if out, err := w.Kubectl(t.Context(), "get", "secrets", "-n", name, "-o", "name").CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("secrets are left: %s %v", out, err)
	}
}

// commandsOf returns the commands of notes, which are indented.
func commandsOf(notes string) (commands string) {
	for line := range strings.Lines(notes) {
		if strings.HasPrefix(line, "    ") {
			commands += strings.TrimPrefix(line, "    ")
		}
	}
	return commands
}

// runNotes runs the command of the notes that has a word, and what it needs. It has to end
// with that status.
func (w *world) runNotes(t *testing.T, commands, word string, status int) {
	t.Helper()
	script := scriptOf(t, commands, word)
	out, err := w.shell(t, t.TempDir(), script)
	if got := err != nil; got != (status != 0) {
		t.Errorf("%s: %v, want status %d\n%s", script, err, status, out)
	}
}

// scriptOf returns the command that has a word, and those that write the files it needs.
func scriptOf(t *testing.T, commands, word string) (script string) {
	t.Helper()
	var command string
	files := map[string]string{} // the commands that write them
	for line := range strings.Lines(commands) {
		command += line
		if strings.HasSuffix(line, "\\\n") {
			continue
		}
		if _, file, writes := strings.Cut(command, " > "); writes {
			files[strings.TrimSpace(file)] = command
		}
		if strings.Contains(command, word) {
			for file, write := range files {
				if strings.Contains(command, " "+file+" ") {
					script += write
				}
			}
			script += command
		}
		command = ""
	}
	if !strings.Contains(script, word) {
		t.Fatalf("the notes have no command with %q:\n%s", word, commands)
	}
	return script
}
