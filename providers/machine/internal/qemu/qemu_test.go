package qemu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// noNetwork connects machines with nothing.
type noNetwork struct{}

func (noNetwork) prepare(context.Context) error { return nil }
func (noNetwork) remove(context.Context) error  { return nil }
func (noNetwork) connect(context.Context, string) (*os.File, error) {
	return os.Open(os.DevNull)
}

// optionsOf are those of machines that are a shell script in place of qemu.
func optionsOf(t *testing.T, script string) Options {
	t.Helper()
	dir := t.TempDir()
	for _, file := range []string{kernelFile, initrdFile, rootFile} {
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "qemu")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return Options{Dir: filepath.Join(dir, "machines"), Image: dir, Binary: program, Accel: TCG, Subnet: netip.MustParsePrefix("10.9.0.0/28"), Disk: 16 << 20}
}

const lives = "exec sleep 100000"

// hostOf returns a host, whose machines end with the test.
func hostOf(t *testing.T, o Options) *Host {
	t.Helper()
	h, err := open(t.Context(), o, noNetwork{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		all, err := h.List(context.Background(), nil)
		if err != nil {
			t.Error(err)
		}
		for _, m := range all {
			if err := h.Delete(context.Background(), m.Name); err != nil {
				t.Error(err)
			}
		}
	})
	return h
}

