package runtimemetrics_test

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podengine/internal/runtimemetrics"
)

// fake answers a few calls. What it does not answer panics, as it is not there.
type fake struct {
	internalapi.RuntimeService
	internalapi.ImageManagerService
	err error
}

func (f *fake) Close(context.Context) error { return nil }

func (f *fake) StartContainer(context.Context, string) error { return f.err }

func (f *fake) ContainerStatus(context.Context, string, bool) (*runtimeapi.ContainerStatusResponse, error) {
	return someStatus, f.err
}

var someStatus = &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{}}

func (f *fake) PullImage(context.Context, *runtimeapi.ImageSpec, *runtimeapi.AuthConfig, *runtimeapi.PodSandboxConfig) (string, error) {
	return "ref", f.err
}

func measured(t *testing.T, r prometheus.Registerer, f *fake) (internalapi.RuntimeService, internalapi.ImageManagerService) {
	t.Helper()
	runtime, images, err := runtimemetrics.Measured(r, f, f)
	if err != nil {
		t.Fatal(err)
	}
	return runtime, images
}

func TestCallsAndTheirErrorsAreCounted(t *testing.T) {
	r, f := prometheus.NewRegistry(), &fake{}
	runtime, images := measured(t, r, f)
	if err := runtime.StartContainer(t.Context(), "c"); err != nil {
		t.Error(err)
	}
	if ref, err := images.PullImage(t.Context(), nil, nil, nil); ref != "ref" || err != nil {
		t.Errorf("PullImage returned %q, %v", ref, err)
	}
	f.err = errors.New("no")
	if err := runtime.StartContainer(t.Context(), "c"); !errors.Is(err, f.err) {
		t.Errorf("the call's error is %v", err)
	}
	for metric, want := range map[string]map[string]float64{
		"kubelet_runtime_operations_total":            {"pull_image": 1, "start_container": 2},
		"kubelet_runtime_operations_errors_total":     {"pull_image": 0, "start_container": 1},
		"kubelet_runtime_operations_duration_seconds": {"pull_image": 1, "start_container": 2},
	} {
		if got := counted(t, r, metric); !maps.Equal(got, want) {
			t.Errorf("%s is %v, want %v", metric, got, want)
		}
	}
}

// counted returns the counts of a metric by operation.
func counted(t *testing.T, r *prometheus.Registry, metric string) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, family := range families {
		if family.GetName() != metric {
			continue
		}
		for _, m := range family.GetMetric() {
			counts[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return counts
}

// A method that the CRI gains is not to be forgotten. The fake lacks most, which panic: that
// is an error, which is counted.
func TestNoCallIsLeftOut(t *testing.T) {
	r := prometheus.NewRegistry()
	runtime, images := measured(t, r, &fake{err: errors.New("no")})
	calls := 0
	for _, service := range []reflect.Value{reflect.ValueOf(runtime), reflect.ValueOf(images)} {
		for i := range service.NumMethod() {
			if service.Type().Method(i).Name == "Close" {
				continue // of who opened it
			}
			calls++
			if callWithNothing(service.Method(i)) == nil {
				t.Errorf("%s has no error, although it panicked", service.Type().Method(i).Name)
			}
			if len(counted(t, r, "kubelet_runtime_operations_total")) != calls {
				t.Fatalf("%s is not counted as an operation of its own", service.Type().Method(i).Name)
			}
		}
	}
}

// callWithNothing calls a method with zero values, and returns its error.
func callWithNothing(method reflect.Value) error {
	args := []reflect.Value{reflect.ValueOf(context.Background())}
	for i := 1; i < method.Type().NumIn(); i++ {
		args = append(args, reflect.Zero(method.Type().In(i)))
	}
	results := method.Call(args)
	err, _ := results[len(results)-1].Interface().(error)
	return err
}

func TestEnginesOfOneProcessAreCountedTogether(t *testing.T) {
	r := prometheus.NewRegistry()
	for range 2 {
		runtime, _ := measured(t, r, &fake{})
		if _, err := runtime.ContainerStatus(t.Context(), "c", false); err != nil {
			t.Error(err)
		}
	}
	if got := counted(t, r, "kubelet_runtime_operations_total")["container_status"]; got != 2 {
		t.Errorf("two engines have %v calls, want 2", got)
	}
}

// A runtime that panics ends the process in no case.
func TestPanicsAreErrorsWithoutARegistry(t *testing.T) {
	runtime, _ := measured(t, nil, &fake{})
	if _, err := runtime.ListContainers(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "the container runtime panicked in list_containers: ") {
		t.Errorf("got %v", err)
	}
}

// silent has no answers, as a runtime of which a part is still to be written.
type silent struct{ fake }

func (silent) Version(context.Context, string) (*runtimeapi.VersionResponse, error) { return nil, nil }

func (silent) Status(context.Context, bool) (*runtimeapi.StatusResponse, error) { return nil, nil }

func (silent) ContainerStatus(context.Context, string, bool) (*runtimeapi.ContainerStatusResponse, error) {
	return &runtimeapi.ContainerStatusResponse{}, nil
}

func (silent) PodSandboxStatus(context.Context, string, bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	return &runtimeapi.PodSandboxStatusResponse{}, nil
}

func (silent) Exec(context.Context, *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return nil, nil
}

func (silent) Attach(context.Context, *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return nil, nil
}

func (silent) PortForward(context.Context, *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return nil, nil
}

// An answer that is nil would end the process where the engine looks into it.
func TestNoAnswerIsAnError(t *testing.T) {
	runtime, _, err := runtimemetrics.Measured(prometheus.NewRegistry(), &silent{}, &fake{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Version", "Status", "ContainerStatus", "PodSandboxStatus", "Exec", "Attach", "PortForward"} {
		if err := callWithNothing(reflect.ValueOf(runtime).MethodByName(name)); err == nil || !strings.Contains(err.Error(), "no answer") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
