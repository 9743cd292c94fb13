package azurebatch

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// dockerVariable has the test's binary be the Docker client, of which it knows as much as
// run.sh calls. Its value is the directory with the containers: their commands are run as
// processes of the machine.
const dockerVariable = "AZUREBATCH_TEST_DOCKER"

// mountVariable has what is mounted in a container, which shares the machine's files.
const mountVariable = "AZUREBATCH_TEST_MOUNTS"

// missingImage is an image that does not exist.
const missingImage = "registry.example/missing:1"

type docker struct{ directory string }

// dockerContainer is what is known of a container.
type dockerContainer struct {
	Args, Labels, Env, Volumes, Command []string
	Image                               string
}

// withValue are the options that have a value.
var withValue = strings.Fields("--name --label --network --ipc --pull --user --cpus --cpu-period --cpu-quota --memory --gpus --workdir --env -v --entrypoint --hostname --add-host --dns --dns-search --dns-option --cap-add --cap-drop --security-opt")

func (d docker) file(name, kind string) string { return filepath.Join(d.directory, name+"."+kind) }

func (d docker) read(name, kind string) string {
	text, _ := os.ReadFile(d.file(name, kind))
	return strings.TrimSpace(string(text))
}

// all returns the containers with a label.
func (d docker) all(label string) (names []string) {
	found, _ := filepath.Glob(d.file("*", "json"))
	for _, path := range found {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		matches := func(l string) bool { return l == label || strings.HasPrefix(l, label+"=") }
		if slices.ContainsFunc(d.container(name).Labels, matches) {
			names = append(names, name)
		}
	}
	return names
}

func (d docker) container(name string) (c dockerContainer) {
	_ = json.Unmarshal([]byte(d.read(name, "json")), &c)
	return c
}

func (d docker) run(args []string) int {
	last := args[len(args)-1]
	switch args[0] {
	case "create", "run":
		return d.create(args[1:])
	case "start":
		return d.start(last)
	case "wait":
		fmt.Println(d.ended(last))
	case "logs":
		d.ended(last)
		for line := range strings.Lines(d.read(last, "log") + "\n") {
			fmt.Print(time.Now().UTC().Format(time.RFC3339Nano) + " " + line)
		}
	case "inspect":
		fmt.Println("false")
	case "ps":
		label := ""
		for _, arg := range args {
			label = strings.TrimPrefix(arg, "label=")
		}
		for _, name := range d.all(label) {
			if d.read(name, "code") == "" || strings.Contains(args[1], "a") {
				fmt.Println(name)
			}
		}
	case "rm", "stop":
		for _, name := range args[1:] {
			if pid, err := strconv.Atoi(d.read(name, "pid")); err == nil && d.read(name, "code") == "" {
				_ = syscall.Kill(-pid, syscall.SIGTERM)
				_ = os.WriteFile(d.file(name, "code"), []byte("143"), 0o600)
			}
			if args[0] == "rm" {
				_ = os.Remove(d.file(name, "json"))
			}
		}
	}
	return 0
}

// ended waits for the end of a container, and returns its code.
func (d docker) ended(name string) string {
	for d.read(name, "code") == "" {
		time.Sleep(5 * time.Millisecond)
	}
	return d.read(name, "code")
}

func (d docker) create(args []string) int {
	c, name, entrypoint := dockerContainer{Args: args}, "", ""
	for strings.HasPrefix(args[0], "-") {
		if !slices.Contains(withValue, args[0]) {
			args = args[1:]
			continue
		}
		switch value := args[1]; args[0] {
		case "--name":
			name = value
		case "--cpus":
			if cpus, err := strconv.ParseFloat(value, 64); err != nil || cpus > float64(runtime.NumCPU()) {
				fmt.Fprintf(os.Stderr, "range of CPUs is from 0.01 to %[1]d.00, as there are only %[1]d CPUs available\n", runtime.NumCPU())
				return 125
			}
		case "--cpu-quota":
			if quota, err := strconv.Atoi(value); err != nil || quota < 1000 {
				fmt.Fprintln(os.Stderr, "CPU cfs quota can not be less than 1ms (i.e. 1000)")
				return 125
			}
		case "--label":
			c.Labels = append(c.Labels, value)
		case "--env":
			c.Env = append(c.Env, value)
		case "-v":
			c.Volumes = append(c.Volumes, value)
		case "--entrypoint":
			entrypoint = value
		}
		args = args[2:]
	}
	c.Image, c.Command = args[0], args[1:]
	if entrypoint != "" {
		c.Command = append([]string{entrypoint}, c.Command...)
	}
	if c.Image == missingImage {
		fmt.Fprintln(os.Stderr, "pull access denied\nfor "+c.Image)
		return 125
	}
	text, _ := json.Marshal(c)
	_ = os.WriteFile(d.file(name, "json"), text, 0o600)
	_ = os.WriteFile(d.file(name, "made"), text, 0o600) // stays
	fmt.Println(name)
	return 0
}

func (d docker) start(name string) int {
	c := d.container(name)
	script := `"$@" >"$0.log" 2>&1; echo $? >"$0.code.new"; mv "$0.code.new" "$0.code"`
	process := exec.Command("/bin/sh", append([]string{"-c", script, filepath.Join(d.directory, name)}, c.Command...)...)
	process.Env = append([]string{"PATH=" + os.Getenv("PATH"), mountVariable + "=" + strings.Join(c.Volumes, " ")}, c.Env...)
	process.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := process.Start(); err != nil {
		return 1
	}
	_ = os.WriteFile(d.file(name, "pid"), []byte(strconv.Itoa(process.Process.Pid)), 0o600)
	return 0
}
