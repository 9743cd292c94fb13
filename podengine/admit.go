package podengine

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// safeSysctls are those that are kept apart between pods and cannot harm others
// (https://kubernetes.io/docs/tasks/administer-cluster/sysctl-cluster/).
var safeSysctls = []string{
	"kernel.shm_rmid_forced",
	"net.ipv4.ip_local_port_range",
	"net.ipv4.tcp_syncookies",
	"net.ipv4.ping_group_range",
	"net.ipv4.ip_unprivileged_port_start",
	"net.ipv4.ip_local_reserved_ports",
	"net.ipv4.tcp_keepalive_time",
	"net.ipv4.tcp_fin_timeout",
	"net.ipv4.tcp_keepalive_intvl",
	"net.ipv4.tcp_keepalive_probes",
	"net.ipv4.tcp_rmem",
	"net.ipv4.tcp_wmem",
}

// admit says why a pod cannot run on this node at all, in the kubelet's words;
// nil if it can. The scheduler knows such things, but pods may be bound without
// it.
func (cfg *Config) admit(pod *corev1.Pod) *podspec.Failure {
	if pod.Spec.OS != nil && string(pod.Spec.OS.Name) != runtime.GOOS {
		return &podspec.Failure{Reason: "PodOSNotSupported", Message: "Failed to admit pod as the OS field doesn't match node OS"}
	}
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	for _, s := range pod.Spec.SecurityContext.Sysctls {
		name := strings.ReplaceAll(s.Name, "/", ".")
		if !slices.Contains(safeSysctls, name) && !matchesAny(cfg.UnsafeSysctls, name) {
			return &podspec.Failure{Reason: "SysctlForbidden", Message: fmt.Sprintf("forbidden sysctl: %q not allowlisted", s.Name)}
		}
	}
	return nil
}

// rejectGroups ends a pod that is to have no groups of its image if the runtime would give
// it those. Unlike what admit knows it has to be asked, which may have to wait.
func (w *worker) rejectGroups(ctx context.Context, pod *corev1.Pod) (rejected bool, err error) {
	sc := pod.Spec.SecurityContext
	if sc == nil || sc.SupplementalGroupsPolicy == nil || *sc.SupplementalGroupsPolicy != corev1.SupplementalGroupsPolicyStrict {
		return false, nil
	}
	answer, err := w.engine.runtimeStatus(ctx)
	if err != nil || answer.GetFeatures().GetSupplementalGroupsPolicy() {
		return false, err
	}
	failure := &podspec.Failure{
		Reason:   "SupplementalGroupsPolicyNotSupported",
		Message:  "SupplementalGroupsPolicy=Strict is not supported in this node",
		Rejected: true,
	}
	w.engine.cfg.Events.Event(pod, corev1.EventTypeWarning, failure.Reason, failure.Message)
	if err := w.end(stop{by: time.Now(), failure: failure}); err != nil {
		log.G(ctx).WithError(err).Warn("Cannot keep that the pod was rejected")
	}
	return true, nil
}

// matchesAny reports whether a name is among patterns, of which those that end in
// * stand for all that begin so.
func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		prefix, all := strings.CutSuffix(p, "*")
		return p == name || all && strings.HasPrefix(name, prefix)
	})
}
