package slurm

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/providers/slurm/internal/login"
)

// launch writes the programs of a container for its runtime: run executes it, enter a
// command in it, and kill removes what is left of it. bash reads them in the job's script,
// where dir is the pod's directory.
type launch struct {
	config    *Config
	pod       *corev1.Pod
	container *corev1.Container
	unit      string
	image     string
	file      string // the image's path on the machine, if it has one
	options   []string
	hasLogins bool
	files     map[string]string // others that they need, in the container's directory
}

func (b *backend) newLaunch(r *podgroup.Request, c *corev1.Container) (*launch, error) {
	image, file, err := b.config.image(r.Pod, c)
	if err != nil {
		return nil, err
	}
	l := &launch{config: &b.config, pod: r.Pod, container: c, unit: nameOf(r), image: image, file: file, options: b.config.RuntimeOptions, hasLogins: len(r.Logins) > 0, files: map[string]string{}}
	more, err := splitWords(r.Pod.Annotations[annotationOptions])
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %w", annotationOptions, err)
	}
	l.options = slices.Concat(l.options, more)
	switch b.config.Runtime {
	case RuntimeApptainer, RuntimeSingularity:
		l.addLogin(r.Logins, registryOf(l.image), "logins", "%[2]s\n%[3]s\n")
	case RuntimeEnroot:
		_, registry := enrootSource(l.image)
		// Registries may have other hosts for tokens: auth.docker.io.
		l.addLogin(r.Logins, registry, ".credentials", "machine %[1]s login %[2]s password %[3]s\ndefault login %[2]s password %[3]s\n")
	}
	return l, l.check(r.Logins)
}

// addLogin adds a file with the credentials of the image's registry, in a format for its host, user
// and password. Apptainer takes one user, and sends it to any registry.
func (l *launch) addLogin(logins []podgroup.Login, registry, file, format string) {
	i := slices.IndexFunc(logins, func(one podgroup.Login) bool { return one.Registry == registry })
	if l.hasLogins = i >= 0; l.hasLogins {
		host, _, _ := strings.Cut(registry, ":") // Enroot, as curl, leaves out the port
		if registry == dockerHub {
			host = dockerHubServer
		}
		l.files[file] = fmt.Sprintf(format, host, logins[i].Username, logins[i].Password)
	}
}

// registryOf returns the registry from which Apptainer gets an image; empty if it is from none.
func registryOf(image string) string {
	scheme, rest, _ := strings.Cut(image, "://")
	switch scheme {
	case "docker":
		if name, err := reference.ParseNormalizedNamed(rest); err == nil {
			return reference.Domain(name)
		}
	case "oras":
		registry, _, _ := strings.Cut(rest, "/")
		return registry
	}
	return ""
}

const (
	dockerHub       = "docker.io"
	dockerHubServer = "registry-1.docker.io"
)

// enrootSource returns what Enroot imports an image from, in which # is between registry and name, and
// the registry; empty if the image is a file. Enroot knows Docker Hub by its server.
func enrootSource(image string) (source, registry string) {
	scheme, rest, ok := strings.Cut(image, "://")
	if !ok {
		return "", ""
	}
	user, name, ok := strings.Cut(rest, "@")
	if !ok || strings.HasPrefix(name, "sha256:") {
		user, name = "", rest
	} else {
		user += "@"
	}
	if registry, rest, ok = strings.Cut(name, "#"); !ok {
		if registry, rest, ok = strings.Cut(name, "/"); !ok || !strings.ContainsAny(registry, ".:") {
			registry, rest = dockerHub, name
		}
	}
	server := registry
	if slices.Contains([]string{dockerHub, "index.docker.io", dockerHubServer}, registry) {
		registry, server = dockerHub, dockerHubServer
		if !strings.Contains(rest, "/") {
			rest = "library/" + rest
		}
	}
	return scheme + "://" + user + server + "#" + rest, registry
}

// enrootImage is what Enroot, a script of bash, does not take for commands.
var enrootImage = regexp.MustCompile(`^([a-z]+://([A-Za-z0-9._~+-]+@)?([A-Za-z0-9.:-]+#)?)?[A-Za-z0-9._/:@+-]+$`)

