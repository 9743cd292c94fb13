package slurm

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// functionOfScript returns a function of the job's script.
func functionOfScript(name string) string {
	_, rest, _ := strings.Cut(jobScript, "\n"+name+"() {")
	body, _, _ := strings.Cut(rest, "\n}\n")
	return name + "() {" + body + "\n}\n"
}

// The end of a process that comes with a signal for the shell has an exit code, and is seen at once.
func TestEndThatComesWithASignal(t *testing.T) {
	t.Parallel()
	const script = `
set -m
trap 'interrupted=1' TERM
for _ in {1..200}; do
	sleep 1000 &
	pid=$!
	(kill -TERM $pid $$) &
	await $pid
	[ $code = 143 ] || break
done
echo "$code"
`
	out, err := exec.CommandContext(t.Context(), "/bin/bash", "-c", functionOfScript("await")+script).Output()
	if err != nil || string(out) != "143\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// The script removes what has secrets, also what containers have left read-only.
func TestCleanup(t *testing.T) {
	dir := t.TempDir()
	cache := filepath.Join(dir, "volumes", "cache")
	if err := errors.Join(os.MkdirAll(filepath.Join(cache, "module"), 0o755), os.WriteFile(filepath.Join(dir, "logins"), nil, 0o600), os.WriteFile(filepath.Join(dir, "state"), nil, 0o600), os.Chmod(cache, 0o555)); err != nil {
		t.Fatal(err)
	}
	argv := []string{"/bin/bash", "-c", functionOfScript("cleanup") + "dir=$1\ncleanup", "job", dir}
	if os.Geteuid() == 0 { // who may do everything
		argv = append([]string{"setpriv", "--bounding-set=-dac_override"}, argv...)
	}
	out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput() // #nosec G204 -- the test's own
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); err != nil || !slices.Equal(left, []string{filepath.Join(dir, "state")}) {
		t.Errorf("%v: %s: left are %q", err, out, left)
	}
}

// launched runs a program of a container in bash, with a runtime that prints its arguments
// and its environment, and returns both. DIR is the pod's directory in them.
func launched(t *testing.T, l *launch, program string) (args []string, env []string) {
	t.Helper()
	dir := t.TempDir()
	home := filepath.Join(dir, "containers", l.container.Name)
	if err := os.MkdirAll(home, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "volumes", "scratch", "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range l.files {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "logins"), []byte(loginsFile(l.config.Runtime, []podgroup.Login{{Registry: "r", Username: "me", Password: "sword'fish"}})), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	fake := "#!/bin/bash\n[ \"$1\" != import ] || { : >\"$3\"; exit; }\n{ printf '%s\\0' \"$@\"; printf '\\1'; env -0; } >" + out + "\n"
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, string(l.config.Runtime)), []byte(fake), 0o755); err != nil { // #nosec G306 -- a program
		t.Fatal(err)
	}
	script := functionOfScript("inside") + "dir=$1 address=192.0.2.7\nname=x how=y\nset --\n" + program
	cmd := exec.CommandContext(t.Context(), "/bin/bash", "-c", script, "job", dir)
	cmd.Env = []string{"PATH=" + bin + ":/usr/bin:/bin", "TMPDIR=" + dir}
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s\n%s", err, text, program)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	first, rest, _ := strings.Cut(strings.ReplaceAll(string(text), dir, "DIR"), "\x01")
	return strings.Split(strings.TrimSuffix(first, "\x00"), "\x00"), strings.Split(rest, "\x00")
}

