package eci

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/eci"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// Create implements podgroup.Backend.
func (b *backend) Create(ctx context.Context, r *podgroup.Request) (podgroup.Unit, error) {
	p, err := b.createParams(r)
	if err != nil {
		return podgroup.Unit{}, err
	}
	response := eci.CreateCreateContainerGroupResponse()
	err = b.client.call(ctx, podgroup.ActionCreate, "CreateContainerGroup", p, response)
	if r.Pod.Annotations[annotationFailOnError] == "true" {
		// A call without an answer, and one that came too early, may succeed yet.
		if e, ok := errors.AsType[callError](err); ok && !errdefs.IsConflict(err) && !strings.Contains(e.code, "Throttling") {
			err = errdefs.AsPermanent(err)
		}
	}
	return podgroup.Unit{ID: response.ContainerGroupId}, err
}

// createParams returns the parameters of the group of a pod.
func (b *backend) createParams(r *podgroup.Request) (params, error) {
	pod := r.Pod
	p := params{"ContainerGroupName": groupName(pod), "ClientToken": r.Token, "RestartPolicy": string(pod.Spec.RestartPolicy)}
	p.setTags(r.Tags)
	if b.cfg.OperatingSystem == "windows" {
		p["OsType"] = "Windows"
	}
	p.setSize(pod)
	p.set("SecurityGroupId", b.cfg.SecurityGroup)
	p.set("VSwitchId", b.cfg.VSwitch)
	p.set("ZoneId", b.cfg.Zone)
	p.set("RamRoleName", b.cfg.RAMRole)
	if err := p.setAnnotated(pod, b.cfg.Region); err != nil {
		return nil, err
	}
	for name, seconds := range map[string]*int64{
		"TerminationGracePeriodSeconds": pod.Spec.TerminationGracePeriodSeconds, "ActiveDeadlineSeconds": pod.Spec.ActiveDeadlineSeconds,
	} {
		if seconds != nil {
			p[name] = strconv.FormatInt(*seconds, 10)
		}
	}
	if shared := pod.Spec.ShareProcessNamespace; shared != nil && *shared {
		p["ShareProcessNamespace"] = "true"
	}
	if err := p.setNames(pod, b.cfg.ClusterDomain); err != nil {
		return nil, err
	}
	p.setDNS(pod, r.DNS)
	p.setSysctls(pod)
	p.setLogins(r.Logins)
	if err := p.setVolumes(r); err != nil {
		return nil, err
	}
	p.setContainers(pod)
	return p, nil
}

// groupName returns the name of a pod's container group. It need not be unique, has at
// most 128 characters and, unlike that of a pod, no dots.
func groupName(pod *corev1.Pod) string {
	name := strings.ReplaceAll(pod.Namespace+"-"+pod.Name, ".", "-")
	return strings.TrimRight(name[:min(len(name), 128)], "-")
}

// tagNamespace is the key of the tag of the pod's namespace, which other providers spell
// otherwise.
const tagNamespace = "NameSpace"

func (p params) setTags(tags map[string]string) {
	for i, key := range slices.Sorted(maps.Keys(tags)) {
		prefix := fmt.Sprintf("Tag.%d.", i+1)
		p[prefix+"Value"] = tags[key]
		if key == podgroup.TagNamespace {
			key = tagNamespace
		}
		p[prefix+"Key"] = key
	}
}

// size is thousandths of vCPUs and hundredths of a GiB of memory.
type size struct{ cpu, memory int64 }

// defaultSize is the size of a pod without requests and limits, and leastSize the least that
// is sold. The service rounds up what is between its sizes.
var (
	defaultSize = size{cpu: 1000, memory: 200}
	leastSize   = size{cpu: 250, memory: 50}
)

// sizeOf returns the larger of requests and limits, which ECI does not distinguish; zero for
// those that are not set.
func sizeOf(s podgroup.Size) size {
	return size{s.CPU.MilliValue(), (s.Memory.Value()*100 + 1<<30 - 1) >> 30}
}

func (s size) atLeast(other size) size {
	return size{max(s.cpu, other.cpu), max(s.memory, other.memory)}
}

// setOf sets the parameters of a size with a prefix.
func (p params) setOf(prefix string, s size) {
	for name, value := range map[string]float64{"Cpu": float64(s.cpu) / 1000, "Memory": float64(s.memory) / 100} {
		if value > 0 {
			p[prefix+name] = strconv.FormatFloat(value, 'f', -1, 64)
		}
	}
}

// podSize returns the size that a pod's containers need together: the sum of the
// containers, or the largest init container.
func podSize(pod *corev1.Pod) size {
	var sum size
	for i := range pod.Spec.Containers {
		s := sizeOf(podgroup.SizeOf(&pod.Spec.Containers[i].Resources))
		sum = size{sum.cpu + s.cpu, sum.memory + s.memory}
	}
	for i := range pod.Spec.InitContainers {
		sum = sum.atLeast(sizeOf(podgroup.SizeOf(&pod.Spec.InitContainers[i].Resources)))
	}
	if pod.Spec.Resources != nil {
		sum = sum.atLeast(sizeOf(podgroup.SizeOf(pod.Spec.Resources)))
	}
	return sum
}

