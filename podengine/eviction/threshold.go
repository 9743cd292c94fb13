package eviction

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// Signal is something that a machine may run out of, under a kubelet's names.
type Signal string

const (
	MemoryAvailable   Signal = "memory.available"
	NodeFsAvailable   Signal = "nodefs.available"
	NodeFsInodesFree  Signal = "nodefs.inodesFree"
	ImageFsAvailable  Signal = "imagefs.available"
	ImageFsInodesFree Signal = "imagefs.inodesFree"
	PIDAvailable      Signal = "pid.available"
)

// The resources that messages name and nobody can request.
const (
	resourceInodes corev1.ResourceName = "inodes"
	resourcePIDs   corev1.ResourceName = "pids"
)

// meaning is what a signal says about the node, and the resource in messages.
var meaning = map[Signal]struct {
	condition corev1.NodeConditionType
	resource  corev1.ResourceName
}{
	MemoryAvailable:   {corev1.NodeMemoryPressure, corev1.ResourceMemory},
	NodeFsAvailable:   {corev1.NodeDiskPressure, corev1.ResourceEphemeralStorage},
	NodeFsInodesFree:  {corev1.NodeDiskPressure, resourceInodes},
	ImageFsAvailable:  {corev1.NodeDiskPressure, corev1.ResourceEphemeralStorage},
	ImageFsInodesFree: {corev1.NodeDiskPressure, resourceInodes},
	PIDAvailable:      {corev1.NodePIDPressure, resourcePIDs},
}

// Condition is the condition of a node that runs out of what the signal is about.
func (s Signal) Condition() corev1.NodeConditionType { return meaning[s].condition }

// OfImages reports whether a signal is about the file system of the images.
func (s Signal) OfImages() bool { return s == ImageFsAvailable || s == ImageFsInodesFree }

// Threshold is the amount below which there is too little of something: bytes,
// inodes or process IDs, or a share of the capacity.
type Threshold struct {
	Quantity resource.Quantity
	Percent  float64 // 0 to 100; counts if it is not 0
}

// Of is the amount, given what the machine has.
func (t Threshold) Of(capacity int64) int64 {
	if t.Percent != 0 {
		return int64(float64(capacity) * t.Percent / 100)
	}
	return t.Quantity.Value()
}

// Thresholds are those of a node. One that is zero never is met.
type Thresholds map[Signal]Threshold

// Defaults are a kubelet's.
func Defaults() Thresholds {
	return Thresholds{
		MemoryAvailable:   {Quantity: resource.MustParse("100Mi")},
		NodeFsAvailable:   {Percent: 10},
		NodeFsInodesFree:  {Percent: 5},
		ImageFsAvailable:  {Percent: 15},
		ImageFsInodesFree: {Percent: 5},
	}
}

// Parse reads thresholds as the kubelet's evictionHard has them, such as
// {"nodefs.available": "10%"}. Nil stands for the defaults; what is given otherwise
// counts alone, so that an empty map turns all off. The error is of class
// InvalidInput.
func Parse(text map[string]string) (Thresholds, error) {
	if text == nil {
		return Defaults(), nil
	}
	parsed := Thresholds{}
	for _, name := range slices.Sorted(maps.Keys(text)) {
		if _, ok := meaning[Signal(name)]; !ok {
			return nil, errdefs.InvalidInputf("%q is no signal of evictions: give one of %v", name, slices.Sorted(maps.Keys(meaning)))
		}
		t, err := parseThreshold(text[name])
		if err != nil {
			return nil, errdefs.InvalidInputf("%s: %w", name, err)
		}
		parsed[Signal(name)] = t
	}
	return parsed, nil
}

func parseThreshold(text string) (t Threshold, err error) {
	if number, ok := strings.CutSuffix(text, "%"); ok {
		t.Percent, err = strconv.ParseFloat(number, 64)
		if err != nil || t.Percent < 0 || t.Percent >= 100 {
			return t, fmt.Errorf("%q is no percentage from 0%% to less than 100%%", text)
		}
		return t, nil
	}
	if t.Quantity, err = resource.ParseQuantity(text); err != nil || t.Quantity.Sign() < 0 {
		return t, fmt.Errorf("%q is no quantity such as 100Mi, nor a percentage such as 10%%", text)
	}
	return t, nil
}
