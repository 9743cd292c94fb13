package login

import (
	"archive/tar"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// place is a machine with commands of Slurm that write down what they are called with, and the
// directory of a pod.
type place struct {
	*testing.T
	home, dir string
	shell     Shell
	stdin     string
}

// newPlace returns one whose squeue prints jobs, each as its ID and its state, and ends with an
// exit code.
func newPlace(t *testing.T, jobs string, code int) *place {
	t.Helper()
	home := t.TempDir()
	p := &place{T: t, home: home, dir: filepath.Join(home, "pods", "one")}
	bin := filepath.Join(home, "bin")
	p.shell.Environment = map[string]string{"HOME": home, "PATH": bin + ":/usr/bin:/bin"}
	// As Slurm's own it has one state for each job, which is that of a flag if there is one.
	p.write(filepath.Join(bin, "squeue"), `#!/bin/sh
for arg; do case $arg in --states=*) states=${arg#*=} ;; esac; done
printf '%s' '`+jobs+`' | while read -r id state; do
	case ,$states, in ,all, | *",$state,"*) echo "$id${state:+ $state}" ;; esac
done
exit `+strconv.Itoa(code)+"\n")
	for _, name := range []string{"scancel", "sbatch", "podman"} {
		p.write(filepath.Join(bin, name), "#!/bin/sh\necho "+name+" \"$*\" >>"+filepath.Join(home, "calls")+"\necho 8\n")
	}
	return p
}

func (p *place) write(name, text string) {
	p.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o700)); err != nil { // #nosec G306 -- a program
		p.Fatal(err)
	}
}

func (p *place) read(name string) string {
	p.Helper()
	text, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.Fatal(err)
	}
	return string(text)
}

// calls returns the calls of Slurm since the last time.
func (p *place) calls() string {
	p.Helper()
	defer os.Remove(filepath.Join(p.home, "calls"))
	return p.read(filepath.Join(p.home, "calls"))
}

func (p *place) run(verb string, args ...string) error {
	p.Helper()
	return p.shell.Run(p.Context(), Command{Verb: verb, Args: args, Stdin: strings.NewReader(p.stdin)})
}

// A deletion that is sent again does not shorten the grace period, and one with another does.
func TestDeletionsOfAJobThatRuns(t *testing.T) {
	const asked, ended = "scancel --batch --signal=TERM 7\n", "scancel 7\n"
	until := func(after time.Duration) string { return strconv.FormatInt(time.Now().Add(after).Unix(), 10) }
	for name, c := range map[string]struct {
		state, grace, want string
	}{
		"the first":                               {"", "600", asked},
		"the first, without a grace period":       {"", "0", ended},
		"again, and the script has not seen it":   {"deleted 600\nuntil " + until(500*time.Second) + "\n", "600", asked},
		"again, while the script stops":           {"deleted 600\nuntil " + until(500*time.Second) + "\nstopped 1000\n", "600", ""},
		"again, with less time":                   {"deleted 600\nuntil " + until(500*time.Second) + "\nstopped 1000\n", "300", ""},
		"again, with no time":                     {"deleted 600\nuntil " + until(500*time.Second) + "\nstopped 1000\n", "0", ended},
		"again, and the time is over":             {"deleted 600\nuntil " + until(-time.Hour) + "\nstopped 1000\n", "600", ended},
		"again, after one of the version before":  {"deleted 600\nstopped 1000\n", "600", ""},
		"the first, while Slurm ends the job":     {"stopped 1000\n", "600", ""},
		"the first, and the script has not begun": {"-", "600", ended},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t, "7 RUNNING\n", 0)
			state := "tags {}\njob 7\nbegun 7 node1 192.0.2.1\n" + c.state
			if c.state == "-" {
				state = "tags {}\njob 7\n"
			}
			p.write(filepath.Join(p.dir, "state"), state)
			if err := p.run("delete", p.dir, "7", c.grace); err != nil {
				t.Fatal(err)
			}
			if got := p.calls(); got != c.want {
				t.Errorf("Slurm is called with %q", got)
			}
			if after := p.read(filepath.Join(p.dir, "state")); !strings.Contains(after, "\ndeleted "+c.grace+"\n") {
				t.Errorf("the state is %q", after)
			}
		})
	}
}