// setSize sets the sizes and instance types of the annotation, in their order, or the
// size that the pod needs.
func (p params) setSize(pod *corev1.Pod) {
	specs := split(pod.Annotations[AnnotationInstanceType])
	if len(specs) == 1 {
		if cpu, memory, ok := strings.Cut(specs[0], "-"); ok && strings.HasSuffix(memory, "Gi") {
			p["Cpu"], p["Memory"] = cpu, strings.TrimSuffix(memory, "Gi")
			return
		}
	}
	if len(specs) > 0 {
		p["InstanceType"] = strings.Join(specs, ",")
		return
	}
	s := podSize(pod)
	if s == (size{}) {
		s = defaultSize
	}
	p.setOf("", s.atLeast(leastSize))
}

// setNames sets the names by which the pod knows itself and others.
func (p params) setNames(pod *corev1.Pod, clusterDomain string) error {
	if pod.Spec.Hostname != "" || pod.Spec.HostnameOverride != nil || pod.Spec.SetHostnameAsFQDN != nil {
		name, err := podspec.KernelHostname(pod, clusterDomain)
		if err != nil {
			return errdefs.AsPermanent(err)
		}
		p["HostName"] = name
	}
	for i, alias := range pod.Spec.HostAliases {
		prefix := fmt.Sprintf("HostAliase.%d.", i+1)
		p[prefix+"Ip"] = alias.IP
		p.setList(prefix+"Hostname", alias.Hostnames)
	}
	return nil
}

// setDNS sets what names are resolved with. Without the cluster's servers in the
// configuration the group uses those of its network, and what the pod itself sets.
func (p params) setDNS(pod *corev1.Pod, conf podspec.ResolvConf) {
	if len(conf.Nameservers) > 0 || pod.Spec.DNSPolicy == corev1.DNSNone {
		p["DnsPolicy"] = string(corev1.DNSNone)
	}
	if own := pod.Spec.DNSConfig; own != nil && len(conf.Nameservers)+len(conf.Searches)+len(conf.Options) == 0 {
		conf.Nameservers, conf.Searches = own.Nameservers, own.Searches
		for _, o := range own.Options {
			text := o.Name
			if o.Value != nil {
				text += ":" + *o.Value
			}
			conf.Options = append(conf.Options, text)
		}
	}
	p.setList("DnsConfig.NameServer", conf.Nameservers)
	p.setList("DnsConfig.Search", conf.Searches)
	for i, option := range conf.Options {
		name, value, _ := strings.Cut(option, ":")
		prefix := fmt.Sprintf("DnsConfig.Option.%d.", i+1)
		p[prefix+"Name"] = name
		p.set(prefix+"Value", value)
	}
}

func (p params) setSysctls(pod *corev1.Pod) {
	if pod.Spec.SecurityContext == nil {
		return
	}
	count := map[string]int{}
	for _, sysctl := range pod.Spec.SecurityContext.Sysctls {
		to := sysctlParameter(sysctl.Name)
		count[to]++
		prefix := fmt.Sprintf("%s.Sysctl.%d.", to, count[to])
		p[prefix+"Name"], p[prefix+"Value"] = sysctl.Name, sysctl.Value
	}
}

func (p params) setLogins(logins []podgroup.Login) {
	for i, l := range logins {
		prefix := fmt.Sprintf("ImageRegistryCredential.%d.", i+1)
		p[prefix+"Server"], p[prefix+"UserName"], p[prefix+"Password"] = l.Registry, l.Username, l.Password
	}
}

// Delete implements podgroup.Backend. The grace period is that of the pod's spec, since
// the API takes none with the deletion, but for none at all.
func (b *backend) Delete(ctx context.Context, u *podgroup.Unit, grace time.Duration) error {
	p := params{"ContainerGroupId": u.ID}
	if grace <= 0 {
		p["Force"] = "true"
	}
	return b.client.call(ctx, podgroup.ActionDelete, "DeleteContainerGroup", p, eci.CreateDeleteContainerGroupResponse())
}

// Update implements podgroup.Updater. Without IncrementalUpdate the group would lose what
// the request does not have: commands, environment, mounts and probes. The API has no
// parameters for the modes of files in an update.
func (b *backend) Update(ctx context.Context, u *podgroup.Unit, change podgroup.Change) error {
	pod := change.Pod
	if pod.Spec.RestartPolicy == corev1.RestartPolicyNever {
		return errdefs.AsPermanent(errors.New("ProviderNotSupported: ECI does not update a pod with restartPolicy Never: its containers may fail"))
	}
	p := params{"ContainerGroupId": u.ID, "UpdateType": "IncrementalUpdate", "ClientToken": change.Token}
	if change.Images {
		for kind, list := range map[string][]corev1.Container{"Container": pod.Spec.Containers, "InitContainer": pod.Spec.InitContainers} {
			n := 0
			for i := range list {
				if found := u.Container(list[i].Name); found != nil && found.Image == list[i].Image {
					continue
				}
				n++
				prefix := fmt.Sprintf("%s.%d.", kind, n)
				p[prefix+"Name"], p[prefix+"Image"] = list[i].Name, list[i].Image
			}
		}
		p.setLogins(change.Logins)
	}
	for i, name := range slices.Sorted(maps.Keys(change.Files)) {
		prefix := fmt.Sprintf("Volume.%d.", i+1)
		p[prefix+"Name"], p[prefix+"Type"] = name, configFileVolume
		p.setFiles(prefix, change.Files[name])
	}
	maps.DeleteFunc(p, func(name, _ string) bool { return strings.HasSuffix(name, ".Mode") })
	defer b.groups.forget(u.ID)
	return b.client.call(ctx, podgroup.ActionUpdate, "UpdateContainerGroup", p, eci.CreateUpdateContainerGroupResponse())
}
