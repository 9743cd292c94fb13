package qemu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// gateway returns the first address of a subnet, which is the host's.
func gateway(subnet netip.Prefix) netip.Addr { return subnet.Masked().Addr().Next() }

// nextAddress returns the next address after the last one that is not used: one that has just become
// free is used again late.
func nextAddress(subnet netip.Prefix, last netip.Addr, used map[netip.Addr]bool) (netip.Addr, error) {
	first := gateway(subnet).Next()
	usable := func(a netip.Addr) bool { return subnet.Contains(a) && subnet.Contains(a.Next()) } // the last one is for broadcasts
	if !last.IsValid() || !usable(last.Next()) {
		last = first.Prev()
	}
	for a, turned := last.Next(), false; ; a = a.Next() {
		if !usable(a) {
			if turned {
				return netip.Addr{}, errdefs.AsUnavailable(fmt.Errorf("all addresses of %s are used", subnet))
			}
			a, turned = first, true
		}
		if !used[a] && usable(a) {
			return a, nil
		}
	}
}

// deviceOf returns the name of a machine's network device.
func deviceOf(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return "vkm" + hex.EncodeToString(sum[:5])
}

// bridge connects machines with this host. Their devices are no longer there than their processes.
type bridge struct {
	name    string
	address netip.Prefix
	owner   string // the directory of the machines
}

// alias is the mark of a bridge that was made here. One without it is another's: it is used, and not
// removed.
func (b *bridge) alias() string { return "virtual-kubelet " + b.owner }

func (b *bridge) prepare(ctx context.Context) error {
	alias, err := os.ReadFile(filepath.Join("/sys/class/net", b.name, "ifalias"))
	switch mark := strings.TrimSpace(string(alias)); {
	case errors.Is(err, os.ErrNotExist):
		if err := ip(ctx, "link", "add", b.name, "type", "bridge"); err != nil {
			return err
		}
		if err := ip(ctx, "link", "set", b.name, "alias", b.alias()); err != nil {
			return errors.Join(err, ip(ctx, "link", "delete", b.name))
		}
	case err != nil:
		return err
	case mark == "":
		return nil
	case mark != b.alias():
		return errdefs.InvalidInputf("bridge %s has the machines of another directory (%s): choose another name, and another subnet", b.name, mark)
	}
	// Without a hardware address of its own a bridge has that of one of its devices, and another one as soon
	// as that goes: machines that know the first one would reach the host again only after many seconds.
	if err := ip(ctx, "link", "set", b.name, "address", macOf(b.address.Addr())); err != nil {
		return err
	}
	if err := ip(ctx, "address", "replace", b.address.String(), "dev", b.name); err != nil {
		return err
	}
	return ip(ctx, "link", "set", b.name, "up")
}

func (b *bridge) remove(ctx context.Context) error {
	alias, err := os.ReadFile(filepath.Join("/sys/class/net", b.name, "ifalias"))
	if err != nil || strings.TrimSpace(string(alias)) != b.alias() {
		return nil
	}
	return ip(ctx, "link", "delete", b.name)
}

func (b *bridge) connect(ctx context.Context, device string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun cannot be opened, which connects machines: %w", err)
	}
	request, err := unix.NewIfreq(device)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return nil, errors.Join(needsRoot(fmt.Errorf("network device %s cannot be made: %w", device, err)), unix.Close(fd))
	}
	file := os.NewFile(uintptr(fd), device)
	if err := ip(ctx, "link", "set", device, "master", b.name, "up"); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// ip runs the command of iproute2.
func ip(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput()
	if err != nil {
		return needsRoot(fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out))))
	}
	return nil
}

func needsRoot(err error) error {
	if os.Geteuid() != 0 {
		err = fmt.Errorf("the network of machines needs root, or the capability NET_ADMIN: %w", err)
	}
	return err
}