// The runtimes get what a pod says, word for word.
func TestLaunch(t *testing.T) {
	const odd = "a'b\n\"$(exit 3)\" `x` \\ ${HOME} *"
	pod := grouptest.NewPod("one")
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
		{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "data", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data set"}}},
	}
	c := &pod.Spec.Containers[0]
	c.Image = "registry.example.com/team/app:1"
	c.Args = []string{"-x", odd}
	c.WorkingDir = "/work dir"
	c.Env = []corev1.EnvVar{
		{Name: "ODD", Value: odd}, {Name: "PATH", Value: "/app"}, {Name: "dir", Value: "d"}, {Name: "LD_PRELOAD", Value: ""},
		{Name: "IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
	}
	c.VolumeMounts = []corev1.VolumeMount{
		{Name: "settings", MountPath: "/etc/app"}, {Name: "scratch", MountPath: "/tmp/x/", SubPath: "a/b"}, {Name: "data", MountPath: "/data", ReadOnly: true},
	}
	for _, test := range []struct {
		runtime Runtime
		command []string
		args    []string
		env     []string
	}{
		{RuntimeApptainer, nil, []string{
			"run", "--compat", "--pwd", "/work dir", "--bind", "DIR/volumes/settings:/etc/app:ro", "--bind", "DIR/volumes/scratch/a/b:/tmp/x",
			"--bind", "/data set:/data:ro", "docker://registry.example.com/team/app:1", "-x", odd,
		}, []string{"APPTAINERENV_ODD=" + odd, "APPTAINERENV_PATH=/app", "APPTAINERENV_dir=d", "APPTAINERENV_IP=192.0.2.7", "APPTAINER_DOCKER_USERNAME=me", "APPTAINER_DOCKER_PASSWORD=sword'fish"}},
		{RuntimeSingularity, []string{"/bin/app", "it's"}, []string{
			"exec", "--compat", "--pwd", "/work dir", "--bind", "DIR/volumes/settings:/etc/app:ro", "--bind", "DIR/volumes/scratch/a/b:/tmp/x",
			"--bind", "/data set:/data:ro", "docker://registry.example.com/team/app:1", "/bin/app", "it's", "-x", odd,
		}, []string{"SINGULARITYENV_ODD=" + odd}},
		{RuntimePodman, []string{"/bin/app", "it's"}, []string{
			"run", "--rm", "--replace", "--name", "vk-default-one-0123456789-main", "--network", "host", "--log-driver", "none", "--pull", "missing",
			"--authfile", "DIR/logins", "--workdir", "/work dir", "--volume", "DIR/volumes/settings:/etc/app:ro", "--volume", "DIR/volumes/scratch/a/b:/tmp/x:rw",
			"--volume", "/data set:/data:ro", "--env", "ODD", "--env", "IP=192.0.2.7", "--env-file", "DIR/containers/main/environment",
			"--entrypoint", `["/bin/app","it's"]`, "registry.example.com/team/app:1", "-x", odd,
		}, []string{"ODD=" + odd}},
		{RuntimeEnroot, []string{"/bin/app"}, []string{
			"start", "--rw", "--mount", "DIR/volumes/settings:/etc/app:ro,bind,x-create=auto", "--mount", "DIR/volumes/scratch/a/b:/tmp/x:rw,bind,x-create=auto",
			"--mount", "/data set:/data:ro,bind,x-create=auto", "--env", "IP=192.0.2.7", "--conf", "DIR/containers/main/conf",
			"--rc", "DIR/containers/main/rc", "DIR/containers/main/image.sqsh", "/bin/app", "-x", odd,
		}, nil},
	} {
		t.Run(string(test.runtime), func(t *testing.T) {
			b := completed(t, Config{Runtime: test.runtime, HostPaths: []string{"/data set"}})
			c.Command = test.command
			if c.Env[0].Value = odd; test.runtime == RuntimeEnroot {
				c.Env[0].Value = "one line" // it has no others
			}
			r := request(pod)
			r.Logins = []podgroup.Login{{Registry: "registry.example.com", Username: "me", Password: "sword'fish"}}
			l, err := b.newLaunch(r, c)
			if err != nil {
				t.Fatal(err)
			}
			args, env := launched(t, l, l.run())
			if !slices.Equal(args, test.args) {
				t.Errorf("the arguments are\n%q and not\n%q", args, test.args)
			}
			for _, want := range test.env {
				if !slices.Contains(env, want) {
					t.Errorf("the environment lacks %q: %q", want, env)
				}
			}
			if slices.ContainsFunc(args, func(arg string) bool { return strings.Contains(arg, "fish") }) {
				t.Errorf("the arguments have the password: %q", args)
			}
		})
	}
}

// Variables of a container are none of the runtime's, which runs on the machine.
func TestVariablesOfTheMachine(t *testing.T) {
	for _, test := range []struct {
		runtime Runtime
		value   string
		prefix  string // of variables for the container
		names   []string
	}{
		{RuntimePodman, ".pods/of-another/volumes/v:\n", "", []string{"PATH", "HOME", "BASH_ENV", "LD_PRELOAD", "XDG_CONFIG_HOME", "CONTAINERS_CONF", "CONTAINER_HOST", "REGISTRY_AUTH_FILE", "DOCKER_CONFIG", "_CONTAINERS_ROOTLESS_UID", "UID", "dir"}},
		{RuntimePodman, "one line", "", []string{"PATH", "LD_PRELOAD", "CONTAINERS_CONF", "UID", "dir", "a.b", "PLAIN"}},
		{RuntimeEnroot, ".pods/of-another/volumes/v", "", []string{"PATH", "LD_PRELOAD", "XDG_CONFIG_HOME", "ENROOT_MOUNT_HOME", "ENROOT_LIBRARY_PATH", "SSL_CERT_FILE", "UID", "dir", "image", "PLAIN"}},
		{RuntimeApptainer, ".pods/of-another/volumes/v:\n", "APPTAINERENV_", []string{"PATH", "LD_PRELOAD", "APPTAINER_BIND", "SINGULARITY_BIND", "APPTAINERENV_X", "UID", "dir"}},
		{RuntimeSingularity, ".pods/of-another/volumes/v:\n", "SINGULARITYENV_", []string{"PATH", "LD_PRELOAD", "SINGULARITY_BIND", "SINGULARITYENV_X", "UID", "dir"}},
	} {
		t.Run(string(test.runtime), func(t *testing.T) {
			pod := grouptest.NewPod("one")
			c := &pod.Spec.Containers[0]
			c.Image = "registry.example.com/team/app:1"
			for _, name := range test.names {
				c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: test.value})
			}
			l, err := completed(t, Config{Runtime: test.runtime}).newLaunch(request(pod), c)
			if err != nil {
				t.Fatal(err)
			}
			args, env := launched(t, l, l.run())
			got := slices.Concat(args, env, strings.Split(l.files["environment"], "\n"))
			for _, name := range test.names {
				if pair := name + "=" + test.value; slices.Contains(env, pair) {
					t.Errorf("the runtime has the variable %q", pair)
				} else if !slices.Contains(got, test.prefix+pair) {
					t.Errorf("the container has no variable %q", pair)
				}
			}
			if script, ok := l.files["conf"]; ok && environmentOf(t, script, l.files["environment"]) != l.files["environment"] {
				t.Errorf("Enroot reads other variables by %q", script)
			}
		})
	}
}