// check returns an error for what the script, the runtime or the file state would take for
// something else.
func (l *launch) check(logins []podgroup.Login) error {
	isEnroot := l.config.Runtime == RuntimeEnroot
	// It is part of a line of the file state, too: with another line in it, a pod would have
	// the identity of others.
	if strings.HasPrefix(l.image, "-") || strings.ContainsFunc(l.image, isSeparator) || isEnroot && !enrootImage.MatchString(l.image) {
		return fmt.Errorf("%q is no image", l.image)
	}
	for _, e := range l.container.Env {
		if strings.ContainsRune(e.Name+e.Value, 0) || isEnroot && strings.Contains(e.Value, "\n") {
			return fmt.Errorf("variable %q has a zero byte, or a line break with runtime: enroot", e.Name)
		}
	}
	for _, word := range slices.Concat(l.container.Command, l.container.Args, []string{l.container.WorkingDir}) {
		if strings.ContainsRune(word, 0) {
			return fmt.Errorf("the command has a zero byte")
		}
	}
	for _, one := range logins {
		if isEnroot && (strings.HasPrefix(one.Password, "$") || strings.ContainsFunc(one.Username+one.Password, isSeparator)) {
			return fmt.Errorf("registry %s: Enroot would take a part of the credentials for a command, or for a line of its own", one.Registry)
		}
	}
	return nil
}

func isSeparator(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }

// name is that of the container on the machine.
func (l *launch) name() string { return "vk-" + l.unit + "-" + l.container.Name }

// words quotes words for bash, but for the variables of the script.
func words(all ...string) string {
	var quoted []string
	for _, word := range all {
		rest, isDir := strings.CutPrefix(word, dirVariable)
		name, isAddress := strings.CutSuffix(word, addressVariable)
		switch {
		case isDir:
			quoted = append(quoted, `"$dir"`+login.Quote(rest))
		case isAddress:
			quoted = append(quoted, login.Quote(name)+`"$address"`)
		default:
			quoted = append(quoted, login.Quote(word))
		}
	}
	return strings.Join(quoted, " ")
}

// dirVariable stands for the pod's directory at the beginning of a word, and addressVariable
// for its address at the end of one: no word of a pod has a zero byte.
const (
	dirVariable     = "\x00"
	addressVariable = "\x00address"
)

// command is the container's, without the image's entry point.
func (l *launch) command() []string { return slices.Concat(l.container.Command, l.container.Args) }

// bashNames are variables that bash keeps for itself.
var bashNames = []string{"UID", "EUID", "PPID", "BASHOPTS", "SHELLOPTS", "BASH_VERSINFO", "BASH_ENV", "ENV", "dir"}

// hostNames are variables that Podman, what it runs, or the C library reads: with a container's
// value they would be in force on the machine, and not in the container.
var hostNames = regexp.MustCompile(`^(_.*|BASH.*|BUILDAH_.*|CONTAINERS_.*|CONTAINER_(CONNECTION|HOST|PROXY|SSHKEY|TLS.*)|CRUN_.*|DBUS_.*|DOCKER_(CERT_PATH|CONFIG|CONTEXT|HOST)|` +
	`FUSE_.*|GCONV_PATH|GETCONF_DIR|GLIBC_.*|GNUPGHOME|GODEBUG|GOTRACEBACK|HOME|HOSTALIASES|IFS|LANG(UAGE)?|LC_.*|LD_.*|LIBPOD_.*|LISTEN_.*|LOCALDOMAIN|LOCPATH|LOGNAME|MALLOC_.*|` +
	`NETAVARK_.*|NLSPATH|NOTIFY_SOCKET|OCI_.*|OPENSSL_.*|PATH|PERL.*|PODMAN_.*|PS4|PYTHON.*|REGISTRIES_CONFIG_PATH|REGISTRY_AUTH_FILE|RES_OPTIONS|RUNC_.*|SHELL|SSH_AUTH_SOCK|` +
	`SSLKEYLOGFILE|SSL_CERT_.*|STORAGE_(DRIVER|OPTS)|SYSTEMD_.*|TMPDIR|TZ(DIR)?|USER|XDG_.*|(?i:[a-z]+_proxy))$`)

// environment returns the commands that export the variables, each with a prefix, and the
// words of a command that adds those that bash cannot have. Without a prefix they are those of
// what is executed next.
func (l *launch) environment(prefix string) (exports string, odd []string) {
	var b strings.Builder
	for _, e := range l.container.Env {
		if isAddress(&e) {
			fmt.Fprintf(&b, "export %s=\"$address\"\n", prefix+e.Name)
		} else if envName.MatchString(e.Name) && (prefix != "" || !slices.Contains(bashNames, e.Name)) {
			fmt.Fprintf(&b, "export %s=%s\n", prefix+e.Name, login.Quote(e.Value))
		} else {
			odd = append(odd, e.Name+"="+e.Value)
		}
	}
	if len(odd) > 0 {
		odd = append([]string{"env"}, odd...)
	}
	return b.String(), odd
}

