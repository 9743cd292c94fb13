package cri

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/cri/internal/podcgroup"
)

type configured struct {
	answer *runtimeapi.RuntimeConfigResponse
	err    error
}

func (c configured) RuntimeConfig(context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	return c.answer, c.err
}

// What the runtime says counts; the configuration is for those that do not say.
func TestCgroupDriver(t *testing.T) {
	says := func(driver runtimeapi.CgroupDriver) configured {
		return configured{answer: &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: driver}}}
	}
	for name, c := range map[string]struct {
		runtime    configured
		configured podcgroup.Driver
		want       podcgroup.Driver
	}{
		"systemd":             {says(runtimeapi.CgroupDriver_SYSTEMD), podcgroup.Cgroupfs, podcgroup.Systemd},
		"cgroupfs":            {says(runtimeapi.CgroupDriver_CGROUPFS), podcgroup.Systemd, podcgroup.Cgroupfs},
		"containerd 1.6":      {configured{err: status.Error(codes.Unimplemented, "unknown method RuntimeConfig")}, podcgroup.Systemd, podcgroup.Systemd},
		"says nothing of it":  {configured{answer: &runtimeapi.RuntimeConfigResponse{}}, podcgroup.Systemd, podcgroup.Systemd},
		"does not answer yet": {configured{err: status.Error(codes.Unavailable, "starting")}, podcgroup.Systemd, ""},
		"fails":               {configured{err: errors.New("broken")}, podcgroup.Systemd, ""},
	} {
		if got, err := driverOf(t.Context(), c.runtime, c.configured); got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
	}
}

// containerd gives up a start when the process that has asked for it is killed.
func TestNeverRan(t *testing.T) {
	for message, want := range map[string]bool{
		"failed to create containerd task: failed to create shim task: context canceled: unknown": true,
		// containerd kills the program that starts a shim when its caller goes away.
		"failed to create containerd task: failed to start shim: start failed: : signal: killed: unknown": true,
		// The command may have run, and must not run twice.
		`failed to start containerd task "x": context canceled: unknown`: false,
		// Nothing was given up: it cannot run.
		"failed to create containerd task: failed to create shim task: OCI runtime create failed": false,
		// runc was killed, as for want of memory.
		"failed to create containerd task: failed to create shim task: OCI runtime create failed: signal: killed": false,
	} {
		s := &runtimeapi.ContainerStatus{Reason: "StartError", Message: message}
		if got := neverRan(s); got != want {
			t.Errorf("%s: %v", message, got)
		}
		if s.StartedAt = 1; neverRan(s) {
			t.Errorf("%s: it has run", message)
		}
	}
}
