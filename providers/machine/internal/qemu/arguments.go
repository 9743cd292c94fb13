package qemu

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
)

// The files of an image.
const kernelFile, initrdFile, rootFile = "vmlinuz", "initrd", "root.img"

// The files that qemu is started with: see startGated.
const deviceFD, userDataFD = 4, 5

// arguments returns the command of a machine. Nothing in it is secret.
func (o *Options) arguments(dir string, spec Spec, address netip.Addr, accel string) []string {
	drive := func(id, path, more string) []string {
		return []string{"-drive", "if=none,id=" + id + ",format=raw,file=" + escape(path) + more, "-device", "virtio-blk-pci,drive=" + id}
	}
	// A kernel that is emulated takes the timer for broken, and panics, where the host is busy as it starts: with KVM it does
	// not look, either.
	kernel := fmt.Sprintf("console=ttyS0 quiet panic=-1 no_timer_check vk.address=%s/%d vk.gateway=%s", address, o.Subnet.Bits(), gateway(o.Subnet))
	argv := append(o.base(accel, kernel), "-name", "guest="+spec.Name,
		"-smp", strconv.Itoa(max(spec.CPUs, 1)), "-m", strconv.FormatInt(max(spec.Memory>>20, 1), 10)+"M",
		"-chardev", "file,id=console,append=on,path="+escape(filepath.Join(dir, consoleFile)), "-serial", "chardev:console",
		"-netdev", fmt.Sprintf("tap,id=net,fd=%d", deviceFD), "-device", "virtio-net-pci,netdev=net,romfile=,mac="+macOf(address),
		"-fw_cfg", fmt.Sprintf("name=opt/org.virtual-kubelet/bootstrap,file=/proc/self/fd/%d", userDataFD),
	)
	argv = append(argv, drive("root", filepath.Join(o.Image, rootFile), ",readonly=on,file.locking=off")...)
	return append(argv, drive("disk", filepath.Join(dir, diskFile), "")...)
}

// base is what machines have in common with the one that shows what the host is able to.
func (o *Options) base(accel, kernel string) []string {
	cpu := "max"
	if accel == KVM {
		cpu = "host"
	}
	return []string{
		o.Binary, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", "q35", "-accel", accel, "-cpu", cpu,
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-device", "virtio-rng-pci",
		"-kernel", filepath.Join(o.Image, kernelFile), "-initrd", filepath.Join(o.Image, initrdFile), "-append", kernel,
	}
}

// escape returns a value in an option of qemu, which commas separate.
func escape(value string) string { return strings.ReplaceAll(value, ",", ",,") }

// macOf returns the hardware address of a machine, or of the bridge, so that one that has an address after
// another is known at once.
func macOf(address netip.Addr) string {
	b := address.As4()
	return fmt.Sprintf("52:54:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3])
}
