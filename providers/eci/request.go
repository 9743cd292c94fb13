package eci

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/eci"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// The tags of a container group that identify its pod.
const (
	TagClusterName       = "ClusterName"
	TagClusterUID        = "ClusterUID" // UID of the kube-system namespace
	TagNodeName          = "NodeName"
	TagNamespace         = "NameSpace"
	TagPodName           = "PodName"
	TagUID               = "UID"
	TagCreationTimestamp = "CreationTimestamp"
)

// The annotations of a pod that are parameters of its container group.
const (
	annotationPrefix         = "k8s.aliyun.com/"
	AnnotationInstanceType   = annotationPrefix + "eci-use-specs"
	AnnotationSecurityGroup  = annotationPrefix + "eci-security-group"
	AnnotationVSwitch        = annotationPrefix + "eci-vswitch"
	AnnotationZone           = annotationPrefix + "eci-zone"
	AnnotationRAMRole        = annotationPrefix + "eci-ram-role-name"
	AnnotationEIP            = annotationPrefix + "eci-eip-instanceid"
	AnnotationWithEIP        = annotationPrefix + "eci-with-eip"
	AnnotationEIPBandwidth   = annotationPrefix + "eip-bandwidth"
	AnnotationSpotStrategy   = annotationPrefix + "eci-spot-strategy"
	AnnotationSpotPriceLimit = annotationPrefix + "eci-spot-price-limit"
	AnnotationImageSnapshot  = annotationPrefix + "eci-image-snapshot-id"
	AnnotationImageCache     = annotationPrefix + "eci-image-cache"
)

// resourceGPU is the resource name of GPUs.
const resourceGPU corev1.ResourceName = "nvidia.com/gpu"

// Inputs are what the request for a pod depends on, besides the pod.
type Inputs struct {
	// Config must be complete.
	Config *Config
	// NodeName is the name of the node, for the tag.
	NodeName string
	// ClusterUID is the UID of the cluster's kube-system namespace, for the tag.
	ClusterUID types.UID
	// Contents are the files of the pod's volumes that have contents, by the name of
	// the volume.
	Contents map[string]volume.Files
	// Credentials are for the registries of the pod's images.
	Credentials []eci.CreateContainerGroupImageRegistryCredential
}

// CreateRequest is the request for a container group: that of the SDK, and the
// parameters of the API for which the SDK has no field, or that it cannot send.
type CreateRequest struct {
	*eci.CreateContainerGroupRequest
	Extra map[string]string
}

// Params returns all parameters of the request by name.
func (r *CreateRequest) Params() (map[string]string, error) {
	if err := requests.InitParams(r.CreateContainerGroupRequest); err != nil {
		return nil, fmt.Errorf("the SDK of ECI cannot encode the request: %w", err)
	}
	params := maps.Clone(r.GetQueryParams())
	maps.Copy(params, r.Extra)
	// The SDK encodes a list in a structure in a structure as the string that
	// reflection returns for it.
	maps.DeleteFunc(params, func(_, value string) bool { return value == "<[]string Value>" })
	return params, nil
}

// ToCreateRequest returns the request for a pod. It reads nothing but its arguments. An
// error is permanent: see Check.
func ToCreateRequest(pod *corev1.Pod, in Inputs) (*CreateRequest, error) {
	if err := Check(pod); err != nil {
		return nil, err
	}
	r := &CreateRequest{eci.CreateCreateContainerGroupRequest(), map[string]string{}}
	r.ContainerGroupName = groupName(pod)
	r.ClientToken = string(pod.UID)
	r.RegionId = in.Config.Region
	r.RestartPolicy = string(pod.Spec.RestartPolicy)
	r.Tag = tags(pod, in)
	if err := r.setSize(pod); err != nil {
		return nil, err
	}
	if in.Config.OperatingSystem == "windows" {
		r.Extra["OsType"] = "Windows"
	}
	r.setPlacement(pod, in.Config)
	r.setDeadlines(pod)
	r.setDNS(pod)
	if len(in.Credentials) > 0 {
		r.ImageRegistryCredential = &in.Credentials
	}
	r.setVolumes(pod, in.Contents)
	r.setContainers(pod)
	return r, nil
}

// groupName returns the name of a pod's container group. It need not be unique, has at
// most 128 characters and, unlike that of a pod, no dots.
func groupName(pod *corev1.Pod) string {
	name := strings.ReplaceAll(pod.Namespace+"-"+pod.Name, ".", "-")
	if len(name) > 128 {
		name = strings.TrimRight(name[:128], "-")
	}
	return name
}

