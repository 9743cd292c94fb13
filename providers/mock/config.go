package mock

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// Config says what the node has, and what its pods do unless their annotations
// say otherwise. Its zero value works.
type Config struct {
	// NodeName is the name of the node. Defaults to "vk-mock".
	NodeName string
	// HostIP is the node's address. Defaults to 127.0.0.1.
	HostIP string
	// KubeletPort is the port of the node's kubelet API. Zero says nothing.
	KubeletPort int32
	// OperatingSystem and Architecture default to linux, and to what the
	// program was built for.
	OperatingSystem, Architecture string
	// ProviderID is the node's spec.providerID. Empty says nothing.
	ProviderID string

	// CPU, Memory, Pods and EphemeralStorage are the node's capacity, all of it
	// allocatable. They default to 20, 100Gi, 1000 and 1Ti.
	CPU, Memory, Pods, EphemeralStorage resource.Quantity
	// Others are further resources, such as nvidia.com/gpu.
	Others corev1.ResourceList

	// PodCIDR is where the pods' addresses are from. Defaults to 10.244.0.0/16.
	PodCIDR string

	// StartDelay is how long pods are Pending, and StartJitter what may be
	// added to it, by chance (the same for a UID each time). ReadyDelay is how
	// long they then are not Ready, and StopDelay how long they take to stop.
	StartDelay, StartJitter, ReadyDelay, StopDelay time.Duration

	// KeepJobs lets pods with restartPolicy Never or OnFailure run for ever.
	// Without, they complete by themselves after JobDuration.
	KeepJobs bool
	// JobDuration defaults to one second; a negative one means at once.
	JobDuration time.Duration

	// Journal is the path of a file for WithJournal. The provider itself opens
	// no files: that is for the program that reads the config.
	Journal string
}

const (
	defaultNodeName    = "vk-mock"
	defaultHostIP      = "127.0.0.1"
	defaultPodCIDR     = "10.244.0.0/16"
	defaultJobDuration = time.Second
)

// complete fills in the defaults and checks the rest.
func (c Config) complete() (Config, error) {
	for _, d := range []struct {
		field *string
		value string
	}{
		{&c.NodeName, defaultNodeName},
		{&c.HostIP, defaultHostIP},
		{&c.OperatingSystem, "linux"},
		{&c.Architecture, runtime.GOARCH},
		{&c.PodCIDR, defaultPodCIDR},
	} {
		if *d.field == "" {
			*d.field = d.value
		}
	}
	for _, q := range []struct {
		name     string
		quantity *resource.Quantity
		value    string
	}{
		{"cpu", &c.CPU, "20"},
		{"memory", &c.Memory, "100Gi"},
		{"pods", &c.Pods, "1000"},
		{"ephemeralStorage", &c.EphemeralStorage, "1Ti"},
	} {
		if q.quantity.Sign() < 0 {
			return c, errdefs.InvalidInputf("%s: %s is negative", q.name, q.quantity.String())
		}
		if q.quantity.IsZero() {
			*q.quantity = resource.MustParse(q.value)
		}
	}
	for name, q := range c.Others {
		if q.Sign() < 0 {
			return c, errdefs.InvalidInputf("others: %s: %s is negative", name, q.String())
		}
	}
	if c.JobDuration == 0 {
		c.JobDuration = defaultJobDuration
	}
	for name, d := range map[string]time.Duration{
		"startDelay": c.StartDelay, "startJitter": c.StartJitter, "readyDelay": c.ReadyDelay, "stopDelay": c.StopDelay,
	} {
		if d < 0 {
			return c, errdefs.InvalidInputf("%s: %s is negative", name, d)
		}
	}
	if _, err := netip.ParseAddr(c.HostIP); err != nil {
		return c, errdefs.InvalidInputf("hostIP: %w", err)
	}
	if _, err := netip.ParsePrefix(c.PodCIDR); err != nil {
		return c, errdefs.InvalidInputf("podCIDR: %w", err)
	}
	if c.KubeletPort < 0 || c.KubeletPort > 65535 {
		return c, errdefs.InvalidInputf("kubeletPort: %d is no port", c.KubeletPort)
	}
	return c, nil
}

// script returns what a pod does by the config alone.
func (c Config) script(pod *corev1.Pod) script {
	s := script{
		startDelay: c.StartDelay, startJitter: c.StartJitter,
		readyDelay: c.ReadyDelay, stopDelay: c.StopDelay,
	}
	if !c.KeepJobs && (pod.Spec.RestartPolicy == corev1.RestartPolicyNever || pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure) {
		s.runFor = ptr.To(max(c.JobDuration, 0))
	}
	return s
}

func parseQuantity(field, text string) (resource.Quantity, error) {
	if text == "" {
		return resource.Quantity{}, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return q, errdefs.InvalidInputf("%s: %q is no quantity", field, text)
	}
	return q, nil
}

func parseDuration(field, text string) (time.Duration, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, errdefs.InvalidInputf("%s: %q is no duration such as 1.5s", field, text)
	}
	if d < 0 {
		return 0, errdefs.InvalidInputf("%s: %s is negative", field, text)
	}
	return d, nil
}

// inConfig adds to an error which node's config it is in.
func inConfig(node string, err error) error {
	return errdefs.AsInvalidInput(fmt.Errorf("mock config of node %q: %w", node, err))
}