// environmentOf returns the variables of a container by a configuration script of Enroot.
func environmentOf(t *testing.T, script, environment string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"conf": script, "environment": environment} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.CommandContext(t.Context(), "/bin/bash", "-euc", `source "$1"; environ`, "enroot", filepath.Join(dir, "conf")).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// Enroot, which is a script, takes nothing of a pod for a command.
func TestWhatEnrootEvaluates(t *testing.T) {
	for image, ok := range map[string]bool{
		"busybox:1": true, "registry.example.com:5000/team/app:1": true, "docker://me@registry.example.com#team/app@sha256:0123": true, "/images/app+1.sqsh": true,
		`docker://x/{system("id")}/#app`: false, "/pods/v/a';id;'.sqsh": false, "docker://$(whoami)": false, "a b": false,
	} {
		for password, okay := range map[string]bool{"sword'fish": ok, "$(id)": false, "a\nmachine x": false, "": ok} {
			pod := grouptest.NewPod("one")
			pod.Spec.Containers[0].Image = image
			r := request(pod)
			r.Logins = []podgroup.Login{{Registry: "registry.example.com", Username: "me", Password: password}}
			if _, err := completed(t, Config{Runtime: RuntimeEnroot, HostPaths: []string{"/images", "/pods"}}).newLaunch(r, &pod.Spec.Containers[0]); (err == nil) != okay || err != nil && password != "" && strings.Contains(err.Error(), password) {
				t.Errorf("image %q with password %q: %v", image, password, err)
			}
		}
	}
	pod := grouptest.NewPod("one")
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "1\nB=2"}}
	if _, err := completed(t, Config{Runtime: RuntimeEnroot}).newLaunch(request(pod), &pod.Spec.Containers[0]); err == nil {
		t.Error("a variable with two lines would become two")
	}
	c := Config{Cluster: "test", Runtime: RuntimeEnroot, RuntimeOptions: []string{"--conf=/etc/site.conf"}}
	if err := c.complete(); err == nil {
		t.Error("the variables would be those of another configuration script")
	}
}

