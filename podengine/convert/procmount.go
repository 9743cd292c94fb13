package convert

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What runtimes mask, and mount read-only, by default: it shows the machine
// or changes it. The CRI has no word for "the default", so the lists are here.
var (
	maskedPaths = []string{
		"/proc/acpi",
		"/proc/asound",
		"/proc/interrupts",
		"/proc/kcore",
		"/proc/keys",
		"/proc/latency_stats",
		"/proc/sched_debug",
		"/proc/scsi",
		"/proc/timer_list",
		"/proc/timer_stats",
		"/sys/devices/virtual/powercap",
		"/sys/firmware",
	}
	readonlyPaths = []string{
		"/proc/bus",
		"/proc/fs",
		"/proc/irq",
		"/proc/sys",
		"/proc/sysrq-trigger",
	}
)

// setProcMount follows securityContext.procMount (KEP-4265): an unmasked /proc has
// neither list. For privileged containers the runtime ignores both.
func setProcMount(security *runtimeapi.LinuxContainerSecurityContext, mount *corev1.ProcMountType) {
	if mount != nil && *mount == corev1.UnmaskedProcMount {
		return
	}
	security.MaskedPaths = slices.Clone(maskedPaths)
	security.ReadonlyPaths = slices.Clone(readonlyPaths)
}
