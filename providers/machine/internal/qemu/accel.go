package qemu

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// What runs the instructions of machines.
const (
	// KVM is the host's processor.
	KVM = "kvm"
	// TCG is emulation: it needs nothing of the host, and is slow.
	TCG = "tcg"
	// Auto is KVM where a kernel runs with it, and TCG elsewhere.
	Auto = "auto"
)

const (
	// probeTimeout is how long a kernel may take to show that it runs with KVM, which takes it a
	// second: some hosts have /dev/kvm, and what runs with it never gets anywhere.
	probeTimeout = 20 * time.Second
	// probeKernel is the argument with which an image's first program writes probeAnswer, and ends.
	probeKernel, probeAnswer = "console=ttyS0 quiet panic=-1 vk.probe", "vk-probe-ok"
)

// acceleration returns KVM or TCG. It is found out once.
func (h *Host) acceleration(ctx context.Context) (string, error) {
	if h.o.Accel == KVM || h.o.Accel == TCG {
		return h.o.Accel, nil
	}
	h.probing.Lock()
	defer h.probing.Unlock()
	if h.accel == "" {
		works := h.probe(ctx)
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		h.accel = TCG
		if works {
			h.accel = KVM
		}
	}
	return h.accel, nil
}

// probe reports whether a kernel runs with KVM.
func (h *Host) probe(ctx context.Context) bool {
	logger := log.G(ctx)
	if _, err := os.Stat("/dev/kvm"); err != nil {
		logger.Warn("Machines are emulated, which is slow: this host has no /dev/kvm")
		return false
	}
	limited, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	argv := append(h.o.base(KVM, probeKernel), "-m", "128M", "-serial", "stdio")
	command := exec.CommandContext(limited, argv[0], argv[1:]...)
	command.WaitDelay = time.Second
	out, err := command.CombinedOutput()
	if bytes.Contains(out, []byte(probeAnswer)) {
		return true
	}
	logger.WithError(err).WithField("output", string(out[:min(len(out), 500)])).Warn("Machines are emulated, which is slow: no kernel runs with /dev/kvm on this host")
	return false
}
