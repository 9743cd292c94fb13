package slurm

import (
	"errors"
	"fmt"
	"strings"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/providers/slurm/internal/login"
)

// Slurm has no codes but sentences. These are parts of those that are known, each with the
// code that stands for it; the first that is found counts.
var sentences = []struct{ part, code string }{
	{"RPC rate limit", "throttled"},
	{"temporarily unable to accept job", "throttled"},
	{"Resource temporarily unavailable", "throttled"},
	{"Unable to contact slurm controller", "away"},
	{"Socket timed out", "away"},
	{"Zero Bytes were transmitted", "away"},
	{"standby mode", "away"},
	{"Connection refused", "away"},
	{"Transport endpoint is not connected", "away"},
	{"Unable to establish", "away"},
	{"configuration source", "away"},
	{"No space left on device", "exhausted"},
	{"Disk quota exceeded", "exhausted"},
	{"Read-only file system", "exhausted"},
	{"Job violates accounting/QOS policy", "exhausted"}, // also a limit of jobs that are submitted
	{"MaxSubmitJob", "exhausted"},
	{"MaxJobCount", "exhausted"},
	{"Slurm job queue full", "exhausted"},
	{"Access/permission denied", "denied"},
	{"Permission denied", "denied"},
	{"not permitted to use", "denied"},
	{"Invalid job id", "missing"},
	{"in a transitional state", "busy"},
	{"already completing or completed", "missing"},
	// All others may pass, as when machines are down.
	{"nvalid", "refused"},
	{"Requested node configuration is not available", "refused"},
	{"More processors requested than permitted", "refused"},
	{"unrecognized option", "refused"},
	{"can not be satisfied", "refused"},
}

var codes = podgroup.Codes{
	Throttled: []string{"throttled"}, Exhausted: []string{"exhausted"}, Denied: []string{"denied"}, Busy: []string{"busy"},
	Missing: []string{"missing"}, Away: []string{"away"}, Refused: []string{"refused"},
}

// badRequest is the status of calls with a code: no status of HTTP says anything here.
const badRequest = 400

// classify gives the error of a command its class.
func classify(action podgroup.Action, err error) error {
	ended, ok := errors.AsType[*login.Error](err)
	if !ok {
		return err
	}
	err = fmt.Errorf("slurm: %s: %w", action, err)
	if ended.Unreachable {
		return codes.Classify(action, "", 0, 0, err)
	}
	if ended.Code == login.NotFound {
		return codes.Classify(action, "missing", badRequest, 0, err)
	}
	for _, s := range sentences {
		if strings.Contains(ended.Text, s.part) {
			return codes.Classify(action, s.code, badRequest, 0, err)
		}
	}
	return codes.Classify(action, "unknown", badRequest, 0, err)
}