// isAddress reports whether a variable is the pod's address, which the script knows.
func isAddress(e *corev1.EnvVar) bool {
	return e.ValueFrom != nil && e.ValueFrom.FieldRef != nil && slices.Contains([]string{"status.podIP", "status.podIPs"}, e.ValueFrom.FieldRef.FieldPath) && envName.MatchString(e.Name)
}

func (l *launch) run() string {
	switch l.config.Runtime {
	case RuntimePodman:
		return l.podman()
	case RuntimeApptainer, RuntimeSingularity:
		return l.apptainer(false)
	case RuntimeEnroot:
		return l.enroot()
	}
	exports, odd := l.environment("")
	return l.change() + exports + "exec " + words(append(odd, l.command()...)...) + "\n"
}

func (l *launch) change() string {
	if dir := l.container.WorkingDir; dir != "" {
		return "cd " + words(dir) + " || exit 126\n"
	}
	return ""
}

func (l *launch) enter() string {
	switch l.config.Runtime {
	case RuntimePodman:
		return "terminal=\n[ ! -t 0 ] || terminal=--tty\nexec podman exec --interactive $terminal " + words(l.name()) + ` "$@"` + "\n"
	case RuntimeApptainer, RuntimeSingularity:
		return l.apptainer(true)
	case RuntimeEnroot:
		return `exec enroot exec "$(cat "$dir/containers/` + l.container.Name + `/pid")" "$@"` + "\n"
	}
	exports, odd := l.environment("")
	return l.change() + exports + "exec " + words(odd...) + ` "$@"` + "\n"
}

func (l *launch) kill() string {
	if l.config.Runtime == RuntimePodman {
		return "exec podman rm --force --ignore --time 0 " + words(l.name()) + "\n"
	}
	return ""
}

