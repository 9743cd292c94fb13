package convert

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestContainer(t *testing.T) {
	pod := podOf(func(pod *corev1.Pod, app *corev1.Container) {
		pod.Labels = map[string]string{"app": "web"} // not for containers
		pod.DeletionGracePeriodSeconds = new(int64(5))
		pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
		app.Command, app.Args, app.WorkingDir = []string{"sh", "-c"}, []string{"true"}, "/srv"
		app.Stdin, app.StdinOnce, app.TTY = true, true, true
		app.TerminationMessagePath, app.TerminationMessagePolicy = "/dev/termination-log", corev1.TerminationMessageReadFile
		app.Ports = []corev1.ContainerPort{{ContainerPort: 80, Protocol: corev1.ProtocolTCP}}
		app.Lifecycle = &corev1.Lifecycle{
			PreStop:    &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 3}},
			StopSignal: new(corev1.SIGUSR1),
		}
	})
	config := containerOf(t, testNode, pod, ContainerOptions{
		Attempt:     3,
		ImageRef:    "sha256:abc",
		Image:       &runtimeapi.Image{Uid: &runtimeapi.Int64Value{Value: 101}},
		Env:         []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B"}},
		Mounts:      []Mount{{ContainerPath: "/data", HostPath: "/host/data", ReadOnly: true}},
		Devices:     []*runtimeapi.Device{{ContainerPath: "/dev/x", HostPath: "/dev/y", Permissions: "rwm"}},
		CDIDevices:  []*runtimeapi.CDIDevice{{Name: "vendor.com/gpu=0"}},
		Annotations: map[string]string{"extra": "x", NodeAnnotation: "another"},
	})
	config.Linux = nil // has tests of its own
	wantJSON(t, config, `{
		"metadata": {"name": "app", "attempt": 3},
		"image": {"image": "sha256:abc", "userSpecifiedImage": "nginx:1"},
		"command": ["sh", "-c"], "args": ["true"], "workingDir": "/srv",
		"envs": [{"key": "A", "value": "MQ=="}, {"key": "B"}],
		"mounts": [{"containerPath": "/data", "hostPath": "/host/data", "readonly": true}],
		"devices": [{"containerPath": "/dev/x", "hostPath": "/dev/y", "permissions": "rwm"}],
		"CDIDevices": [{"name": "vendor.com/gpu=0"}],
		"labels": {
			"io.kubernetes.container.name": "app",
			"io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "ns", "io.kubernetes.pod.uid": "u1"
		},
		"annotations": {
			"extra": "x",
			"virtual-kubelet.io/node": "vk",
			"io.kubernetes.container.hash": "56fe8e540a6c11bd",
			"io.kubernetes.container.restartCount": "3",
			"io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
			"io.kubernetes.container.terminationMessagePolicy": "File",
			"io.kubernetes.container.preStopHandler": "{\"sleep\":{\"seconds\":3}}",
			"io.kubernetes.container.ports": "[{\"containerPort\":80,\"protocol\":\"TCP\"}]",
			"io.kubernetes.pod.deletionGracePeriod": "5",
			"io.kubernetes.pod.terminationGracePeriod": "30"
		},
		"logPath": "app/3.log",
		"stdin": true, "stdinOnce": true, "tty": true,
		"stopSignal": "SIGUSR1"
	}`)
}

// Without a reference the image is asked for by the name of the spec.
func TestContainerImageByName(t *testing.T) {
	config := containerOf(t, testNode, podOf(nil), ContainerOptions{})
	wantJSON(t, config.Image, `{"image": "nginx:1", "userSpecifiedImage": "nginx:1"}`)
}

func TestStopSignal(t *testing.T) {
	for name, want := range map[corev1.Signal]runtimeapi.Signal{
		corev1.SIGTERM:         runtimeapi.Signal_SIGTERM,
		corev1.SIGRTMINPLUS15:  runtimeapi.Signal_SIGRTMINPLUS15,
		corev1.SIGRTMAXMINUS14: runtimeapi.Signal_SIGRTMAXMINUS14,
		corev1.SIGRTMAX:        runtimeapi.Signal_SIGRTMAX,
	} {
		got, err := stopSignal(&corev1.Container{Lifecycle: &corev1.Lifecycle{StopSignal: &name}})
		wantError(t, err, "")
		equal(t, string(name), got, want)
	}
	for _, c := range []corev1.Container{{}, {Lifecycle: &corev1.Lifecycle{}}} {
		got, err := stopSignal(&c)
		wantError(t, err, "")
		equal(t, "none", got, runtimeapi.Signal_RUNTIME_DEFAULT)
	}
	for _, name := range []corev1.Signal{"TERM", "SIGNONE", "RUNTIME_DEFAULT", ""} {
		_, err := stopSignal(&corev1.Container{Name: "app", Lifecycle: &corev1.Lifecycle{StopSignal: &name}})
		wantError(t, err, `container "app" has an unknown stopSignal "`+string(name)+`"`)
	}
}
