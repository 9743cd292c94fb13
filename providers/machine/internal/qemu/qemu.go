package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// Options are what machines are made with.
type Options struct {
	// Dir has a directory for each machine. Nobody else may read it, and it has to last.
	Dir string
	// Image is the directory of vmlinuz, initrd and root.img, which scripts/machine-image.sh makes.
	Image string
	// Binary is the program of qemu. Defaults to qemu-system-x86_64.
	Binary string
	// Accel is KVM, TCG or, by default, Auto.
	Accel string
	// Bridge is the name of the bridge that machines are at. It is made if there is none. Subnet
	// has their addresses; the first one is the bridge's.
	Bridge string
	Subnet netip.Prefix
	// Disk is the size in bytes of the disk that is a machine's own.
	Disk int64
}

// Spec is a machine to be made.
type Spec struct {
	Name     string
	Tags     map[string]string
	UserData string
	CPUs     int
	// Memory is in bytes.
	Memory int64
}

// Machine is a machine that there is.
type Machine struct {
	Name    string
	Address netip.Addr
	Tags    map[string]string
	Created time.Time
	// Runs reports that its process has not ended.
	Runs bool
	// PID is that of its process; 0 once that has ended.
	PID int
}

// Host runs machines. It is safe for concurrent use, also by several processes.
type Host struct {
	o       Options
	network network
	boot    string // of this host, since its start

	mu   sync.Mutex
	last netip.Addr // that was given to a machine

	probing sync.Mutex
	accel   string // empty until it is known
}

// network is what machines are connected with.
type network interface {
	// prepare makes what is there once for all machines.
	prepare(ctx context.Context) error
	// connect returns the device of a machine, which is gone when all have closed it.
	connect(ctx context.Context, device string) (*os.File, error)
	// remove undoes prepare.
	remove(ctx context.Context) error
}

const (
	// killTimeout is how long a process may take to be gone after SIGKILL, and killPoll how often
	// that is looked at.
	killTimeout, killPoll = 20 * time.Second, 10 * time.Millisecond
	// maxConsole is the size in bytes of a console that is cut off, and keptConsole what is left.
	maxConsole, keptConsole = 1 << 20, 64 << 10

	consoleFile, errorsFile, diskFile = "console", "errors", "disk"
)

// validName is what the names of machines are. They are those of directories.
var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// Open makes the directory and the bridge.
func Open(ctx context.Context, o Options) (*Host, error) {
	return open(ctx, o, &bridge{name: o.Bridge, address: netip.PrefixFrom(gateway(o.Subnet), o.Subnet.Bits()), owner: o.Dir})
}