// binds calls add with each volume that the container has, and returns the commands that
// check them, and its image: a container that has had a volume may have put a link there, which
// leads the next one's mount to what its runtime keeps from it.
func (l *launch) binds(add func(source, target string, readOnly bool)) (checks string) {
	if within := l.config.allowing(l.file); l.file != within {
		checks += "inside " + words(within, l.file) + "\n"
	}
	for _, m := range l.container.VolumeMounts {
		i := slices.IndexFunc(l.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 {
			continue // stageContainer says so
		}
		v := &l.pod.Spec.Volumes[i]
		within := dirVariable + "/" + path.Join("volumes", m.Name)
		source := path.Join(within, m.SubPath)
		if v.HostPath != nil {
			within, source = l.config.allowing(v.HostPath.Path), path.Join(v.HostPath.Path, m.SubPath)
		}
		if source != within {
			checks += "inside " + words(within, source) + "\n"
		}
		add(source, path.Clean(m.MountPath), m.ReadOnly || v.EmptyDir == nil && v.HostPath == nil)
	}
	return checks
}

func (l *launch) podman() string {
	argv := []string{"podman", "run", "--rm", "--replace", "--name", l.name(), "--network", "host", "--log-driver", "none"}
	pull := map[corev1.PullPolicy]string{corev1.PullAlways: "always", corev1.PullNever: "never"}[l.container.ImagePullPolicy]
	if pull == "" {
		pull = "missing"
	}
	argv = append(argv, "--pull", pull)
	if l.hasLogins {
		argv = append(argv, "--authfile", dirVariable+"/logins")
	}
	if l.container.WorkingDir != "" {
		argv = append(argv, "--workdir", l.container.WorkingDir)
	}
	checks := l.binds(func(source, target string, readOnly bool) {
		mode := "rw"
		if readOnly {
			mode = "ro"
		}
		argv = append(argv, "--volume", source+":"+target+":"+mode)
	})
	var exports string
	argv, exports = l.podmanEnvironment(argv)
	argv = append(argv, l.options...)
	if len(l.container.Command) > 0 {
		entry, _ := json.Marshal(l.container.Command) // strings
		argv = append(argv, "--entrypoint", string(entry))
	}
	// The variables may have names of the script, too.
	return checks + "set -- " + words(append(append(argv, l.image), l.container.Args...)...) + "\n" + exports + `exec "$@"` + "\n"
}

// podmanEnvironment adds the flags for the variables. They are in a file, which has one line
// for each; those with several lines are in Podman's own environment.
func (l *launch) podmanEnvironment(argv []string) (all []string, exports string) {
	l.files["environment"] = ""
	for _, e := range l.container.Env {
		switch {
		case isAddress(&e):
			argv = append(argv, "--env", e.Name+"="+addressVariable)
		case !strings.ContainsAny(e.Value, "\n\r"):
			l.files["environment"] += e.Name + "=" + e.Value + "\n"
		case envName.MatchString(e.Name) && !slices.Contains(bashNames, e.Name) && !hostNames.MatchString(e.Name):
			exports += "export " + e.Name + "=" + login.Quote(e.Value) + "\n"
			argv = append(argv, "--env", e.Name)
		default: // ps shows it
			argv = append(argv, "--env", e.Name+"="+e.Value)
		}
	}
	return append(argv, "--env-file", l.inDirectory("environment")), exports
}

// inDirectory returns the path of one of the container's files.
func (l *launch) inDirectory(name string) string {
	return dirVariable + "/containers/" + l.container.Name + "/" + name
}

// apptainer runs the container, or a command in another one that is the same.
func (l *launch) apptainer(enter bool) string {
	prefix := "APPTAINERENV_"
	login := "APPTAINER_DOCKER_"
	if l.config.Runtime == RuntimeSingularity {
		prefix, login = "SINGULARITYENV_", "SINGULARITY_DOCKER_"
	}
	exports, _ := l.environment(prefix)
	if l.hasLogins {
		exports += "{ read -r " + login + "USERNAME; read -r " + login + "PASSWORD; } <" + words(l.inDirectory("logins")) + "\nexport " + login + "USERNAME " + login + "PASSWORD\n"
	}
	verb := "run"
	if enter || len(l.container.Command) > 0 {
		verb = "exec"
	}
	argv := append([]string{string(l.config.Runtime), verb}, l.options...)
	if l.container.WorkingDir != "" {
		argv = append(argv, "--pwd", l.container.WorkingDir)
	}
	exports = l.binds(func(source, target string, readOnly bool) {
		bind := source + ":" + target
		if readOnly {
			bind += ":ro"
		}
		argv = append(argv, "--bind", bind)
	}) + exports
	argv = append(argv, l.image)
	if enter {
		return exports + "exec " + words(argv...) + ` "$@"` + "\n"
	}
	return exports + "exec " + words(append(argv, l.command()...)...) + "\n"
}

func (l *launch) enroot() string {
	var b strings.Builder
	fmt.Fprintf(&b, "image=%s\n", words(l.image))
	if source, _ := enrootSource(l.image); source != "" {
		with := ""
		if l.hasLogins {
			with = "ENROOT_CONFIG_PATH=" + words(path.Dir(l.inDirectory(".credentials"))) + " "
		}
		// Others can write to the directories of the machine for temporary files.
		fmt.Fprintf(&b, "image=%s\n[ -e \"$image\" ] || %senroot import --output \"$image\" %s || { rm -f \"$image\"; exit 125; }\n", words(l.inDirectory("image.sqsh")), with, words(source))
	}
	argv := append([]string{"enroot", "start", "--rw"}, l.options...)
	b.WriteString(l.binds(func(source, target string, readOnly bool) {
		mode := "rw"
		if readOnly {
			mode = "ro"
		}
		argv = append(argv, "--mount", source+":"+target+":"+mode+",bind,x-create=auto")
	}))
	// Enroot, and the hooks of the site, read their own settings from the environment. In the
	// container there is none of it but what this function prints.
	l.files["conf"] = `environ() { cat "${BASH_SOURCE[0]%/*}/environment"; }` + "\n"
	l.files["environment"] = ""
	for _, e := range l.container.Env {
		if isAddress(&e) {
			argv = append(argv, "--env", e.Name+"="+addressVariable)
		} else {
			l.files["environment"] += e.Name + "=" + e.Value + "\n"
		}
	}
	argv = append(argv, "--conf", l.inDirectory("conf"))
	rest := l.container.Args
	if len(l.container.Command) > 0 {
		l.files["rc"] = "cd " + words(path.Clean("/"+l.container.WorkingDir)) + " && exec \"$@\"\n"
		argv = append(argv, "--rc", l.inDirectory("rc"))
		rest = l.command()
	}
	return b.String() + "echo $BASHPID >\"$dir/containers/" + l.container.Name + "/pid\"\n" +
		"exec " + words(argv...) + ` "$image" ` + words(rest...) + "\n"
}

// loginsFile returns the credentials of registries for Podman, which chooses among them.
func loginsFile(runtime Runtime, logins []podgroup.Login) string {
	if len(logins) == 0 || runtime != RuntimePodman {
		return ""
	}
	auths := map[string]map[string]string{}
	for _, l := range logins {
		auths[l.Registry] = map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte(l.Username + ":" + l.Password))}
	}
	text, _ := json.Marshal(map[string]any{"auths": auths}) // strings
	return string(text)
}