func tags(pod *corev1.Pod, in Inputs) *[]eci.CreateContainerGroupTag {
	all := []eci.CreateContainerGroupTag{
		{Key: TagClusterName, Value: in.Config.ClusterName},
		{Key: TagNodeName, Value: in.NodeName},
		{Key: TagNamespace, Value: pod.Namespace},
		{Key: TagPodName, Value: pod.Name},
		{Key: TagUID, Value: string(pod.UID)},
		{Key: TagCreationTimestamp, Value: pod.CreationTimestamp.UTC().Format(time.RFC3339)},
	}
	if in.ClusterUID != "" {
		all = append(all, eci.CreateContainerGroupTag{Key: TagClusterUID, Value: string(in.ClusterUID)})
	}
	return &all
}

// setSize sets the instance type of the annotation, or the size of the smallest
// instance that is large enough.
func (r *CreateRequest) setSize(pod *corev1.Pod) error {
	if r.InstanceType = pod.Annotations[AnnotationInstanceType]; r.InstanceType != "" {
		return nil
	}
	size, err := podSize(pod).roundUpToInstance()
	if err != nil {
		return err
	}
	r.Cpu, r.Memory = number(size.cpu), number(size.memory)
	return nil
}

// setPlacement sets network, zone, role and pricing of the group.
func (r *CreateRequest) setPlacement(pod *corev1.Pod, c *Config) {
	or := func(annotation, otherwise string) string {
		if value := pod.Annotations[annotation]; value != "" {
			return value
		}
		return otherwise
	}
	r.SecurityGroupId = or(AnnotationSecurityGroup, c.SecurityGroup)
	r.VSwitchId = or(AnnotationVSwitch, c.VSwitch)
	r.ZoneId = or(AnnotationZone, c.Zone)
	r.RamRoleName = or(AnnotationRAMRole, c.RAMRole)
	r.EipInstanceId = pod.Annotations[AnnotationEIP]
	r.SpotStrategy = pod.Annotations[AnnotationSpotStrategy]
	r.SpotPriceLimit = requests.Float(pod.Annotations[AnnotationSpotPriceLimit])
	r.ImageSnapshotId = pod.Annotations[AnnotationImageSnapshot]
	r.AutoMatchImageCache = requests.Boolean(pod.Annotations[AnnotationImageCache])
	if pod.Annotations[AnnotationWithEIP] == "true" {
		r.Extra["AutoCreateEip"] = "true"
		if bandwidth := pod.Annotations[AnnotationEIPBandwidth]; bandwidth != "" {
			r.Extra["EipBandwidth"] = bandwidth
		}
	}
}

// setDeadlines sets how long the group may run, and take to stop.
func (r *CreateRequest) setDeadlines(pod *corev1.Pod) {
	if seconds := pod.Spec.TerminationGracePeriodSeconds; seconds != nil {
		r.TerminationGracePeriodSeconds = integer(*seconds)
	}
	if seconds := pod.Spec.ActiveDeadlineSeconds; seconds != nil {
		r.ActiveDeadlineSeconds = integer(*seconds)
	}
}

// setDNS sets hostname, DNS, host aliases and sysctls of the group. It uses the DNS of
// its network, not the cluster's, unless dnsConfig is set.
func (r *CreateRequest) setDNS(pod *corev1.Pod) {
	if pod.Spec.Hostname != "" {
		r.Extra["HostName"] = pod.Spec.Hostname
	}
	if pod.Spec.DNSPolicy == corev1.DNSNone {
		r.DnsPolicy = string(corev1.DNSNone)
	}
	if dns := pod.Spec.DNSConfig; dns != nil {
		r.DnsConfig.NameServer, r.DnsConfig.Search = dns.Nameservers, dns.Searches
		var options []eci.CreateContainerGroupOption
		for _, o := range dns.Options {
			option := eci.CreateContainerGroupOption{Name: o.Name}
			if o.Value != nil {
				option.Value = *o.Value
			}
			options = append(options, option)
		}
		if len(options) > 0 {
			r.DnsConfig.Option = &options
		}
	}
	var aliases []eci.CreateContainerGroupHostAliase
	for _, a := range pod.Spec.HostAliases {
		aliases = append(aliases, eci.CreateContainerGroupHostAliase{Ip: a.IP, Hostname: a.Hostnames})
	}
	if len(aliases) > 0 {
		r.HostAliase = &aliases
	}
	if c := pod.Spec.SecurityContext; c != nil && len(c.Sysctls) > 0 {
		var sysctls []eci.CreateContainerGroupSysctl
		for _, s := range c.Sysctls {
			sysctls = append(sysctls, eci.CreateContainerGroupSysctl{Name: s.Name, Value: s.Value})
		}
		r.SecurityContext.Sysctl = &sysctls
	}
}

func number(f float64) requests.Float {
	return requests.Float(strconv.FormatFloat(f, 'f', -1, 64))
}

func integer[I ~int | ~int32 | ~int64](i I) requests.Integer {
	return requests.Integer(strconv.FormatInt(int64(i), 10))
}

func boolean(b bool) requests.Boolean { return requests.Boolean(strconv.FormatBool(b)) }