// Apptainer gets the credentials of the registry of the container's image, and no others.
func TestLoginsOfApptainer(t *testing.T) {
	images := t.TempDir()
	if err := os.WriteFile(filepath.Join(images, "app.sif"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	logins := []podgroup.Login{
		{Registry: "registry.example.com", Username: "one", Password: "p1"}, {Registry: "docker.io", Username: "two", Password: "p2"}, {Registry: "other.example.com:5000", Username: "three", Password: "p3"},
	}
	for image, want := range map[string]string{
		"registry.example.com/team/app:1": "one p1", "busybox": "two p2", "other.example.com:5000/app": "three p3", "oras://other.example.com:5000/app": "three p3",
		"evil.example.com/app": "", "registry.example.com:444/app": "", "docker://evil.example.com/registry.example.com/app": "", "oras://team/app": "", "library://team/app": "", images + "/app.sif": "",
	} {
		pod := grouptest.NewPod("one")
		c := &pod.Spec.Containers[0]
		c.Image = image
		r := request(pod)
		r.Logins = logins
		l, err := completed(t, Config{Runtime: RuntimeApptainer, HostPaths: []string{images}}).newLaunch(r, c)
		if err != nil {
			t.Fatal(err)
		}
		for _, program := range []string{l.run(), l.enter()} {
			_, env := launched(t, l, program)
			var got []string
			for _, name := range []string{"USERNAME", "PASSWORD"} {
				for _, pair := range env {
					if value, ok := strings.CutPrefix(pair, "APPTAINER_DOCKER_"+name+"="); ok {
						got = append(got, value)
					}
				}
			}
			if strings.Join(got, " ") != want {
				t.Errorf("for image %s Apptainer gets %q", image, got)
			}
		}
	}
}

// Enroot knows Docker Hub by the name of its server, and looks for credentials by that, without a
// port. It gets those of the registry of the container's image, and no others; the host of the
// tokens is another one.
func TestLoginsOfEnroot(t *testing.T) {
	logins := []podgroup.Login{
		{Registry: "registry.example.com", Username: "one", Password: "p1"}, {Registry: "docker.io", Username: "two", Password: "p2"}, {Registry: "other.example.com:5000", Username: "three", Password: "p3"},
	}
	digest := "@sha256:" + strings.Repeat("0", 64)
	const hub = "machine registry-1.docker.io login two password p2\ndefault login two password p2\n"
	for image, want := range map[string]struct{ source, credentials string }{
		"busybox":                                            {"registry-1.docker.io#library/busybox", hub},
		"busybox:1" + digest:                                 {"registry-1.docker.io#library/busybox:1" + digest, hub},
		"team/app:1":                                         {"registry-1.docker.io#team/app:1", hub},
		"docker.io/busybox:1":                                {"registry-1.docker.io#library/busybox:1", hub},
		"index.docker.io/team/app":                           {"registry-1.docker.io#team/app", hub},
		"docker://two@team/app":                              {"two@registry-1.docker.io#team/app", hub},
		"docker://registry-1.docker.io#a/b":                  {"registry-1.docker.io#a/b", hub},
		"registry.example.com/team/app:1":                    {"registry.example.com#team/app:1", "machine registry.example.com login one password p1\ndefault login one password p1\n"},
		"other.example.com:5000/app" + digest:                {"other.example.com:5000#app" + digest, "machine other.example.com login three password p3\ndefault login three password p3\n"},
		"docker://me@other.example.com:5000#a":               {"me@other.example.com:5000#a", "machine other.example.com login three password p3\ndefault login three password p3\n"},
		"evil.example.com/app":                               {"evil.example.com#app", "none\n"},
		"docker://registry.example.com@evil.example.com#app": {"registry.example.com@evil.example.com#app", "none\n"},
	} {
		pod := grouptest.NewPod("one")
		pod.Spec.Containers[0].Image = image
		r := request(pod)
		r.Logins = logins
		b := completed(t, Config{Runtime: RuntimeEnroot})
		l, err := b.newLaunch(r, &pod.Spec.Containers[0])
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		home := filepath.Join(dir, "containers", "main")
		err = os.MkdirAll(home, 0o755)
		for name, text := range l.files {
			err = errors.Join(err, os.WriteFile(filepath.Join(home, name), []byte(text), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
		const enroot = `enroot() { printf '%s\n' "${4#docker://}"; cat "$ENROOT_CONFIG_PATH/.credentials" 2>/dev/null || echo none; return 1; }` + "\n"
		out, err := exec.CommandContext(t.Context(), "/bin/bash", "-c", enroot+"dir=$1 ENROOT_CONFIG_PATH=/missing\n"+l.run(), "job", dir).Output()
		if ended, ok := errors.AsType[*exec.ExitError](err); !ok || ended.ExitCode() != 125 {
			t.Errorf("an import that fails ends with %v", err)
		}
		if string(out) != want.source+"\n"+want.credentials {
			t.Errorf("image %s is imported with %q", image, out)
		}
	}
}

// An image is prefixed unless it says where it is.
func TestImages(t *testing.T) {
	b := completed(t, Config{Runtime: RuntimeApptainer, HostPaths: []string{"/images", "/cvmfs"}})
	for image, want := range map[string]string{
		"busybox": "docker://busybox", "/images/app.sif": "/images/app.sif", "oras://example.com/app": "oras://example.com/app",
	} {
		pod := grouptest.NewPod("one")
		pod.Spec.Containers[0].Image = image
		l, err := b.newLaunch(request(pod), &pod.Spec.Containers[0])
		if err != nil || l.image != want {
			t.Errorf("image %s is %s, error %v", image, l.image, err)
		}
	}
	for _, image := range []string{"--privileged", "a b", "a\ntags {\"UID\":\"of-another-pod\"}", "a\x00b", "a\rb"} {
		pod := grouptest.NewPod("one")
		pod.Spec.Containers[0].Image = image
		if _, err := completed(t, Config{Runtime: RuntimePodman}).stage(request(pod)); err == nil {
			t.Errorf("image %q is staged", image)
		}
	}
	pod := grouptest.NewPod("one")
	pod.Annotations = map[string]string{annotationImageRoot: "/cvmfs/unpacked/"}
	if l, err := b.newLaunch(request(pod), &pod.Spec.Containers[0]); err != nil || l.image != "/cvmfs/unpacked/busybox:1" {
		t.Errorf("with a root the image is %s, error %v", l.image, err)
	}
}

// An image on the machine is read where a volume of it might be mounted, and nowhere else.
func TestImagesOfTheMachine(t *testing.T) {
	apptainer, podman, enroot := []Runtime{RuntimeApptainer, RuntimeSingularity}, []Runtime{RuntimePodman}, []Runtime{RuntimeEnroot}
	all := slices.Concat(apptainer, podman, enroot)
	for _, test := range []struct {
		image, root string
		runtimes    []Runtime // that take it
		file        string
		missing     string // for which the others refuse it
	}{
		{"busybox:1", "", all, "", ""},
		{"registry.example.com:5000/team/app@sha256:" + strings.Repeat("0", 64), "", all, "", ""},
		{"docker://registry.example.com/app", "", all, "", ""},
		{"oras://registry.example.com/app", "", apptainer, "", "docker://"},
		{"library://team/app", "", apptainer, "", "docker://"},
		{"/images/app.sif", "", slices.Concat(apptainer, enroot), "/images/app.sif", "registry"},
		{"/images/team/app:1", "", slices.Concat(apptainer, enroot), "/images/team/app:1", "registry"},
		{"/images", "", slices.Concat(apptainer, enroot), "/images", "registry"},
		{"/home/me", "", nil, "", "hostPaths"},
		{"/", "", nil, "", "hostPaths"},
		{"/images2", "", nil, "", "hostPaths"},
		{"/images/../home/me", "", nil, "", "hostPaths"},
		{"//home/me", "", nil, "", "hostPaths"},
		{"app.sif", "/images/", slices.Concat(apptainer, enroot), "/images/app.sif", "hostPaths"},
		{"../home/me", "/images/", nil, "", "hostPaths"},
		{"me", "/home/", nil, "", "hostPaths"},
		{"me", "./", nil, "", "hostPaths"},
		{"me", "dir:", nil, "", "hostPaths"},
		{"images", "oci:", nil, "", "hostPaths"},
		{"oci:///images/app:1", "", slices.Concat(apptainer, podman), "/images/app", "hostPaths"},
		{"app:1", "oci:/images/", slices.Concat(apptainer, podman), "/images/app", "hostPaths"},
		{"app.tar:1", "docker-archive:/images/", slices.Concat(apptainer, podman), "/images/app.tar", "hostPaths"},
		{"app.tar:1", "oci-archive:/images/x/../", slices.Concat(apptainer, podman), "/images/app.tar", "hostPaths"},
		{"app:1", "dir:/images/", podman, "/images/app:1", "hostPaths"},
		{"app.sif", "sif:/images/", podman, "/images/app.sif", "hostPaths"},
		{"me:1", "oci:/images/../home/", nil, "", "hostPaths"},
		{"docker-archive:///home/me/x.tar", "", nil, "", "hostPaths"},
		{"oci-archive:///home/me/x.tar", "", nil, "", "hostPaths"},
		{"docker-daemon:app:1", "docker-daemon:", nil, "", "hostPaths"},
		{"docker-daemon://app:1", "", nil, "", "hostPaths"},
		{"app", "containers-storage:[/home/me]", nil, "", "hostPaths"},
		{"/home/me/x.tar", "tarball:", nil, "", "hostPaths"},
		{"dockerd://app", "", nil, "", "hostPaths"},
		{"podman://app", "", nil, "", "hostPaths"},
		{"instance://app", "", nil, "", "hostPaths"},
		{"shub://team/app", "", nil, "", "hostPaths"},
		{"http://192.0.2.1/app.sif", "", nil, "", "hostPaths"},
		{"https://example.com/app.sif", "", nil, "", "hostPaths"},
		{"file:///images/app.sif", "", nil, "", "hostPaths"},
	} {
		for _, runtime := range all {
			pod := grouptest.NewPod("one")
			pod.Spec.Containers[0].Image = test.image
			if test.root != "" {
				pod.Annotations = map[string]string{annotationImageRoot: test.root}
			}
			b := completed(t, Config{Runtime: runtime, HostPaths: []string{"/images"}})
			missing := strings.Join(b.check(pod), "; ")
			l, err := b.newLaunch(request(pod), &pod.Spec.Containers[0])
			if ok := slices.Contains(test.runtimes, runtime); ok != (missing == "") || ok != (err == nil) || !strings.Contains(missing, test.missing) && !ok {
				t.Errorf("%s takes %s%s: missing is %q, error %v", runtime, test.root, test.image, missing, err)
			} else if ok && (l.file != test.file || test.file != "" && !strings.Contains(l.image, test.file)) {
				t.Errorf("%s takes %s%s as %s, which is at %q", runtime, test.root, test.image, l.image, l.file)
			}
		}
	}
	// Podman takes a tag for a path.
	for _, image := range []string{"oci:latest", "dir:latest", "tarball:latest", "containers-storage:latest", "docker-archive:latest"} {
		pod := grouptest.NewPod("one")
		pod.Spec.Containers[0].Image = image
		if missing := completed(t, Config{Runtime: RuntimePodman}).check(pod); len(missing) != 1 {
			t.Errorf("image %s is refused for %q", image, missing)
		}
	}
}

// An image that is a link out of its directory is not read.
func TestLinksToImages(t *testing.T) {
	images, outside, dir := t.TempDir(), t.TempDir(), t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "containers", "main"), 0o755), os.Mkdir(filepath.Join(images, "app"), 0o755), os.Symlink("app", filepath.Join(images, "within")), os.Symlink(outside, filepath.Join(images, "out"))); err != nil {
		t.Fatal(err)
	}
	for _, runtime := range []Runtime{RuntimeApptainer, RuntimeEnroot, RuntimePodman} {
		for name, ok := range map[string]bool{"app": true, "within": true, "out": false, "missing": false} {
			pod := grouptest.NewPod("one")
			pod.Spec.Containers[0].Image = filepath.Join(images, name)
			if runtime == RuntimePodman {
				pod.Spec.Containers[0].Image = "oci:" + pod.Spec.Containers[0].Image
			}
			l, err := completed(t, Config{Runtime: runtime, HostPaths: []string{images}}).newLaunch(request(pod), &pod.Spec.Containers[0])
			if err != nil {
				t.Fatal(err)
			}
			programs := []string{l.run()}
			if runtime == RuntimeApptainer {
				programs = append(programs, l.enter()) // another container of the image
			}
			for _, program := range programs {
				checks, _, found := strings.Cut(program, "'"+string(runtime)+"' ")
				if ended := exec.CommandContext(t.Context(), "/bin/bash", "-c", functionOfScript("inside")+"dir=$1\n"+checks[:strings.LastIndexByte(checks, '\n')+1], "job", dir).Run(); !found || (ended == nil) != ok {
					t.Errorf("with runtime %s the checks of image %s, %q, end with %v", runtime, name, checks, ended)
				}
			}
		}
	}
}

// A link in a volume leads no mount out of it.
func TestMountsStayInTheirVolumes(t *testing.T) {
	outside := t.TempDir()
	for name, c := range map[string]struct {
		volume corev1.VolumeSource
		link   string // in the volume, which is mounted by that name
		to     string
		ok     bool
	}{
		"a directory":       {emptyDir, "", "", true},
		"a link within":     {emptyDir, "link", "b", true},
		"a link out of it":  {emptyDir, "link", outside, false},
		"a link above":      {emptyDir, "link", "../../..", false},
		"a link to nothing": {emptyDir, "link", "missing", false},
		"of the machine":    {corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}, "link", outside, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			volume := filepath.Join(dir, "volumes", "scratch")
			if err := os.MkdirAll(filepath.Join(volume, "b"), 0o755); err != nil {
				t.Fatal(err)
			}
			pod := grouptest.NewPod("one")
			pod.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: c.volume}}
			mount := corev1.VolumeMount{Name: "scratch", MountPath: "/x", SubPath: "b"}
			if c.link != "" {
				if err := os.Symlink(c.to, filepath.Join(volume, c.link)); err != nil {
					t.Fatal(err)
				}
				mount.SubPath = c.link
			}
			config := Config{Runtime: RuntimePodman, HostPaths: []string{volume}}
			if c.volume.HostPath != nil {
				pod.Spec.Volumes[0].HostPath.Path, mount.SubPath = filepath.Join(volume, c.link), ""
			}
			pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{mount}
			l, err := completed(t, config).newLaunch(request(pod), &pod.Spec.Containers[0])
			if err != nil {
				t.Fatal(err)
			}
			checks := l.binds(func(string, string, bool) {})
			text, err := exec.CommandContext(t.Context(), "/bin/bash", "-c", functionOfScript("inside")+"dir=$1\n"+checks, "job", dir).CombinedOutput()
			if (err == nil) != c.ok || checks == "" {
				t.Errorf("the checks %q end with %v: %s", checks, err, text)
			}
		})
	}
}

// A runtime takes no path for two of them: /scratch/a and /home/me.
func TestPathsThatSeparate(t *testing.T) {
	for _, path := range []string{"/scratch/a,/home/me", "/scratch/a:/etc", "/scratch/a\nb", `/scratch/a"b`, `/scratch/a\b`, "/scratch/a b"} {
		for _, runtime := range []Runtime{RuntimeApptainer, RuntimeSingularity, RuntimePodman, RuntimeEnroot, RuntimeNone} {
			pod := grouptest.NewPod("one")
			pod.Spec.Containers[0].Command = []string{"true"}
			pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}}}
			missing := completed(t, Config{Runtime: runtime, HostPaths: []string{"/scratch"}}).check(pod)
			if ok := runtime == RuntimeNone || path == "/scratch/a b"; ok != (len(missing) == 0) {
				t.Errorf("with runtime %s path %q is refused for %q", runtime, path, missing)
			}
		}
	}
}

var emptyDir = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
