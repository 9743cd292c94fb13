//go:build integration

package remote_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/providertest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote"
)

// example starts a provider, whose files are in a directory, for a node, and returns what kills it
// as a crash does.
type example func(t *testing.T, dir, address, node string) (kill func())

func python(t *testing.T, dir, address, name string) (kill func()) {
	t.Helper()
	generate := exec.Command("/usr/bin/python3", "-m", "grpc_tools.protoc", "-Iv1alpha1", "--python_out="+dir, "--grpc_python_out="+dir, "provider.proto")
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("the stubs cannot be made (apt-get install python3-grpcio python3-grpc-tools): %v\n%s", err, out)
	}
	provider := exec.Command("/usr/bin/python3", filepath.Join("examples", "python", "provider.py"), address, name, filepath.Join(dir, "pods"))
	provider.Env = append(os.Environ(), "PYTHONPATH="+dir, "PYTHONDONTWRITEBYTECODE=1")
	return start(t, provider)
}

func typescript(t *testing.T, dir, address, name string) (kill func()) {
	t.Helper()
	program, err := builtTypeScript()
	if err != nil {
		t.Fatal(err)
	}
	return start(t, exec.Command("node", program, address, name, filepath.Join(dir, "pods")))
}

// builtTypeScript builds the example in TypeScript where its packages are.
var builtTypeScript = sync.OnceValues(func() (program string, err error) {
	root := filepath.Join("..", "..", "bin", "remote-examples")
	dir := filepath.Join(root, "examples", "typescript")
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
		return "", fmt.Errorf("the packages of the example are not there: run \"make remote-tools\": %w", err)
	}
	if err := os.MkdirAll(filepath.Join(root, "v1alpha1"), 0o750); err != nil {
		return "", err
	}
	for _, name := range []string{"v1alpha1/provider.proto", "examples/typescript/provider.ts", "examples/typescript/tsconfig.json", "examples/typescript/package.json"} {
		data, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(root, name), data, 0o640); err != nil {
			return "", err
		}
	}
	build := exec.Command("npm", "run", "build")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the example in TypeScript cannot be built: %w\n%s", err, out)
	}
	return filepath.Join(dir, "dist", "provider.js"), nil
})

func start(t *testing.T, provider *exec.Cmd) (kill func()) {
	t.Helper()
	provider.Stdout, provider.Stderr = t.Output(), t.Output()
	provider.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := provider.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = provider.Process.Kill()
		_ = provider.Wait()
	})
	t.Cleanup(kill)
	return kill
}

func TestPython(t *testing.T) {
	t.Parallel()
	passesTheKit(t, python, "providertest-remote-python")
}

func TestTypeScript(t *testing.T) {
	t.Parallel()
	passesTheKit(t, typescript, "providertest-remote-typescript")
}

// passesTheKit checks that an example runs pods, and goes on while the node ends and begins again.
func passesTheKit(t *testing.T, begin example, name string) {
	t.Helper()
	dir := t.TempDir()
	address := "unix://" + filepath.Join(dir, "provider.sock")
	begin(t, dir, address, name)
	providertest.Suite{
		NewProvider: func(init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			return remote.New(context.Background(), init, remote.Config{Address: address})
		},
		Capabilities: []providertest.Capability{providertest.Commands, providertest.Logs, providertest.Exec, providertest.SurvivesRestart},
		ControlPlane: filepath.Join("..", "..", "bin", "controlplane"),
		NodeName:     name,
	}.Run(t)
}

func TestPythonIsKilled(t *testing.T) {
	t.Parallel()
	survivesKills(t, python, true)
}

func TestTypeScriptIsKilled(t *testing.T) {
	t.Parallel()
	survivesKills(t, typescript, false)
}

