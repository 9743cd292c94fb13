package machine

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// WarmConfig is how many machines are in reserve, where there are no types.
type WarmConfig struct {
	// Count is how many there are. Defaults to 0.
	Count int `json:"count,omitempty"`
	// CPU and Memory are what a pod that gets one can request at the most. Required.
	CPU    *resource.Quantity `json:"cpu,omitempty"`
	Memory *resource.Quantity `json:"memory,omitempty"`
}

// checkWarm checks how many machines are to be in reserve.
func (c *Config) checkWarm(checks *config.Checks) {
	for i := range c.Types {
		checks.That(c.Types[i].Warm >= 0, "types[%s].warm: %d is negative", c.Types[i].Name, c.Types[i].Warm)
	}
	if w := c.Warm; w != nil {
		checks.That(len(c.Types) == 0, "warm: there are types, each of which has a number of its own: types[].warm")
		checks.That(w.Count >= 0, "warm.count: %d is negative", w.Count)
		checks.That(w.CPU != nil && w.CPU.Sign() > 0, "warm.cpu: it is required: what a pod in such a machine can request at the most")
		checks.That(w.Memory != nil && w.Memory.Sign() > 0, "warm.memory: it is required: what a pod in such a machine can request at the most")
	}
}

// kind is a kind of machines in reserve.
type kind struct {
	// key distinguishes machines that were made with different settings, also of one type.
	key   string
	of    *TypeConfig // nil without types
	limit podgroup.Size
	count int
}

// kinds are those of machines in reserve.
func (c *Config) kinds() (all []kind) {
	if w := c.Warm; w != nil && w.Count > 0 {
		all = append(all, c.newKind(nil, TypeConfig{CPU: w.CPU, Memory: w.Memory, Warm: w.Count}))
	}
	for i := range c.Types {
		if t := &c.Types[i]; t.Warm > 0 {
			all = append(all, c.newKind(t, *t))
		}
	}
	return all
}

func (c *Config) newKind(of *TypeConfig, t TypeConfig) kind {
	// Quantities are not compared as they are written. The driver's settings count, since machines may
	// wait for days: pods get none with the image of before.
	settings, _ := json.Marshal(struct { // of which all can be encoded
		Name        string
		CPU, Memory int64
		Resources   corev1.ResourceList
		Arguments   map[string]string
		Exec        *ExecConfig
		Qemu        *QemuConfig
		EC2         json.RawMessage
		URL         string
		AgentPort   int
	}{t.Name, t.CPU.MilliValue(), t.Memory.Value(), t.Resources, t.Arguments, c.Exec, c.Qemu, c.EC2, c.Bootstrap.URL, c.AgentPort})
	return kind{key: digestOf(string(settings))[:16], of: of, limit: podgroup.Size{CPU: *t.CPU, Memory: *t.Memory}, count: t.Warm}
}

// name is what logs call it: its type, or nothing.
func (k *kind) name() string {
	if k.of == nil {
		return ""
	}
	return k.of.Name
}

// kindOf returns the kind of machines in reserve that a pod can get; nil if there is none.
func (b *backend) kindOf(r *podgroup.Request) *kind {
	chosen, why := b.cfg.typeOf(r.Pod)
	for i := range b.kinds {
		switch k := &b.kinds[i]; {
		case why != "":
		case k.of != nil && chosen != nil && k.of.Name == chosen.Name,
			k.of == nil && chosen == nil && r.Size.CPU.Cmp(k.limit.CPU) <= 0 && r.Size.Memory.Cmp(k.limit.Memory) <= 0:
			return k
		}
	}
	return nil
}
