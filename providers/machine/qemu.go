package machine

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine/internal/qemu"
)

// QemuConfig is the driver that runs virtual machines on this host. It needs root, or the
// capability NET_ADMIN, for their network.
type QemuConfig struct {
	// Image is the directory that scripts/machine-image.sh has made. Required.
	Image string `json:"image"`
	// Binary is the program of qemu. Defaults to qemu-system-x86_64.
	Binary string `json:"binary,omitempty"`
	// Accel is kvm, tcg (emulation) or auto, the default: kvm where a kernel runs with it.
	Accel string `json:"accel,omitempty"`
	// Bridge is the name of the network device that machines are at, and Subnet has their
	// addresses. Default to vkmachines0 and 10.232.0.0/24. No other node of this host may have them.
	Bridge string `json:"bridge,omitempty"`
	Subnet string `json:"subnet,omitempty"`
	// Memory is the least that a machine has, and Overhead what it has beyond the request of its
	// pod: for the kernel, the agent, and the files of both. Default to 256Mi and 192Mi.
	Memory   *resource.Quantity `json:"memory,omitempty"`
	Overhead *resource.Quantity `json:"overhead,omitempty"`
	// Disk is the size of a machine's disk, which takes what is written to it. Defaults to 4Gi.
	Disk *resource.Quantity `json:"disk,omitempty"`
}

// bridgeName is what the kernel and the command ip accept as the name of a network device.
var bridgeName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_.-]{0,14}$`)

// complete sets defaults, also of the addresses at which machines reach the node.
func (q *QemuConfig) complete(checks *config.Checks, bootstrap *BootstrapConfig) {
	checks.That(filepath.IsAbs(q.Image), "qemu.image: %q is no absolute path of a directory that scripts/machine-image.sh has made", q.Image)
	q.Accel, q.Bridge, q.Subnet = cmp.Or(q.Accel, qemu.Auto), cmp.Or(q.Bridge, "vkmachines0"), cmp.Or(q.Subnet, "10.232.0.0/24")
	checks.That(slices.Contains([]string{qemu.Auto, qemu.KVM, qemu.TCG}, q.Accel), "qemu.accel: %q is none of auto, kvm and tcg", q.Accel)
	checks.That(bridgeName.MatchString(q.Bridge), "qemu.bridge: %q is no name of a network device", q.Bridge)
	subnet, err := netip.ParsePrefix(q.Subnet)
	valid := err == nil && subnet.Addr().Is4() && subnet.Bits() >= 8 && subnet.Bits() <= 29
	checks.That(valid, "qemu.subnet: %q is no IPv4 network like 10.232.0.0/24, with at most 29 bits", q.Subnet)
	checks.Quantity("qemu.memory", &q.Memory, "256Mi")
	checks.Quantity("qemu.overhead", &q.Overhead, "192Mi")
	checks.Quantity("qemu.disk", &q.Disk, "4Gi")
	checks.That(q.Disk == nil || q.Disk.Value() >= 16<<20, "qemu.disk: %v is too small: 16Mi at least", q.Disk)
	if valid {
		host := subnet.Masked().Addr().Next().String()
		bootstrap.Listen = cmp.Or(bootstrap.Listen, net.JoinHostPort(host, "10271"))
		if _, port, err := net.SplitHostPort(bootstrap.Listen); err == nil {
			bootstrap.URL = cmp.Or(bootstrap.URL, "https://"+net.JoinHostPort(host, port))
		}
	}
}

// qemuDriver is the Driver whose machines are processes of qemu.
type qemuDriver struct {
	host *qemu.Host
	cfg  *QemuConfig
}

var _ Driver = (*qemuDriver)(nil)

// openTimeout is how long the bridge may take to be made or removed.
const openTimeout = time.Minute

func newQemu(c *QemuConfig, stateDir string) (Driver, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	subnet, err := netip.ParsePrefix(c.Subnet)
	if err != nil {
		return nil, err
	}
	host, err := qemu.Open(ctx, qemu.Options{
		Dir: filepath.Join(stateDir, "qemu"), Image: c.Image, Binary: c.Binary, Accel: c.Accel, Bridge: c.Bridge, Subnet: subnet, Disk: c.Disk.Value(),
	})
	if err != nil {
		return nil, fmt.Errorf("the driver qemu cannot be used: %w", err)
	}
	return &qemuDriver{host, c}, nil
}

// Close implements io.Closer.
func (d *qemuDriver) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	return d.host.Close(ctx)
}

// Create implements Driver.
func (d *qemuDriver) Create(ctx context.Context, spec Spec) (Machine, error) {
	memory := max(d.cfg.Memory.Value(), spec.Memory+d.cfg.Overhead.Value())
	made, err := d.host.Create(ctx, qemu.Spec{Name: spec.Name, Tags: spec.Tags, UserData: spec.UserData, CPUs: int((spec.CPU + 999) / 1000), Memory: memory})
	if err != nil && !errdefs.IsInvalidInput(err) {
		err = errdefs.AsUnavailable(err)
	}
	return machineOf(made), err
}

// Delete implements Driver.
func (d *qemuDriver) Delete(ctx context.Context, m Machine) error { return d.host.Delete(ctx, m.Name) }

// List implements Driver.
func (d *qemuDriver) List(ctx context.Context, tags map[string]string) ([]Machine, error) {
	list, err := d.host.List(ctx, tags)
	all := make([]Machine, 0, len(list))
	for _, m := range list {
		all = append(all, machineOf(m))
	}
	return all, err
}

// Console implements Driver.
func (d *qemuDriver) Console(ctx context.Context, m Machine, limit int) (string, error) {
	return d.host.Console(ctx, m.Name, limit)
}

func machineOf(m qemu.Machine) Machine {
	out := Machine{Name: m.Name, ID: m.Name, Tags: m.Tags, State: Running, Created: m.Created}
	if m.Address.IsValid() {
		out.Address = m.Address.String()
	}
	if !m.Runs {
		out.State = Ended
	}
	return out
}
