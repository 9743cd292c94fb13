package mock

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
)

// fileConfig is one node's part of a config file. README.md has the fields.
type fileConfig struct {
	CPU              string            `json:"cpu"`
	Memory           string            `json:"memory"`
	Pods             string            `json:"pods"`
	EphemeralStorage string            `json:"ephemeralStorage"`
	Others           map[string]string `json:"others"`

	ProviderID      string `json:"providerID"`
	HostIP          string `json:"hostIP"`
	KubeletPort     int32  `json:"kubeletPort"`
	OperatingSystem string `json:"operatingSystem"`
	Architecture    string `json:"architecture"`
	PodCIDR         string `json:"podCIDR"`

	StartDelay   string  `json:"startDelay"`
	StartJitter  string  `json:"startJitter"`
	ReadyDelay   string  `json:"readyDelay"`
	StopDelay    string  `json:"stopDelay"`
	CompleteJobs *bool   `json:"completeJobs"`
	JobDuration  *string `json:"jobDuration"`

	Journal string `json:"journal"`
}

// ParseConfig reads the config of nodeName from data: an object in YAML or JSON whose
// keys are the names of nodes. It is strict: the error, of class InvalidInput, names all
// unknown fields and invalid values, in the part of any node. A node that is not in it
// has the defaults, and so has empty data.
func ParseConfig(data []byte, nodeName string) (Config, error) {
	var file map[string]fileConfig
	mistakes, decoded := config.Decoder{}.Mistakes(data, &file)
	for i, err := range mistakes {
		mistakes[i] = fmt.Errorf("mock config: %w", err)
	}
	if decoded {
		for _, name := range slices.Sorted(maps.Keys(file)) {
			if _, err := file[name].config(name); err != nil {
				mistakes = append(mistakes, inConfig(name, err))
			}
		}
	}
	if err := config.Join(mistakes...); err != nil {
		return Config{}, errdefs.AsInvalidInput(err)
	}
	return file[nodeName].config(nodeName)
}

// config returns the part of node name, with the defaults.
func (f fileConfig) config(name string) (Config, error) {
	c := Config{
		NodeName: name, ProviderID: f.ProviderID, HostIP: f.HostIP, KubeletPort: f.KubeletPort,
		OperatingSystem: f.OperatingSystem, Architecture: f.Architecture, PodCIDR: f.PodCIDR, Journal: f.Journal,
	}
	var errs []error
	quantity := func(to *resource.Quantity, field, text string) {
		q, err := parseQuantity(field, text)
		*to, errs = q, append(errs, err)
	}
	duration := func(to *time.Duration, field, text string) {
		d, err := parseDuration(field, text)
		*to, errs = d, append(errs, err)
	}
	quantity(&c.CPU, "cpu", f.CPU)
	quantity(&c.Memory, "memory", f.Memory)
	quantity(&c.Pods, "pods", f.Pods)
	quantity(&c.EphemeralStorage, "ephemeralStorage", f.EphemeralStorage)
	for _, key := range slices.Sorted(maps.Keys(f.Others)) {
		var q resource.Quantity
		quantity(&q, fmt.Sprintf("others: %s", key), f.Others[key])
		if c.Others == nil {
			c.Others = corev1.ResourceList{}
		}
		c.Others[corev1.ResourceName(key)] = q
	}
	duration(&c.StartDelay, "startDelay", f.StartDelay)
	duration(&c.StartJitter, "startJitter", f.StartJitter)
	duration(&c.ReadyDelay, "readyDelay", f.ReadyDelay)
	duration(&c.StopDelay, "stopDelay", f.StopDelay)
	c.KeepJobs = f.CompleteJobs != nil && !*f.CompleteJobs
	if f.JobDuration != nil {
		duration(&c.JobDuration, "jobDuration", *f.JobDuration)
		if c.JobDuration == 0 {
			c.JobDuration = -1 // at once, and not the default
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Config{}, err
	}
	return c.complete()
}
