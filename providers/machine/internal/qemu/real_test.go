//go:build integration

package qemu

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A real machine starts, and has the address that it was given. When its process is killed, nothing
// is left of it on the host's network.
func TestRealMachine(t *testing.T) {
	image, err := filepath.Abs("../../../../bin/machine-image")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Dir: filepath.Join(t.TempDir(), "machines, in=a directory"), Image: image, Accel: Auto,
		Bridge: "vkmreal0", Subnet: netip.MustParsePrefix("10.231.5.0/24"), Disk: 1 << 30,
	}
	h, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	other := o
	other.Dir = t.TempDir()
	if _, err := Open(t.Context(), other); err == nil || !strings.Contains(err.Error(), o.Dir) {
		t.Errorf("the machines of two directories are at one bridge: %v", err)
	}
	m, err := h.Create(t.Context(), Spec{Name: "a-1", UserData: "{}", Memory: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	device := filepath.Join("/sys/class/net", o.Bridge, "brif", deviceOf(h.dir("a-1")))
	if _, err := os.Stat(device); err != nil {
		t.Errorf("its network device: %v", err)
	}
	eventually(t, "it does not start", func() bool {
		text, err := h.Console(t.Context(), "a-1", 4096)
		if all := list(t, h, nil); len(all) != 1 || !all[0].Runs {
			t.Fatalf("it has ended: %s", text)
		}
		// The agent has read its user data, in which there is nothing.
		return err == nil && strings.Contains(text, m.Address.String()+"/24 has started") && strings.Contains(text, "the bootstrap data have no field")
	})
	if err := h.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if h, err = Open(t.Context(), o); err != nil { // as another process, to which the bridge belongs, too
		t.Fatal(err)
	}
	if err := syscall.Kill(m.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it seems to run", func() bool { return !list(t, h, nil)[0].Runs })
	eventually(t, "its network device is left", func() bool { _, err := os.Stat(device); return err != nil })
	if err := h.Delete(t.Context(), "a-1"); err != nil {
		t.Error(err)
	}
	if err := h.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join("/sys/class/net", o.Bridge)); err == nil {
		t.Error("the bridge is left")
	}
}

// A bridge keeps its hardware address when machines come and go: those that stay would lose the host
// for seconds.
func TestRealBridgeKeepsItsAddress(t *testing.T) {
	b := &bridge{name: "vkmreal1", address: netip.MustParsePrefix("10.231.6.1/24"), owner: t.TempDir()}
	if err := b.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.remove(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	address := func() string {
		t.Helper()
		device, err := net.InterfaceByName(b.name)
		if err != nil {
			t.Fatal(err)
		}
		return device.HardwareAddr.String()
	}
	before := address()
	var devices []*os.File
	for _, name := range []string{"vkmreal1a", "vkmreal1b", "vkmreal1c"} {
		device, err := b.connect(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		devices = append(devices, device)
		if now := address(); now != before {
			t.Errorf("with %d machines it is %s, and was %s", len(devices), now, before)
		}
	}
	for i, device := range devices {
		if err := device.Close(); err != nil {
			t.Fatal(err)
		}
		if now := address(); now != before {
			t.Errorf("with %d machines less it is %s, and was %s", i+1, now, before)
		}
	}
}