func create(t *testing.T, h *Host, name string) Machine {
	t.Helper()
	m, err := h.Create(t.Context(), Spec{Name: name, Tags: map[string]string{"Name": name}, Memory: 128 << 20, UserData: "data of " + name})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func list(t *testing.T, h *Host, tags map[string]string) []Machine {
	t.Helper()
	all, err := h.List(t.Context(), tags)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !check(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// isThere reports whether there is a process that has not ended.
func isThere(pid int) bool {
	s, err := readStat(pid)
	return err == nil && s.state != 'Z'
}

// entries is what is in the directory of machines.
func entries(t *testing.T, h *Host) (names []string) {
	t.Helper()
	all, err := os.ReadDir(h.o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range all {
		if entry.Name() != ".lock" {
			names = append(names, entry.Name())
		}
	}
	return names
}

// A machine outlives the process that has made it, is made once, and leaves nothing.
func TestLifeOfAMachine(t *testing.T) {
	o := optionsOf(t, lives)
	h := hostOf(t, o)
	m := create(t, h, "a-1")
	if !m.Runs || m.PID <= 0 || m.Address.String() != "10.9.0.2" {
		t.Fatalf("the machine is %+v", m)
	}
	if session, err := unixSession(m.PID); err != nil || session != m.PID {
		t.Errorf("its session is %d, not its own: %v", session, err)
	}
	other := create(t, h, "b-1")
	h = hostOf(t, o) // as another process
	again, err := h.Create(t.Context(), Spec{Name: "a-1", Tags: map[string]string{"Name": "changed"}, UserData: "changed"})
	if err != nil || again.PID != m.PID || again.Tags["Name"] != "a-1" || again.Address != m.Address {
		t.Errorf("the machine that was made again is %+v: %v", again, err)
	}
	if all := list(t, h, map[string]string{"Name": "a-1"}); len(all) != 1 || all[0].Name != "a-1" || !all[0].Runs {
		t.Errorf("the list has %+v", all)
	}
	for range 2 { // that there is none is no error
		if err := h.Delete(t.Context(), "a-1"); err != nil {
			t.Fatal(err)
		}
	}
	if isThere(m.PID) || !isThere(other.PID) {
		t.Error("the process of the machine runs on, or that of the other has ended")
	}
	if left := entries(t, h); !slices.Equal(left, []string{"b-1"}) {
		t.Errorf("there are %v", left)
	}
	if next := create(t, h, "c-1"); next.Address == other.Address {
		t.Error("two machines have one address")
	}
}

func unixSession(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	var session int
	_, after, _ := strings.Cut(string(text), ") ")
	_, err = fmt.Sscanf(after, "%1s %d %d %d", new(string), new(int), new(int), &session)
	return session, err
}

// A machine whose process has ended stays, as one that has, until it is deleted; it is not started
// again under its name.
func TestProcessThatIsKilled(t *testing.T) {
	h := hostOf(t, optionsOf(t, lives))
	m := create(t, h, "a-1")
	if err := syscall.Kill(m.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the machine seems to run", func() bool { return !list(t, h, nil)[0].Runs })
	if again := create(t, h, "a-1"); again.Runs {
		t.Error("it was started again")
	}
	if err := h.Delete(t.Context(), "a-1"); err != nil || len(entries(t, h)) > 0 {
		t.Errorf("there are %v: %v", entries(t, h), err)
	}
}

// A process that has the number of a machine's is left alone: the number was given again, or the host
// has started again since.
func TestProcessOfAnother(t *testing.T) {
	h := hostOf(t, optionsOf(t, lives))
	for name, change := range map[string]func(*record){
		"a-1": func(r *record) { r.Start++ },
		"b-1": func(r *record) { r.Boot = "another" },
	} {
		m := create(t, h, name)
		r, err := readRecord(h.dir(name))
		if err != nil {
			t.Fatal(err)
		}
		change(r)
		if err := r.save(h.dir(name)); err != nil {
			t.Fatal(err)
		}
		if all := list(t, h, nil); len(all) != 1 || all[0].Runs {
			t.Errorf("the list has %+v", all)
		}
		if err := h.Delete(t.Context(), name); err != nil {
			t.Error(err)
		}
		if !isThere(m.PID) {
			t.Error("the process of another was ended")
		}
		_ = syscall.Kill(m.PID, syscall.SIGKILL)
	}
}

// What a creation or a deletion has left that was broken off is removed, and no machine.
func TestWhatIsLeft(t *testing.T) {
	h := hostOf(t, optionsOf(t, lives))
	kept := create(t, h, "kept-1")
	write := func(name string, r *record) {
		t.Helper()
		if err := os.Mkdir(h.dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(h.dir(name), diskFile), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if r != nil {
			if err := r.save(h.dir(name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	leave := func() {
		write("no-record", nil)
		write("no-process", &record{Name: "no-process", Boot: h.boot})
	}
	leave()
	if all := list(t, h, nil); len(all) != 1 || all[0].PID != kept.PID || len(entries(t, h)) != 1 {
		t.Errorf("the list has %+v, and there are %v", all, entries(t, h))
	}
	leave()
	for _, name := range []string{"no-record", "no-process"} {
		if m := create(t, h, name); !m.Runs || m.Tags["Name"] != name {
			t.Errorf("the machine is %+v", m)
		}
	}
	write("broken", nil)
	if err := os.WriteFile(filepath.Join(h.dir("broken"), recordFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := h.List(t.Context(), nil); err == nil {
		t.Errorf("a record cannot be read, and the list has %v", all)
	}
	if err := os.RemoveAll(h.dir("broken")); err != nil {
		t.Fatal(err)
	}
}

// A process of which nobody knows never begins: the one that was to record it has ended.
func TestEndBeforeAProcessIsRecorded(t *testing.T) {
	dir := t.TempDir()
	for _, begin := range []bool{false, true} {
		mark := filepath.Join(dir, fmt.Sprint("mark-", begin))
		g, err := startGated([]string{"touch", mark}, filepath.Join(dir, "output"), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.release(begin); err != nil {
			t.Fatal(err)
		}
		h := &Host{}
		eventually(t, "the process does not end", func() bool { return !h.runs(&record{PID: g.pid, Start: g.start}) })
		if _, err := os.Stat(mark); (err == nil) != begin {
			t.Errorf("the program has begun: %v, and was to: %v", err == nil, begin)
		}
	}
}

// Two processes that are asked for the same machine make one, and for many give each an address.
func TestTwoProcessesAtOnce(t *testing.T) {
	o := optionsOf(t, lives)
	hosts := []*Host{hostOf(t, o), hostOf(t, o)}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if _, err := hosts[i%2].Create(t.Context(), Spec{Name: fmt.Sprint("m-", i/2), Memory: 1}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	addresses := map[netip.Addr]bool{}
	for _, m := range list(t, hosts[0], nil) {
		addresses[m.Address] = true
	}
	if len(addresses) != 4 {
		t.Errorf("four machines have the addresses %v", addresses)
	}
}

// The user data reach the machine, and are in no file, argument or variable.
func TestUserDataAreNowhere(t *testing.T) {
	h := hostOf(t, optionsOf(t, `sha256sum </proc/self/fd/5 >&2; exec sleep 100000 # $*`))
	const secret = "the-token-of-a-1"
	m, err := h.Create(t.Context(), Spec{Name: "a-1", UserData: secret, Tags: map[string]string{"A": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(secret))
	eventually(t, "the machine does not have its user data", func() bool {
		text, err := h.Console(t.Context(), "a-1", 1000)
		return err == nil && strings.Contains(text, hex.EncodeToString(sum[:]))
	})
	look := []string{fmt.Sprintf("/proc/%d/cmdline", m.PID), fmt.Sprintf("/proc/%d/environ", m.PID)}
	err = filepath.WalkDir(h.o.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			look = append(look, path)
		}
		if info, failed := entry.Info(); failed == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("others can read %s", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range look {
		if data, err := os.ReadFile(path); err != nil || strings.Contains(string(data), secret) {
			t.Errorf("%s has the user data, or cannot be read: %v", path, err)
		}
	}
}

// Names that are no names reach no file.
func TestHostileNames(t *testing.T) {
	h := hostOf(t, optionsOf(t, lives))
	outside := filepath.Join(filepath.Dir(h.o.Dir), "outside")
	if err := os.Mkdir(outside, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", ".", "..", "../outside", "/etc", "a/b", "A", "a,b", "a b", "-a", "a-", ".lock", "a\x00", strings.Repeat("a", 64)} {
		if m, err := h.Create(t.Context(), Spec{Name: name}); err == nil {
			t.Errorf("%q is %+v", name, m)
		}
		if err := h.Delete(t.Context(), name); err != nil {
			t.Errorf("%q cannot be deleted, which there is not: %v", name, err)
		}
		if _, err := h.Console(t.Context(), name, 10); err == nil {
			t.Errorf("%q has a console", name)
		}
	}
	if _, err := os.Stat(outside); err != nil || len(entries(t, h)) > 0 {
		t.Errorf("there are %v: %v", entries(t, h), err)
	}
}

// A console is as long as it may be, however much a machine writes.
func TestConsole(t *testing.T) {
	h := hostOf(t, optionsOf(t, "echo qemu complains >&2; "+lives))
	create(t, h, "a-1")
	path := filepath.Join(h.dir("a-1"), consoleFile)
	if err := os.WriteFile(path, []byte(strings.Repeat("x", maxConsole)+"the end\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	list(t, h, nil)
	if info, err := os.Stat(path); err != nil || info.Size() > keptConsole {
		t.Errorf("%v: %v", info, err)
	}
	eventually(t, "the end is missing", func() bool {
		text, err := h.Console(t.Context(), "a-1", 40)
		return err == nil && len(text) == 40 && strings.HasSuffix(text, "the end\nqemu complains\n")
	})
}

// A machine can fill its disk, and no more of the host's.
func TestMachineThatWritesForEver(t *testing.T) {
	o := optionsOf(t, `exec cat /dev/zero >&2`)
	h := hostOf(t, o)
	create(t, h, "a-1")
	eventually(t, "it runs on", func() bool { return !list(t, h, nil)[0].Runs })
	if info, err := os.Stat(filepath.Join(h.dir("a-1"), errorsFile)); err != nil || info.Size() > o.Disk+512 {
		t.Errorf("it has written %v: %v", info, err)
	}
}

// What cannot be started leaves nothing.
func TestStartThatFails(t *testing.T) {
	o := optionsOf(t, lives)
	o.Binary = "no-such-qemu"
	h := hostOf(t, o)
	if m, err := h.Create(t.Context(), Spec{Name: "a-1"}); err == nil || !strings.Contains(err.Error(), "no-such-qemu") {
		t.Errorf("the machine is %+v: %v", m, err)
	}
	if left := entries(t, h); len(left) > 0 {
		t.Errorf("there are %v", left)
	}
	if err := os.Remove(filepath.Join(o.Image, rootFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t.Context(), o, noNetwork{}); err == nil || !strings.Contains(err.Error(), "machine-image.sh") {
		t.Errorf("an image that is not complete is %v", err)
	}
}

func TestAddresses(t *testing.T) {
	subnet := netip.MustParsePrefix("10.9.0.0/29") // .1 is the host's, .7 is for broadcasts
	used := map[netip.Addr]bool{}
	var last netip.Addr
	var given []string
	for range 5 {
		a, err := nextAddress(subnet, last, used)
		if err != nil {
			t.Fatal(err)
		}
		used[a], last = true, a
		given = append(given, a.String())
	}
	if want := []string{"10.9.0.2", "10.9.0.3", "10.9.0.4", "10.9.0.5", "10.9.0.6"}; !slices.Equal(given, want) {
		t.Errorf("the addresses are %v", given)
	}
	if a, err := nextAddress(subnet, last, used); err == nil {
		t.Errorf("there is one more: %v", a)
	}
	delete(used, netip.MustParseAddr("10.9.0.4"))
	if a, err := nextAddress(subnet, last, used); err != nil || a.String() != "10.9.0.4" {
		t.Errorf("the one that is free is %v: %v", a, err)
	}
	delete(used, netip.MustParseAddr("10.9.0.2"))
	if a, err := nextAddress(subnet, netip.MustParseAddr("10.9.0.2"), used); err != nil || a.String() != "10.9.0.4" {
		t.Errorf("one that has just become free is used first: %v: %v", a, err)
	}
}

func TestArguments(t *testing.T) {
	o := optionsOf(t, lives)
	o.Image = "/image,readonly=off"
	argv := o.arguments("/state,format=raw", Spec{Name: "a-1", Tags: map[string]string{"Key": "value"}, UserData: "secret", CPUs: 3, Memory: 300 << 20}, netip.MustParseAddr("10.9.0.2"), KVM)
	line := strings.Join(argv, " ")
	for _, part := range []string{
		"-accel kvm", "-cpu host", " no_timer_check ", "-smp 3", "-m 300M", "guest=a-1", "vk.address=10.9.0.2/28 vk.gateway=10.9.0.1", "tap,id=net,fd=4", "mac=52:54:0a:09:00:02",
		"file=/image,,readonly=off/root.img,readonly=on", "file=/state,,format=raw/disk", "path=/state,,format=raw/console", "-sandbox on,", "-nodefaults", "-no-reboot",
	} {
		if !strings.Contains(line, part) {
			t.Errorf("the arguments have no %q: %s", part, line)
		}
	}
	for _, part := range []string{"secret", "value"} {
		if strings.Contains(line, part) {
			t.Errorf("the arguments have %q: %s", part, line)
		}
	}
}

// What runs with KVM is found out by trying, once.
func TestAcceleration(t *testing.T) {
	if _, err := os.Stat("/dev/kvm"); err != nil {
		t.Log("there is no KVM: what runs with it is not tried")
	}
	for script, want := range map[string]string{"exit 1": TCG, "echo " + probeAnswer: KVM} {
		if _, err := os.Stat("/dev/kvm"); err != nil {
			want = TCG
		}
		o := optionsOf(t, `echo x >>"$(dirname "$0")/tries"; `+script)
		o.Accel = Auto
		h := hostOf(t, o)
		for range 2 {
			if accel, err := h.acceleration(t.Context()); err != nil || accel != want {
				t.Errorf("%s: it is %q: %v", script, accel, err)
			}
		}
		if tries, err := os.ReadFile(filepath.Join(o.Image, "tries")); err == nil && string(tries) != "x\n" {
			t.Errorf("it was tried %d times", len(tries)/2)
		}
	}
}
