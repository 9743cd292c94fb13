package huaweicci

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// The annotations of pods in CCI.
const (
	// AnnotationSize is the size of a pod: CPUs and GiB of memory, such as 2.00_4.0.
	AnnotationSize = "resource.cci.io/pod-size-specs"
	// AnnotationInstanceType is the kind of machine, such as general-computing.
	AnnotationInstanceType = "resource.cci.io/instance-type"
)

// size is the size of a pod in CCI.
type size struct{ milliCPU, mebibytes int64 }

func (s size) String() string {
	return fmt.Sprintf("%.2f_%.1f", float64(s.milliCPU)/1000, float64(s.mebibytes)/1024)
}

// sizes returns the sizes that CCI 2.0 has, from small to large.
func sizes() (all []size) {
	for _, row := range []struct {
		milliCPU, from, to, step int64 // memory in MiB
		memory                   []int64
	}{
		{milliCPU: 250, memory: []int64{512, 1024, 2048}},
		{milliCPU: 500, memory: []int64{512, 1024, 2048, 3072, 4096}},
		{milliCPU: 1000, from: 1 << 10, to: 8 << 10, step: 1 << 10},
		{milliCPU: 2000, from: 2 << 10, to: 16 << 10, step: 1 << 10},
		{milliCPU: 4000, from: 4 << 10, to: 32 << 10, step: 1 << 10},
		{milliCPU: 8000, from: 8 << 10, to: 64 << 10, step: 4 << 10},
		{milliCPU: 16000, from: 16 << 10, to: 128 << 10, step: 8 << 10},
		{milliCPU: 32000, memory: []int64{32 << 10, 64 << 10, 128 << 10, 256 << 10}},
		{milliCPU: 48000, memory: []int64{96 << 10, 192 << 10, 384 << 10}},
		{milliCPU: 64000, memory: []int64{128 << 10, 256 << 10, 512 << 10}},
	} {
		for _, memory := range row.memory {
			all = append(all, size{row.milliCPU, memory})
		}
		for memory := row.from; row.step > 0 && memory <= row.to; memory += row.step {
			all = append(all, size{row.milliCPU, memory})
		}
	}
	return all
}

// parseSize returns the size of a value of AnnotationSize, which must be one that CCI 2.0 has.
func parseSize(text string) (size, error) {
	for _, s := range sizes() {
		if s.String() == text {
			return s, nil
		}
	}
	return size{}, fmt.Errorf("%.20q is no size of CCI 2.0: write CPUs and GiB such as 0.50_1.0 or 2.00_4.0, as its documentation lists them", text)
}

// fit returns the smallest size with at least what is needed.
func fit(needed size) (size, error) {
	for _, s := range sizes() {
		if s.milliCPU >= needed.milliCPU && s.mebibytes >= needed.mebibytes {
			return s, nil
		}
	}
	return size{}, errdefs.AsPermanent(fmt.Errorf("ProviderNotSupported: CCI has no pod with %v CPUs and %v MiB of memory", float64(needed.milliCPU)/1000, needed.mebibytes))
}

// sizeOf returns what the containers of a pod need: their sum, or the largest init container.
// Limits count, and requests where there are none.
func sizeOf(spec *corev1.PodSpec) size {
	needed := sumOf(spec.Containers)
	for i := range spec.InitContainers {
		needed = needed.max(containerSize(&spec.InitContainers[i]))
	}
	return needed
}

func sumOf(containers []corev1.Container) (sum size) {
	for i := range containers {
		sum = sum.plus(containerSize(&containers[i]))
	}
	return sum
}

func (s size) plus(other size) size {
	return size{s.milliCPU + other.milliCPU, s.mebibytes + other.mebibytes}
}

func (s size) max(other size) size {
	return size{max(s.milliCPU, other.milliCPU), max(s.mebibytes, other.mebibytes)}
}

func containerSize(c *corev1.Container) size {
	of := func(name corev1.ResourceName) resource.Quantity {
		if limit, ok := c.Resources.Limits[name]; ok {
			return limit
		}
		return c.Resources.Requests[name]
	}
	cpu, memory := of(corev1.ResourceCPU), of(corev1.ResourceMemory)
	return size{cpu.MilliValue(), (memory.Value() + 1<<20 - 1) >> 20}
}

