// Package statsv1alpha1 names the types of the kubelet's Summary API
// (/stats/summary) under an import path of this module, so that a provider can
// fill a Summary without importing k8s.io/kubelet itself.
//
// All types are aliases of those in k8s.io/kubelet/pkg/apis/stats/v1alpha1.
package statsv1alpha1

import stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

// What a node and its pods use.
type (
	Summary        = stats.Summary
	NodeStats      = stats.NodeStats
	PodStats       = stats.PodStats
	ContainerStats = stats.ContainerStats
	PodReference   = stats.PodReference
	PVCReference   = stats.PVCReference
)

// The resources that are used.
type (
	AcceleratorStats  = stats.AcceleratorStats
	CPUStats          = stats.CPUStats
	FsStats           = stats.FsStats
	InterfaceStats    = stats.InterfaceStats
	IOStats           = stats.IOStats
	MemoryStats       = stats.MemoryStats
	NetworkStats      = stats.NetworkStats
	ProcessStats      = stats.ProcessStats
	PSIData           = stats.PSIData
	PSIStats          = stats.PSIStats
	RlimitStats       = stats.RlimitStats
	RuntimeStats      = stats.RuntimeStats
	SwapStats         = stats.SwapStats
	VolumeHealthStats = stats.VolumeHealthStats
	VolumeStats       = stats.VolumeStats
)

// Metrics that applications define.
type (
	UserDefinedMetric           = stats.UserDefinedMetric
	UserDefinedMetricDescriptor = stats.UserDefinedMetricDescriptor
	UserDefinedMetricType       = stats.UserDefinedMetricType
)

// The kinds of UserDefinedMetricType.
const (
	MetricGauge      = stats.MetricGauge
	MetricCumulative = stats.MetricCumulative
	MetricDelta      = stats.MetricDelta
)

// The names of NodeStats.SystemContainers.
const (
	SystemContainerKubelet                   = stats.SystemContainerKubelet
	SystemContainerRuntime                   = stats.SystemContainerRuntime
	SystemContainerMisc                      = stats.SystemContainerMisc
	SystemContainerPods                      = stats.SystemContainerPods
	SystemContainerWindowsGlobalCommitMemory = stats.SystemContainerWindowsGlobalCommitMemory
)