// Only a job that has ended is not cancelled: squeue finds one with a flag, as STOPPED, by its own state
// no longer.
func TestDeletionsOfJobsInAllStates(t *testing.T) {
	const asked, ended, nothing = "scancel --batch --signal=TERM 7\n", "scancel 7\n", ""
	for state, want := range map[string]string{
		"RUNNING": asked, "SIGNALING": asked, "RESIZING": asked,
		"PENDING": ended, "CONFIGURING": ended, "SUSPENDED": ended, "STOPPED": ended, "COMPLETING": ended, "STAGE_OUT": ended,
		"RESV_DEL_HOLD": ended, "SPECIAL_EXIT": ended, "REQUEUED": ended, "REQUEUE_HOLD": ended, "REQUEUE_FED": ended, "REVOKED": ended,
		"STATE_OF_ANOTHER_VERSION": ended,
		"BOOT_FAIL":                nothing, "CANCELLED": nothing, "COMPLETED": nothing, "DEADLINE": nothing, "FAILED": nothing, "NODE_FAIL": nothing,
		"OUT_OF_MEMORY": nothing, "PREEMPTED": nothing, "TIMEOUT": nothing, "": nothing,
	} {
		t.Run(state, func(t *testing.T) {
			jobs := "17 RUNNING\n7 " + state + "\n"
			if state == "" {
				jobs = ""
			}
			p := newPlace(t, jobs, 0)
			p.write(filepath.Join(p.dir, "state"), "tags {}\njob 7\nbegun 7 node1 192.0.2.1\n")
			if err := p.run("delete", p.dir, "7", "600"); err != nil {
				t.Fatal(err)
			}
			if got := p.calls(); got != want || isLeft(p.dir) != (want != nothing) {
				t.Errorf("Slurm is called with %q, and the directory is left: %v", got, isLeft(p.dir))
			}
			if want == nothing {
				return
			}
			if err := errors.Join(os.RemoveAll(p.dir), p.run("delete", p.dir, "7", "600")); err != nil {
				t.Fatal(err)
			}
			if got := p.calls(); got != ended {
				t.Errorf("without a directory Slurm is called with %q", got)
			}
		})
	}
}