// survivesKills checks that containers of an example, perhaps with volumes, run on while it is
// killed and begins again; one that ended meanwhile has its exit code, and its log.
func survivesKills(t *testing.T, begin example, volumes bool) {
	t.Helper()
	dir, cluster := t.TempDir(), clusterWithObjects()
	address := "unix://" + filepath.Join(dir, "provider.sock")
	kill := begin(t, dir, address, theNode.Name)
	p, np, _ := join(t, cluster, address)
	pod, print := aPod("one"), [3]string{"1", "sesame", "2"}
	if volumes {
		pod, print = podWithVolumes("one"), [3]string{"$(cat $VOLUME_CONFIG/speed)", "$(cat $VOLUME_SECRET/word)", "$(cat $VOLUME_CONFIG/speed)"}
	}
	stop := filepath.Join(dir, "stop")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.Containers[0].Command = []string{"sh", "-c", fmt.Sprintf(`echo %s; echo %s >&2; until [ -e "$0" ]; do sleep 0.1; done; echo %s; exit 3`, print[0], print[1], print[2]), stop}
	for _, v := range pod.Spec.Volumes {
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	cluster.SetPod(pod)
	if err := p.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // it ends also where the test fails
		if err := os.WriteFile(stop, nil, 0o600); err != nil {
			t.Error(err)
		}
		waitFor(t, "the container has left", func() bool {
			_, err := os.Stat(filepath.Join(dir, "pods", string(pod.UID), "main.exit"))
			return err == nil
		})
	})
	log := func(stream string) string {
		reader, err := p.(interface {
			GetContainerLogStream(ctx context.Context, namespace, podName, container, stream string, opts api.ContainerLogOpts) (io.ReadCloser, error)
		}).GetContainerLogStream(t.Context(), pod.Namespace, pod.Name, "main", stream, api.ContainerLogOpts{})
		if err != nil {
			return err.Error()
		}
		defer reader.Close()
		text, err := io.ReadAll(reader)
		if err != nil {
			return err.Error()
		}
		return string(text)
	}
	waitFor(t, "there are both streams", func() bool { return log("Stdout") == "1\n" && log("Stderr") == "sesame\n" })
	state := func() corev1.PodStatus {
		status, err := p.GetPodStatus(t.Context(), pod.Namespace, pod.Name)
		if err != nil {
			return corev1.PodStatus{Phase: corev1.PodPhase(err.Error())}
		}
		return *status
	}
	before := state()

	kill()
	kill = begin(t, dir, address, theNode.Name)
	np.NotifyNodeStatus(t.Context(), func(*corev1.Node) {})
	waitFor(t, "it answers again", func() bool { return np.Ping(t.Context()) == nil })
	if got := state(); got.Phase != corev1.PodRunning || !got.StartTime.Equal(before.StartTime) {
		t.Errorf("after a crash the pod is %+v, before it was %+v", got, before)
	}
	if volumes {
		cluster.SetConfigMap("settings", map[string]string{"speed": "2"})
		waitFor(t, "the volume has changed", func() bool {
			data, err := os.ReadFile(filepath.Join(dir, "pods", string(pod.UID), "volumes", "config", "speed"))
			return err == nil && string(data) == "2"
		})
	}
	kill()
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	begin(t, dir, address, theNode.Name)
	waitFor(t, "the pod has ended", func() bool { return state().Phase == corev1.PodFailed })
	if got := state(); got.ContainerStatuses[0].State.Terminated.ExitCode != 3 || log("Stdout") != "1\n2\n" {
		t.Errorf("got %+v, and the log %q", got, log("Stdout"))
	}
	if err := p.DeletePod(t.Context(), pod); err != nil {
		t.Error(err)
	}
}

func TestPythonAndFaults(t *testing.T) {
	t.Parallel()
	standsFaults(t, python)
}

func TestTypeScriptAndFaults(t *testing.T) {
	t.Parallel()
	standsFaults(t, typescript)
}

// standsFaults checks that an example begins again though there are pods that cannot start, gives
// sessions a terminal, and does not answer for another node's pods.
func standsFaults(t *testing.T, begin example) {
	t.Helper()
	dir, cluster := t.TempDir(), clusterWithObjects()
	address := "unix://" + filepath.Join(dir, "provider.sock")
	kill := begin(t, dir, address, theNode.Name)
	p, np, _ := join(t, cluster, address)
	ends := map[string]string{"nul": "a\x00b", "large": strings.Repeat("x", 3<<20)}
	for name, value := range ends {
		pod := aPod(name)
		pod.Spec.Containers[0].Env[0].Value = value
		if err := p.CreatePod(t.Context(), pod); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	stays := aPod("stays")
	stays.Spec.Containers[0].Command = []string{"sleep", "60"}
	if err := p.CreatePod(t.Context(), stays); err != nil {
		t.Fatal(err)
	}
	kill()
	kill = begin(t, dir, address, theNode.Name)
	waitFor(t, "it answers again", func() bool { return np.Ping(t.Context()) == nil })
	for name := range ends {
		waitFor(t, name+" has failed", func() bool {
			status, err := p.GetPodStatus(t.Context(), "default", name)
			return err == nil && status.Phase == corev1.PodFailed && status.ContainerStatuses[0].State.Terminated.ExitCode == 128
		})
	}

	c := &client{tty: true, sizes: make(chan api.TermSize, 1)}
	c.sizes <- api.TermSize{Width: 120, Height: 40}
	script := `until [ "$(stty size)" = "40 120" ]; do sleep 0.1; done; : </dev/tty && echo has one`
	if err := p.RunInContainer(t.Context(), "default", "stays", "main", []string{"sh", "-c", script}, c); err != nil || c.out.String() != "has one\r\n" {
		t.Errorf("on a terminal: %q, %v", &c.out, err)
	}
	if err := p.RunInContainer(t.Context(), "default", "stays", "main", []string{"/no/such"}, &client{}); err == nil || !strings.Contains(err.Error(), "127") {
		t.Errorf("a command that there is not: %v", err)
	}
	if err := p.DeletePod(t.Context(), stays); err != nil {
		t.Error(err)
	}
	waitFor(t, "it has ended", func() bool {
		status, err := p.GetPodStatus(t.Context(), "default", "stays")
		return err == nil && status.Phase == corev1.PodFailed
	})

	kill()
	begin(t, t.TempDir(), address, "virtual-2")
	waitFor(t, "another one answers", func() bool {
		err := np.Ping(t.Context())
		return err != nil && strings.Contains(err.Error(), "virtual-2")
	})
	if pod, err := p.GetPod(t.Context(), "default", "stays"); !errdefs.IsUnavailable(err) {
		t.Errorf("got %+v, %v", pod, err)
	}
	if pods, err := p.GetPods(t.Context()); !errdefs.IsUnavailable(err) {
		t.Errorf("got %d pods, %v", len(pods), err)
	}
}
