//go:build linux

package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Options say how to run containerd.
type Options struct {
	Dir          string   // for all files; removed in the end
	SandboxImage string   // name of the image that holds a pod's namespaces
	Images       []string // archives to import
	Mirror       string   // URL of the registry for all pulls, if any
	LogFile      string   // containerd's log; default: in Dir

	Runc          string // path of the program that runs containers; default: runc
	SystemdCgroup bool   // systemd makes control groups
}

// networkFile has the name of the network.
const networkFile = "network"

// Up runs containerd until the context ends, and leaves nothing behind. When
// pods can be made, it writes a line of JSON. It must be called on the thread
// of main, locked: the kernel kills containerd when that thread ends.
func Up(ctx context.Context, opts Options, ready io.Writer) (err error) {
	if err := checkInstalled(); err != nil {
		return err
	}
	if entries, err := os.ReadDir(opts.Dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("use %s for containerd: it is not empty, and would be removed in the end: name another directory", opts.Dir)
	}
	if err := os.MkdirAll(opts.Dir, 0o755); err != nil {
		return fmt.Errorf("make containerd's directory: %w", err)
	}
	if opts.LogFile == "" {
		opts.LogFile = filepath.Join(opts.Dir, "containerd.log")
	}
	cleaner, wait, err := startCleaner(opts.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, wait()) }()

	network, err := newNetwork()
	if err != nil {
		return err
	}
	// To the cleaner, for users who stop containerd by removing its directory; and to the
	// directory, for users who run "clean" by hand.
	_, err = io.WriteString(cleaner, network.Name)
	err = errors.Join(err, os.WriteFile(filepath.Join(opts.Dir, networkFile), []byte(network.Name), 0o644))
	if err != nil {
		return errors.Join(fmt.Errorf("write down the network's name: %w", err), network.remove())
	}
	c := config{Dir: opts.Dir, SandboxImage: opts.SandboxImage, Mirror: opts.Mirror, Plugins: pluginDir, Network: network, Runc: opts.Runc, SystemdCgroup: opts.SystemdCgroup}
	if err := c.write(); err != nil {
		return err
	}
	d, err := startDaemon(c, opts.LogFile)
	if err != nil {
		return err
	}
	defer d.stop()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		<-d.done
		cancel()
	}()
	err = d.prepare(ctx, opts)
	if err == nil {
		err = json.NewEncoder(ready).Encode(map[string]string{"endpoint": d.endpoint(), "gateway": network.Gateway, "subnet": network.Subnet})
	}
	if err == nil {
		<-ctx.Done()
	}
	if d.removePods() {
		return err
	}
	select {
	case <-d.done: // and nobody has stopped it
		return errors.Join(d.ended(), err)
	case <-time.After(time.Second):
		return err
	}
}

// startCleaner starts the process that cleans when this one is gone. It reads
// the network's name. The function lets it begin and waits for its end.
func startCleaner(dir string) (io.Writer, func() error, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(executable, "clean", "--after-stdin", "--dir", dir)
	cmd.Stderr = os.Stderr // its reader waits for the cleaner too
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, fmt.Errorf("make the cleaner's standard input: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("start the cleaner: %w", err)
	}
	return stdin, func() error {
		_ = stdin.Close()
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("the cleaner failed: %w", err)
		}
		return nil
	}, nil
}

// progress writes a line for people.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}
