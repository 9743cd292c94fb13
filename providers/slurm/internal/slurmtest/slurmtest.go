// Package slurmtest is a fake of the commands of Slurm: a codec on a grouptest.World. It
// refuses flags that sbatch does not have.
package slurmtest

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
	"github.com/virtual-kubelet/virtual-kubelet/providers/slurm/internal/login"
)

// The actions of the World.
const (
	ActionSubmit = "sbatch"
	ActionList   = "squeue"
	ActionCancel = "scancel"
	ActionUpdate = "update"
	ActionLog    = "log"
	ActionUsage  = "sstat"
	ActionReport = "sinfo"
)

// Fake is a login.Runner.
type Fake struct{ World *grouptest.World }

// dataOf is what a unit of the World has.
type data struct{ directory, comment string }

// Run implements login.Runner.
func (f Fake) Run(ctx context.Context, c login.Command) error {
	out, err := f.run(ctx, c)
	var refusal *grouptest.Refusal
	switch {
	case err == nil:
		_, err := io.WriteString(c.Stdout, out)
		return err
	case errors.Is(err, grouptest.ErrLost):
		return &login.Error{Code: 255, Text: "Connection to login closed by remote host.", Unreachable: true}
	case errors.Is(err, grouptest.ErrQuota):
		return &login.Error{Code: 1, Text: c.Verb + ": error: RPC rate limit exceeded too many times, giving up"}
	case errors.Is(err, grouptest.ErrNotFound):
		return &login.Error{Code: login.NotFound}
	case errors.As(err, &refusal):
		return &login.Error{Code: 1, Text: "error: Unable to contact slurm controller (connect failure)"}
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return &login.Error{Code: 1, Text: "sbatch: error: " + err.Error()}
}

func (f Fake) run(ctx context.Context, c login.Command) (out string, err error) {
	serve := func(action string, do func() error) (string, error) {
		err := f.World.Serve(ctx, action, do)
		return out, err
	}
	switch c.Verb {
	case "create":
		return serve(ActionSubmit, func() (err error) {
			out, err = f.create(c)
			return err
		})
	case "list":
		return serve(ActionList, func() error {
			out = f.list()
			return nil
		})
	case "delete":
		return serve(ActionCancel, func() error { return f.World.Delete(unitID(c.Args[1])) })
	case "remove", "setup":
		return "", nil // the World removes what was deleted
	case "update":
		return serve(ActionUpdate, func() error { return f.update(c) })
	case "log":
		return serve(ActionLog, func() error { return f.log(ctx, c) })
	case "usage":
		return serve(ActionUsage, func() error {
			for id := range strings.SplitSeq(c.Args[0], ",") {
				out += id + ".batch|00:00:01|1048576\n"
			}
			return nil
		})
	case "report":
		return serve(ActionReport, func() error {
			out = "node1|64|256000|idle|gpu:a100:4(S:0-1)\nnode2|64|256000|down*|gpu:a100:4(S:0-1)\nnode1|64|256000|idle|gpu:a100:4(S:0-1)\n"
			return nil
		})
	}
	return "", fmt.Errorf("there is no verb %s", c.Verb)
}

func unitID(job string) string {
	n, _ := strconv.Atoi(job)
	return fmt.Sprintf("unit-%06d", n)
}

func jobID(u *grouptest.Unit) string {
	return strings.TrimLeft(strings.TrimPrefix(u.ID, "unit-"), "0")
}

// flags are those of sbatch 22.05 with a value that the provider may use, and their form.
var flags = map[string]*regexp.Regexp{
	"--partition": regexp.MustCompile(`^[\w.,-]+$`), "--account": regexp.MustCompile(`^[\w.-]+$`), "--qos": regexp.MustCompile(`^[\w.,-]+$`),
	"--time": regexp.MustCompile(`^[\d:-]+$`), "--cpus-per-task": regexp.MustCompile(`^[1-9]\d*$`), "--mem": regexp.MustCompile(`^\d+[KMGT]?$`),
	"--mem-per-cpu": regexp.MustCompile(`^\d+[KMGT]?$`), "--gres": regexp.MustCompile(`^[\w:.-]+(,[\w:.-]+)*$`), "--comment": regexp.MustCompile(`^[^\n]+$`),
	"--job-name": regexp.MustCompile(`^[a-z0-9-]+$`), "--export": regexp.MustCompile(`^NIL$`), "--nodes": regexp.MustCompile(`^\d+(-\d+)?$`), "--ntasks": regexp.MustCompile(`^\d+$`),
}

// parse reads the flags of sbatch.
func parse(args []string) (map[string]string, error) {
	found := map[string]string{}
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		if form := flags[name]; name != "--no-requeue" && form == nil {
			return nil, fmt.Errorf("unrecognized option '%s'", name)
		} else if form != nil && !form.MatchString(value) {
			//lint:ignore ST1005 as Slurm writes it
			return nil, fmt.Errorf("Invalid %s specification: %s", name, value)
		}
		found[name] = value
	}
	for _, name := range []string{"--job-name", "--export", "--no-requeue"} {
		if _, ok := found[name]; !ok {
			return nil, fmt.Errorf("%s is missing", name)
		}
	}
	return found, nil
}