// completePod sets what CCI needs of a pod, and refuses what it does not have.
func (c *Config) completePod(pod *corev1.Pod) error {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if what := unsupported(&containers[i]); what != "" {
				return errdefs.AsPermanent(fmt.Errorf("ProviderNotSupported: container %s: CCI has no %s", containers[i].Name, what))
			}
		}
	}
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Image != nil {
			return errdefs.AsPermanent(fmt.Errorf("ProviderNotSupported: volume %s: CCI has no volumes of images", v.Name))
		}
	}
	if pod.Annotations[AnnotationInstanceType] == "" {
		pod.Annotations[AnnotationInstanceType] = c.InstanceType
	}
	if c.API == APIv1 {
		return roundContainers(&pod.Spec)
	}
	needed := sizeOf(&pod.Spec)
	if text := pod.Annotations[AnnotationSize]; text != "" {
		given, err := parseSize(text)
		if err == nil && given.max(needed) != given {
			err = fmt.Errorf("%s is less than the %s that its containers need", text, needed)
		}
		if err != nil {
			return errdefs.AsPermanent(fmt.Errorf("ProviderNotSupported: annotation %s: %w", AnnotationSize, err))
		}
		return nil
	}
	if needed == (size{}) {
		pod.Annotations[AnnotationSize] = c.Size
		return nil
	}
	fitting, err := fit(needed)
	if err == nil {
		pod.Annotations[AnnotationSize] = fitting.String()
	}
	return err
}

// unsupported names a feature of a container that is not in the pods of CCI, which would
// ignore it: a sidecar, for example, would be an init container that never ends.
func unsupported(c *corev1.Container) string {
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if probe != nil && probe.GRPC != nil {
			return "probes by gRPC"
		}
	}
	if c.Lifecycle != nil {
		if c.Lifecycle.StopSignal != nil {
			return "stop signals of containers"
		}
		for _, hook := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if hook != nil && (hook.Sleep != nil || hook.TCPSocket != nil) {
				return "hooks but exec and httpGet"
			}
		}
	}
	switch {
	case c.RestartPolicy != nil || len(c.RestartPolicyRules) > 0:
		return "restart policies of containers, such as those of sidecars"
	case c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged:
		return "privileged containers"
	case len(c.VolumeDevices) > 0:
		return "volumeDevices"
	}
	return ""
}

const (
	maxContainers  = 5     // of a pod in CCI 1
	cpuStep        = 250   // of a container's CPU there, in thousandths
	memoryStep     = 1024  // of a pod's memory there, in MiB
	defaultMemory  = 512   // of a container without one, in MiB
	minMemoryRatio = 2     // GiB to a CPU
	maxMemoryRatio = 8     // GiB to a CPU
	maxSharedCPU   = 32000 // of a pod there, in thousandths; 48 and 64 CPUs exist, too
)

// roundContainers makes a pod one that CCI 1 accepts: requests are limits, CPUs are
// multiples of 0.25, and the pod has 2 to 8 whole GiB to a CPU. What is missing is added to
// the first container.
func roundContainers(spec *corev1.PodSpec) error {
	if len(spec.Containers) > maxContainers {
		return errdefs.AsPermanent(fmt.Errorf("ProviderNotSupported: %d containers: CCI 1 has pods of at most %d", len(spec.Containers), maxContainers))
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			s := containerSize(&containers[i])
			setSize(&containers[i], size{max(roundUp(s.milliCPU, cpuStep), cpuStep), s.mebibytes})
			if s.mebibytes == 0 {
				setSize(&containers[i], size{max(roundUp(s.milliCPU, cpuStep), cpuStep), defaultMemory})
			}
		}
	}
	has, running := sizeOf(spec), sumOf(spec.Containers)
	wanted := size{has.milliCPU, roundUp(has.mebibytes, memoryStep)}
	wanted.milliCPU = max(wanted.milliCPU, roundUp((wanted.mebibytes*1000/1024+maxMemoryRatio-1)/maxMemoryRatio, cpuStep))
	wanted.milliCPU = roundUpCPUs(wanted.milliCPU)
	wanted.mebibytes = max(wanted.mebibytes, roundUp(wanted.milliCPU*minMemoryRatio*1024/1000, memoryStep))
	if _, err := fit(wanted); err != nil {
		return err
	}
	first := containerSize(&spec.Containers[0])
	setSize(&spec.Containers[0], size{first.milliCPU + wanted.milliCPU - running.milliCPU, first.mebibytes + wanted.mebibytes - running.mebibytes})
	return nil
}

func roundUp(n, step int64) int64 { return (n + step - 1) / step * step }

// roundUpCPUs returns the number of CPUs that a pod of CCI 1 can have.
func roundUpCPUs(milliCPU int64) int64 {
	switch {
	case milliCPU <= maxSharedCPU:
		return milliCPU
	case milliCPU <= 48000:
		return 48000
	}
	return max(milliCPU, 64000)
}

func setSize(c *corev1.Container, s size) {
	for _, list := range []*corev1.ResourceList{&c.Resources.Limits, &c.Resources.Requests} {
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[corev1.ResourceCPU] = *resource.NewMilliQuantity(s.milliCPU, resource.DecimalSI)
		(*list)[corev1.ResourceMemory] = *resource.NewQuantity(s.mebibytes<<20, resource.BinarySI)
	}
}
