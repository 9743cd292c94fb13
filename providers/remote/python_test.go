//go:build integration

package remote_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/providertest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote"
)

// python starts the example in Python, and returns what kills it as a crash does.
func python(t *testing.T, dir, address, name string) (kill func()) {
	t.Helper()
	generate := exec.Command("/usr/bin/python3", "-m", "grpc_tools.protoc", "-Iv1alpha1", "--python_out="+dir, "--grpc_python_out="+dir, "provider.proto")
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("the stubs cannot be made (apt-get install python3-grpcio python3-grpc-tools): %v\n%s", err, out)
	}
	program, err := filepath.Abs(filepath.Join("examples", "python", "provider.py"))
	if err != nil {
		t.Fatal(err)
	}
	provider := exec.Command("/usr/bin/python3", program, address, name, filepath.Join(dir, "pods"))
	provider.Env = append(os.Environ(), "PYTHONPATH="+dir, "PYTHONDONTWRITEBYTECODE=1")
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

// The example in Python runs pods, and goes on while the node ends and begins again.
func TestPython(t *testing.T) {
	t.Parallel()
	const name = "providertest-remote-python"
	dir := t.TempDir()
	address := "unix://" + filepath.Join(dir, "provider.sock")
	python(t, dir, address, name)
	providertest.Suite{
		NewProvider: func(init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			return remote.New(context.Background(), init, remote.Config{Address: address})
		},
		Capabilities: []providertest.Capability{providertest.Commands, providertest.Logs, providertest.Exec, providertest.SurvivesRestart},
		ControlPlane: filepath.Join("..", "..", "bin", "controlplane"),
		NodeName:     name,
	}.Run(t)
}

// Containers of the example in Python have volumes, and run on while it is killed and begins
// again; one that ended meanwhile has its exit code, and its log.
func TestPythonIsKilled(t *testing.T) {
	t.Parallel()
	dir, cluster := t.TempDir(), clusterWithObjects()
	address := "unix://" + filepath.Join(dir, "provider.sock")
	kill := python(t, dir, address, theNode.Name)
	p, np, _ := join(t, cluster, address)
	pod := podWithVolumes("one")
	stop := filepath.Join(dir, "stop")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.Containers[0].Command = []string{"sh", "-c", `echo $(cat $VOLUME_CONFIG/speed); echo $(cat $VOLUME_SECRET/word) >&2; until [ -e "$0" ]; do sleep 0.1; done; echo $(cat $VOLUME_CONFIG/speed); exit 3`, stop}
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
	phase := func() corev1.PodPhase {
		status, err := p.GetPodStatus(t.Context(), pod.Namespace, pod.Name)
		if err != nil {
			return corev1.PodPhase(err.Error())
		}
		return status.Phase
	}

	kill()
	kill = python(t, dir, address, theNode.Name)
	np.NotifyNodeStatus(t.Context(), func(*corev1.Node) {})
	waitFor(t, "it answers again", func() bool { return np.Ping(t.Context()) == nil })
	if got := phase(); got != corev1.PodRunning {
		t.Errorf("after a crash the pod is %s", got)
	}
	cluster.SetConfigMap("settings", map[string]string{"speed": "2"})
	waitFor(t, "the volume has changed", func() bool {
		data, err := os.ReadFile(filepath.Join(dir, "pods", string(pod.UID), "volumes", "config", "speed"))
		return err == nil && string(data) == "2"
	})
	kill()
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	python(t, dir, address, theNode.Name)
	waitFor(t, "the pod has ended", func() bool { return phase() == corev1.PodFailed })
	status, err := p.GetPodStatus(t.Context(), pod.Namespace, pod.Name)
	if err != nil || status.ContainerStatuses[0].State.Terminated.ExitCode != 3 || log("Stdout") != "1\n2\n" {
		t.Errorf("got %+v, %v, and the log %q", status, err, log("Stdout"))
	}
	if err := p.DeletePod(t.Context(), pod); err != nil {
		t.Error(err)
	}
}
