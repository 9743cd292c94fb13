package config_test

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
)

func TestChecks(t *testing.T) {
	var none config.Checks
	none.That(true, "wrong")
	if err := none.Err(); err != nil {
		t.Errorf("no mistake is %v", err)
	}
	less := resource.MustParse("-1")
	var cpu, memory *resource.Quantity
	gpu := &less
	var wrong config.Checks
	wrong.Quantity("cpu", &cpu, "20")
	wrong.Quantity("memory", &memory, "")
	wrong.Quantity("gpu", &gpu, "0")
	wrong.That(false, "driver: %q is not one", "runc")
	if cpu.String() != "20" || memory != nil || gpu.String() != "-1" {
		t.Errorf("the quantities are %v, %v and %v", cpu, memory, gpu)
	}
	if err := wrong.Err(); err == nil || err.Error() != `2 mistakes: gpu: -1 is negative; driver: "runc" is not one` {
		t.Errorf("the mistakes are %v", err)
	}
}

func TestInvalid(t *testing.T) {
	if err := config.Invalid("nomad", nil); err != nil {
		t.Errorf("no mistake is %v", err)
	}
	mistake := errors.New("token: it is missing")
	err := config.Invalid("nomad", mistake)
	if !errdefs.IsInvalidInput(err) || !errors.Is(err, mistake) || err.Error() != "nomad config: token: it is missing" {
		t.Errorf("a mistake is %v", err)
	}
}