func open(ctx context.Context, o Options, n network) (*Host, error) {
	if o.Binary == "" {
		o.Binary = "qemu-system-x86_64"
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	for _, file := range []string{kernelFile, initrdFile, rootFile} {
		if _, err := os.Stat(filepath.Join(o.Image, file)); err != nil {
			return nil, errdefs.InvalidInputf("the image of machines cannot be used: make it with scripts/machine-image.sh: %w", err)
		}
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, err
	}
	h := &Host{o: o, network: n, boot: strings.TrimSpace(string(boot))}
	return h, h.network.prepare(ctx)
}

// Close removes the bridge if there are no machines. Machines that there are go on.
func (h *Host) Close(ctx context.Context) error {
	unlock, err := h.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	all, err := h.machines()
	if err != nil || len(all) > 0 {
		return err
	}
	return h.network.remove(ctx)
}

// Create starts a machine. If there is one of this name already, which may have ended, it is
// returned as it is.
func (h *Host) Create(ctx context.Context, spec Spec) (Machine, error) {
	if !validName.MatchString(spec.Name) {
		return Machine{}, errdefs.InvalidInputf("%q is no name of a machine", spec.Name)
	}
	accel, err := h.acceleration(ctx)
	if err != nil {
		return Machine{}, err
	}
	unlock, err := h.lock(ctx)
	if err != nil {
		return Machine{}, err
	}
	defer unlock()
	all, err := h.machines()
	if err != nil {
		return Machine{}, err
	}
	if r, ok := all[spec.Name]; ok {
		return h.machine(r), nil
	}
	used := map[netip.Addr]bool{}
	for _, r := range all {
		used[r.Address] = true
	}
	address, err := nextAddress(h.o.Subnet, h.last, used)
	if err != nil {
		return Machine{}, err
	}
	h.last = address
	r := &record{Name: spec.Name, Tags: spec.Tags, Address: address, Created: time.Now().UTC(), Boot: h.boot}
	err = h.start(ctx, r, spec, accel)
	if err != nil {
		return Machine{}, errors.Join(err, h.delete(ctx, r))
	}
	log.G(ctx).WithFields(log.Fields{"machine": r.Name, "pid": r.PID, "address": address.String(), "acceleration": accel}).Debug("Started qemu")
	return h.machine(r), nil
}

// start makes what a machine needs, and then its process, which waits until its number is
// recorded. Wherever it fails, no process runs that is not known.
func (h *Host) start(ctx context.Context, r *record, spec Spec, accel string) (err error) {
	dir := h.dir(r.Name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if err := r.save(dir); err != nil {
		return err
	}
	if err := makeDisk(ctx, filepath.Join(dir, diskFile), h.o.Disk); err != nil {
		return err
	}
	if err := h.network.prepare(ctx); err != nil { // which another may have removed
		return err
	}
	device, err := h.network.connect(ctx, deviceOf(dir))
	if err != nil {
		return err
	}
	defer device.Close()
	data, err := inMemory(spec.UserData)
	if err != nil {
		return err
	}
	defer data.Close()
	process, err := startGated(h.o.arguments(dir, spec, r.Address, accel), filepath.Join(dir, errorsFile), fileLimit(h.o.Disk), device, data)
	if err != nil {
		return fmt.Errorf("qemu cannot be started: %w", err)
	}
	defer func() { err = errors.Join(err, process.release(err == nil)) }()
	r.PID, r.Start = process.pid, process.start
	return r.save(dir)
}

// Delete ends a machine, and removes what is left of it. That there is none is no error.
func (h *Host) Delete(ctx context.Context, name string) error {
	if !validName.MatchString(name) {
		return nil // there is none
	}
	unlock, err := h.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := readRecord(h.dir(name))
	if errors.Is(err, fs.ErrNotExist) {
		r, err = &record{Name: name}, nil
	}
	if err != nil {
		return err
	}
	return h.delete(context.WithoutCancel(ctx), r) // it has a limit of its own
}

func (h *Host) delete(ctx context.Context, r *record) error {
	ctx, cancel := context.WithTimeoutCause(ctx, killTimeout, fmt.Errorf("process %d of machine %s does not end", r.PID, r.Name))
	defer cancel()
	if err := h.kill(ctx, r); err != nil {
		return err
	}
	return os.RemoveAll(h.dir(r.Name))
}

// List returns all machines that have these tags, and removes what creations and deletions have
// left that were broken off.
func (h *Host) List(ctx context.Context, tags map[string]string) ([]Machine, error) {
	unlock, err := h.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	all, err := h.machines()
	if err != nil {
		return nil, err
	}
	found := []Machine{}
	for _, r := range all {
		if r.has(tags) {
			found = append(found, h.machine(r))
		}
		if err := cutConsole(filepath.Join(h.dir(r.Name), consoleFile)); err != nil {
			log.G(ctx).WithField("machine", r.Name).WithError(err).Warn("Cannot cut off the console of a machine")
		}
	}
	return found, nil
}

// Console returns the end of what a machine has written to its console, with what qemu complains
// of.
func (h *Host) Console(_ context.Context, name string, limit int) (string, error) {
	if !validName.MatchString(name) {
		return "", errdefs.NotFoundf("there is no machine %q", name)
	}
	text := ""
	for _, file := range []string{consoleFile, errorsFile} {
		end, err := endOf(filepath.Join(h.dir(name), file), limit)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		text += string(end)
	}
	return text[max(0, len(text)-limit):], nil
}

// machines returns the records of all machines, by name. The lock is held: what is not complete is
// of a creation or a deletion that was broken off, and nothing runs in it.
func (h *Host) machines() (map[string]*record, error) {
	entries, err := os.ReadDir(h.o.Dir)
	if err != nil {
		return nil, err
	}
	all := map[string]*record{}
	for _, entry := range entries {
		if !entry.IsDir() || !validName.MatchString(entry.Name()) {
			continue
		}
		dir := h.dir(entry.Name())
		r, err := readRecord(dir)
		if errors.Is(err, fs.ErrNotExist) || err == nil && r.PID == 0 {
			if err := os.RemoveAll(dir); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		all[r.Name] = r
	}
	return all, nil
}

func (h *Host) machine(r *record) Machine {
	m := Machine{Name: r.Name, Address: r.Address, Tags: r.Tags, Created: r.Created, Runs: h.runs(r)}
	if m.Runs {
		m.PID = r.PID
	}
	return m
}

func (h *Host) dir(name string) string { return filepath.Join(h.o.Dir, name) }

// lock waits for other callers, and for other processes.
func (h *Host) lock(ctx context.Context) (unlock func(), err error) {
	h.mu.Lock()
	file, err := os.OpenFile(filepath.Join(h.o.Dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		h.mu.Unlock()
		return nil, err
	}
	for {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close(); h.mu.Unlock() }, nil
		}
		select {
		case <-time.After(killPoll):
		case <-ctx.Done():
			h.mu.Unlock()
			return nil, errdefs.AsUnavailable(errors.Join(fmt.Errorf("another process has locked %s: %w", file.Name(), err), file.Close()))
		}
	}
}
