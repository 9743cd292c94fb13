package aci

import (
	"context"
	"fmt"
	"strings"
	"time"

	aci "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerinstance/armcontainerinstance/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// reportInterval is how often quotas and limits of the region are read, and reportTimeout how
// long a ping waits for that.
const reportInterval, reportTimeout = 10 * time.Minute, 5 * time.Second

// report is what the region says.
type report struct {
	at           time.Time // of the last try
	quotas       map[string]int32
	capabilities []*aci.Capabilities
}

// Report implements podgroup.Reporter: the capacity is the configured one, within the quotas
// of the subscription in the region. That these cannot be read harms nobody.
func (b *backend) Report(ctx context.Context, n *corev1.Node) error {
	b.mu.Lock()
	first, due := b.report.at.IsZero(), time.Since(b.report.at) >= reportInterval
	if due {
		b.report.at = time.Now()
	}
	b.mu.Unlock()
	if first && b.cfg.EnableRealTimeMetrics {
		log.G(ctx).Warn("There are no figures of pods in Azure Container Instances: enableRealTimeMetrics (ENABLE_REAL_TIME_METRICS) has no effect")
	}
	if due {
		if err := b.readRegion(ctx); err != nil {
			log.G(ctx).WithError(err).Warn("Cannot read the quotas of the region; the node's capacity stays as it is")
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for quota, name := range map[string]corev1.ResourceName{"ContainerGroups": corev1.ResourcePods, "StandardCores": corev1.ResourceCPU} {
		limit, ok := b.report.quotas[quota]
		if q := n.Status.Capacity[name]; ok && q.CmpInt64(int64(limit)) > 0 {
			q = *resource.NewQuantity(int64(limit), resource.DecimalSI)
			n.Status.Capacity[name], n.Status.Allocatable[name] = q, q
		}
	}
	return nil
}

func (b *backend) readRegion(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	quotas := map[string]int32{}
	for pager := b.locations.NewListUsagePager(b.cfg.Region, nil); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return classify(podgroup.ActionReport, err)
		}
		for _, usage := range page.Value {
			if usage.Name != nil && usage.Limit != nil {
				quotas[valueOf(usage.Name.Value)] = *usage.Limit
			}
		}
	}
	var capabilities []*aci.Capabilities
	for pager := b.locations.NewListCapabilitiesPager(b.cfg.Region, nil); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return classify(podgroup.ActionReport, err)
		}
		capabilities = append(capabilities, page.Value...)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.report.quotas, b.report.capabilities = quotas, capabilities
	return nil
}

// tooLarge returns why a group is larger than what the region publishes, and nothing if it is not.
// It explains a refusal, which may sound as if it passed, and is no reason for one: what regions
// publish is out of date for some of them.
func (b *backend) tooLarge(g *aci.ContainerGroup) string {
	var cpu, memory, gpus float64
	sku := ""
	for _, c := range g.Properties.Containers {
		r := c.Properties.Resources.Requests
		cpu, memory = cpu+*r.CPU, memory+*r.MemoryInGB
		if r.Gpu != nil {
			gpus, sku = gpus+float64(*r.Gpu.Count), string(*r.Gpu.SKU)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var most *aci.CapabilitiesCapabilities
	for _, c := range b.report.capabilities {
		if c.Capabilities == nil || !strings.EqualFold(valueOf(c.OSType), b.cfg.OperatingSystem) || !strings.EqualFold(strings.ReplaceAll(valueOf(c.Gpu), "None", ""), sku) {
			continue
		}
		if cpu <= float64(valueOf(c.Capabilities.MaxCPU)) && memory <= float64(valueOf(c.Capabilities.MaxMemoryInGB)) && gpus <= float64(valueOf(c.Capabilities.MaxGpuCount)) {
			return ""
		}
		if most == nil || valueOf(c.Capabilities.MaxCPU) >= valueOf(most.MaxCPU) {
			most = c.Capabilities
		}
	}
	switch {
	case most != nil:
		return fmt.Sprintf("the containers need %g CPUs, %g GB and %g GPUs: region %s publishes %g, %g and %g as the most",
			cpu, memory, gpus, b.cfg.Region, valueOf(most.MaxCPU), valueOf(most.MaxMemoryInGB), valueOf(most.MaxGpuCount))
	case sku != "" && len(b.report.capabilities) > 0:
		return fmt.Sprintf("region %s publishes no GPUs of type %s", b.cfg.Region, sku)
	}
	return ""
}