func (f Fake) create(c login.Command) (string, error) {
	set, err := parse(c.Args[1:])
	if err != nil {
		//lint:ignore ST1005 as Slurm writes it
		return "", fmt.Errorf("Batch job submission failed: %w", err)
	}
	if path.Base(c.Args[0]) != set["--job-name"] {
		return "", fmt.Errorf("the directory %s is not named as the job, %s", c.Args[0], set["--job-name"])
	}
	spec := grouptest.Spec{Token: c.Args[0], Request: strings.Join(c.Args, "\n"), Data: data{set["--job-name"], set["--comment"]}}
	files, volumes, err := untar(c.Stdin)
	if err != nil {
		return "", err
	}
	spec.Files = volumes
	spec.RestartPolicy = between(files["pod"], "policy='", "'")
	inits := between(files["pod"], "inits=(", ")")
	for line := range strings.Lines(files["staged"]) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch kind {
		case "tags":
			if err := json.Unmarshal([]byte(rest), &spec.Tags); err != nil {
				return "", err
			}
		case "container":
			name, image, _ := strings.Cut(rest, " ")
			for _, file := range []string{"run", "enter", "kill"} {
				if _, ok := files["containers/"+name+"/"+file]; !ok {
					return "", fmt.Errorf("container %s has no file %s", name, file)
				}
			}
			one := podgroup.Container{Name: name, Image: image}
			if strings.Contains(inits, "'"+name+"=") {
				spec.InitContainers = append(spec.InitContainers, one)
			} else {
				spec.Containers = append(spec.Containers, one)
			}
		}
	}
	if len(spec.Tags) == 0 || len(spec.Containers) == 0 || files["run"] == "" {
		return "", errors.New("the directory of the pod is incomplete")
	}
	u, err := f.World.Create(spec)
	if err != nil {
		return "", err
	}
	return jobID(&u) + "\n", nil
}

func between(text, from, to string) string {
	_, rest, _ := strings.Cut(text, from)
	found, _, _ := strings.Cut(rest, to)
	return found
}

// untar reads files by their name, and those of volumes, which are behind links.
func untar(r io.Reader) (files map[string]string, volumes map[string]volume.Files, err error) {
	files, volumes = map[string]string{}, map[string]volume.Files{}
	links := map[string]string{}
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, err
		}
		if !path.IsAbs(h.Name) && slices.Contains(strings.Split(h.Name, "/"), "..") || path.IsAbs(h.Name) {
			return nil, nil, fmt.Errorf("%s is outside of the directory", h.Name)
		}
		content, err := io.ReadAll(t)
		if err != nil {
			return nil, nil, err
		}
		if h.Typeflag == tar.TypeSymlink {
			links[h.Name] = h.Linkname
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		files[h.Name] = string(content)
		parts := strings.SplitN(h.Name, "/", 4)
		if len(parts) == 4 && parts[0] == "volumes" {
			if volumes[parts[1]] == nil {
				volumes[parts[1]] = volume.Files{}
			}
			volumes[parts[1]][parts[3]] = volume.File{Data: content, Mode: h.FileInfo().Mode()}
		}
	}
	for name := range volumes {
		if links["volumes/"+name+"/..data"] == "" {
			return nil, nil, fmt.Errorf("volume %s has no link ..data", name)
		}
	}
	return files, volumes, nil
}