// Of several periods that which ends first counts, and not the last one.
func TestShortestGracePeriod(t *testing.T) {
	p := newPlace(t, "7 RUNNING\n", 0)
	state := filepath.Join(p.dir, "state")
	p.write(state, "tags {}\njob 7\nbegun 7 node1 192.0.2.1\n")
	ends := func() int64 {
		_, rest, _ := strings.Cut(p.read(state), "until ")
		lines := strings.Split(strings.TrimSpace(rest), "until ")
		n, err := strconv.ParseInt(lines[len(lines)-1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	var last int64
	for i, grace := range []string{"600", "300", "600"} {
		if err := p.run("delete", p.dir, "7", grace); err != nil {
			t.Fatal(err)
		}
		if end := ends(); i > 0 && end > last {
			t.Errorf("after a period of %s s the end is later, by %d s", grace, end-last)
		} else {
			last = end
		}
	}
}

// isLeft reports whether there is something.
func isLeft(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// withoutPrivileges lets commands have the rights of a file's owner only.
func (p *place) withoutPrivileges() {
	if os.Geteuid() == 0 {
		p.shell.SSH = []string{"setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner", "/bin/sh", "-c"}
	}
}

// A container can leave directories that are read-only, as the modules of Go.
func TestReadOnlyDirectories(t *testing.T) {
	for _, args := range [][]string{{"remove"}, {"delete", "7", "600"}} {
		t.Run(args[0], func(t *testing.T) {
			p := newPlace(t, "", 0)
			p.withoutPrivileges()
			outside := filepath.Join(p.home, "outside")
			p.write(filepath.Join(outside, "file"), "")
			p.write(filepath.Join(p.dir, "state"), "tags {}\njob 7\n")
			modules := filepath.Join(p.dir, "volumes", "cache", "modules")
			p.write(filepath.Join(modules, "file"), "")
			if err := errors.Join(os.Symlink(outside, filepath.Join(modules, "link")), os.Symlink(outside, filepath.Join(p.dir, "volumes", "host")), os.Chmod(outside, 0o500), os.Chmod(modules, 0o555)); err != nil {
				t.Fatal(err)
			}
			if err := p.run(args[0], append([]string{p.dir}, args[1:]...)...); err != nil {
				t.Error(err)
			}
			if isLeft(p.dir) {
				t.Error("the directory is there")
			}
			if info, err := os.Stat(outside); err != nil || info.Mode().Perm() != 0o500 || !isLeft(filepath.Join(outside, "file")) {
				t.Errorf("a directory of the machine is %v, error %v", info, err)
			}
		})
	}
}

// With podman a container can leave directories of other users. What cannot be removed is still
// known by its state.
func TestDirectoriesOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("only root makes directories of others: run this test as root")
	}
	p := newPlace(t, "", 0)
	p.withoutPrivileges()
	state, others := filepath.Join(p.dir, "state"), filepath.Join(p.dir, "volumes", "data", "others")
	p.write(state, "tags {}\njob 7\n")
	p.write(filepath.Join(others, "file"), "")
	if err := os.Chown(others, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if err := p.run("remove", filepath.Join(p.home, "pods", "another"), p.dir); err == nil {
		t.Error("a directory is removed that is not the user's")
	}
	if got := p.calls(); !strings.HasPrefix(got, "podman unshare find "+p.dir+" ") {
		t.Errorf("the calls are %q", got)
	}
	if !isLeft(others) || !isLeft(state) {
		t.Fatal("the state was removed, and the directory not")
	}
	if err := p.run("delete", p.dir, "7", "600"); err != nil {
		t.Error(err) // lists go on
	}
	if got := p.read(state); !strings.Contains(got, "\ndeleted 0\n") {
		t.Errorf("the state is %q", got)
	}
}

// A creation that is sent again submits no second job while Slurm does not say whether there is one.
func TestCreationWithoutAnAnswer(t *testing.T) {
	const submits = "sbatch --parsable --mem=1 "
	for name, c := range map[string]struct {
		jobs string
		code int
		want string
	}{
		"there is no job": {"", 0, submits},
		"there are two":   {"7\n9\n", 0, ""},
		"no answer":       {"", 1, ""},
		"half an answer":  {"7\n", 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t, c.jobs, c.code)
			state := filepath.Join(p.dir, "state")
			p.write(state, "tags {}\ncreated 1000\n")
			p.stdin = staged(t)
			if err := p.run("create", p.dir, "--mem=1"); (err == nil) != (c.code == 0) {
				t.Errorf("the creation returns %v", err)
			}
			if got := p.calls(); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
				t.Errorf("Slurm is called with %q", got)
			}
			if got := p.read(state); strings.Contains(got, "\njob ") != (c.code == 0) || strings.Contains(got, "\njob 7\n") {
				t.Errorf("the state is %q", got)
			}
		})
	}
}

// After a crash some file systems have NUL bytes in place of what was written last: the rest of the state
// is listed.
func TestStateWithNULBytes(t *testing.T) {
	p := newPlace(t, "", 0)
	p.write(filepath.Join(p.dir, "state"), "job 7\n\x00\x00\nbegun 7 node1\n")
	var out strings.Builder
	if err := p.shell.Run(t.Context(), Command{Verb: "list", Args: []string{filepath.Dir(p.dir)}, Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, "./one/state:job 7\n") || !strings.Contains(got, "./one/state:begun 7 node1\n") {
		t.Errorf("the list is %q", got)
	}
}

// staged is a tar of the files of a pod.
func staged(t *testing.T) string {
	t.Helper()
	const state = "tags {}\ncreated 2000\n"
	var text strings.Builder
	w := tar.NewWriter(&text)
	err := w.WriteHeader(&tar.Header{Name: "staged", Mode: 0o600, Size: int64(len(state))})
	if _, writing := w.Write([]byte(state)); err != nil || writing != nil {
		t.Fatal(err, writing)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return text.String()
}