// list prints jobs and states. The first job of a directory has its state.
func (f Fake) list() string {
	var rows, states strings.Builder
	names := map[podgroup.Phase]string{
		podgroup.Pending: "PENDING", podgroup.Running: "RUNNING", podgroup.Updating: "RUNNING", podgroup.Stopping: "RUNNING",
		podgroup.Succeeded: "COMPLETED", podgroup.Failed: "FAILED",
	}
	seen := map[string]bool{}
	all := f.World.Units(nil)
	for i := range all {
		u := &all[i]
		d := u.Spec.Data.(data)
		fmt.Fprintf(&rows, "row %s|%s|%d|%d|%s|node1|None|%s|%s\n", jobID(u), names[u.Phase], u.Created.Unix(), u.Created.Unix(), stamp(u.Ended), d.directory, d.comment)
		if !seen[d.directory] {
			f.state(&states, u, "./"+d.directory+"/state:")
		}
		seen[d.directory] = true
	}
	return fmt.Sprintf("now %d\n%s%s", f.World.Now().Unix(), rows.String(), states.String())
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "N/A"
	}
	return strconv.FormatInt(t.Unix(), 10)
}

func (f Fake) state(b *strings.Builder, u *grouptest.Unit, at string) {
	say := func(format string, args ...any) { fmt.Fprintf(b, at+format+"\n", args...) }
	tags, _ := json.Marshal(u.Spec.Tags) // strings
	say("tags %s", tags)
	for i := range u.Containers {
		say("container %s %s", u.Containers[i].Name, u.Containers[i].Image)
	}
	say("created %s", stamp(u.Created))
	say("job %s", jobID(u))
	if u.Phase != podgroup.Pending {
		say("begun %s node1 %s", jobID(u), u.IPs[0])
	}
	for i := range u.Containers {
		c := &u.Containers[i]
		if c.Now.State == podgroup.Waiting {
			continue
		}
		say("start %s %d %s", c.Name, c.Restarts, stamp(c.Now.Started))
		if c.Now.State == podgroup.Terminated {
			say("exit %s %d %d %s", c.Name, c.Restarts, c.Now.ExitCode, stamp(c.Now.Finished))
		}
	}
	if u.Phase == podgroup.Stopping {
		say("deleted 30")
	}
	if u.Over() {
		say("end %s", stamp(u.Ended))
	}
}

func (f Fake) ofDirectory(dir string) (found grouptest.Unit, err error) {
	all := f.World.Units(func(u *grouptest.Unit) bool { return u.Spec.Data.(data).directory == path.Base(dir) })
	if len(all) == 0 {
		return found, grouptest.ErrNotFound
	}
	return all[0], nil
}

func (f Fake) update(c login.Command) error {
	u, err := f.ofDirectory(c.Args[0])
	if err != nil {
		return err
	}
	_, volumes, err := untar(c.Stdin)
	if err != nil {
		return err
	}
	for _, name := range c.Args[1:] {
		if volumes[name] == nil || u.Files[name] == nil {
			return fmt.Errorf("volume %s is not in the archive, or new", name)
		}
	}
	return f.World.Change(u.Tags[podgroup.TagPodName], func(u *grouptest.Unit) { u.Files = volumes })
}

func (f Fake) log(ctx context.Context, c login.Command) error {
	name, run, _ := strings.Cut(c.Args[1], "/")
	written := 0
	for {
		u, err := f.ofDirectory(c.Args[0])
		if err != nil {
			return err
		}
		container := u.Container(name)
		lines, err := f.World.Log(u.ID, name, strconv.Itoa(int(container.Restarts)) != run)
		if err != nil {
			return err
		}
		if n, err := strconv.Atoi(c.Args[2]); err == nil && c.Args[2][0] != '+' && written == 0 {
			written = max(0, len(lines)-n)
		}
		for _, line := range lines[written:] {
			if _, err := fmt.Fprintf(c.Stdout, "%s %s\n", line.At.UTC().Format(time.RFC3339Nano), line.Text); err != nil {
				return err
			}
		}
		written = len(lines)
		if c.Args[3] == "" || container.Now.State != podgroup.Executing {
			return nil
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
