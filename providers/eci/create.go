package eci

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/eci"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

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
		// A call without an answer of the API, and one that came too early, may succeed yet.
		if e, ok := errors.AsType[callError](err); ok && podgroup.IsRefusal(err) && !strings.Contains(e.code, "Throttling") && !strings.HasPrefix(e.code, noCode) {
			err = errdefs.AsPermanent(err)
		}
	}
	return podgroup.Unit{ID: response.ContainerGroupId}, err
}

// createParams returns the parameters of the group of a pod. An error is permanent.
func (b *backend) createParams(r *podgroup.Request) (params, error) {
	pod := r.Pod
	volumes, err := volumesOf(r)
	if err != nil {
		return nil, err
	}
	hostname, err := hostnameOf(pod, b.cfg.ClusterDomain)
	if err != nil {
		return nil, err
	}
	p := params{}
	p.set("", object{
		"ContainerGroupName": groupName(pod), "ClientToken": r.Token, "Tag": tags(r.Tags), "RestartPolicy": pod.Spec.RestartPolicy,
		"SecurityGroupId": b.cfg.SecurityGroup, "VSwitchId": b.cfg.VSwitch, "ZoneId": b.cfg.Zone, "RamRoleName": b.cfg.RAMRole,
		"TerminationGracePeriodSeconds": pod.Spec.TerminationGracePeriodSeconds, "ActiveDeadlineSeconds": pod.Spec.ActiveDeadlineSeconds,
		"ShareProcessNamespace": ptr.Deref(pod.Spec.ShareProcessNamespace, false),
		"HostName":              hostname,
		"HostAliase": each(pod.Spec.HostAliases, func(a *corev1.HostAlias) object {
			return object{"Ip": a.IP, "Hostname": a.Hostnames}
		}),
		"ImageRegistryCredential": logins(r.Logins),
		"SecurityContext.Sysctl":  sysctls(pod, "SecurityContext"), "HostSecurityContext.Sysctl": sysctls(pod, "HostSecurityContext"),
		"Volume":        volumes,
		"InitContainer": each(pod.Spec.InitContainers, func(c *corev1.Container) object { return initContainer(pod, c) }),
		"Container":     each(pod.Spec.Containers, func(c *corev1.Container) object { return container(pod, c) }),
	})
	if b.cfg.OperatingSystem == "windows" {
		p["OsType"] = "Windows"
	}
	p.set("", groupSize(pod))
	p.set("", b.dns(pod, r.DNS))
	return p, p.setAnnotated(pod, b.cfg.Region)
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

// tags returns tags as parameters, sorted by key.
func tags(tags map[string]string) (list []object) {
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		name := key
		if key == podgroup.TagNamespace {
			name = tagNamespace
		}
		list = append(list, object{"Key": name, "Value": tags[key]})
	}
	return list
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

// parameters returns a size as parameters.
func (s size) parameters() object {
	return object{"Cpu": float64(s.cpu) / 1000, "Memory": float64(s.memory) / 100}
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

// groupSize returns the sizes and instance types of the annotation, in their order, or the
// size that the pod needs.
func groupSize(pod *corev1.Pod) object {
	specs := split(pod.Annotations[AnnotationInstanceType])
	if len(specs) == 1 {
		if cpu, memory, ok := strings.Cut(specs[0], "-"); ok && strings.HasSuffix(memory, "Gi") {
			return object{"Cpu": cpu, "Memory": strings.TrimSuffix(memory, "Gi")}
		}
	}
	if len(specs) > 0 {
		return object{"InstanceType": strings.Join(specs, ",")}
	}
	s := podSize(pod)
	if s == (size{}) {
		s = defaultSize
	}
	return s.atLeast(leastSize).parameters()
}

// hostnameOf returns the hostname that a pod's spec asks for.
func hostnameOf(pod *corev1.Pod, clusterDomain string) (string, error) {
	if pod.Spec.Hostname == "" && pod.Spec.HostnameOverride == nil && pod.Spec.SetHostnameAsFQDN == nil {
		return "", nil
	}
	name, err := podspec.KernelHostname(pod, clusterDomain)
	if err != nil {
		err = errdefs.AsPermanent(err)
	}
	return name, err
}

// dns returns what names are resolved with. Without the cluster's servers in the configuration
// the group uses those of its network, and what the pod itself sets.
func (b *backend) dns(pod *corev1.Pod, conf podspec.ResolvConf) object {
	o := object{"DnsConfig": object{"NameServer": conf.Nameservers, "Search": conf.Searches, "Option": each(conf.Options, func(option *string) object {
		name, value, _ := strings.Cut(*option, ":")
		return object{"Name": name, "Value": value}
	})}}
	if policy := pod.Spec.DNSPolicy; policy == corev1.DNSNone || len(b.cfg.ClusterDNS) > 0 && policy != corev1.DNSDefault {
		o["DnsPolicy"] = corev1.DNSNone
	}
	return o
}

// sysctls returns the sysctls of a pod that belong to a parameter.
func sysctls(pod *corev1.Pod, parameter string) (list []object) {
	for _, sysctl := range ptr.Deref(pod.Spec.SecurityContext, corev1.PodSecurityContext{}).Sysctls {
		if sysctlParameter(sysctl.Name) == parameter {
			list = append(list, object{"Name": sysctl.Name, "Value": sysctl.Value})
		}
	}
	return list
}

func logins(list []podgroup.Login) []object {
	return each(list, func(l *podgroup.Login) object {
		return object{"Server": l.Registry, "UserName": l.Username, "Password": l.Password}
	})
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
		return podgroup.NotSupportedf("ECI does not update a pod with restartPolicy Never: its containers may fail")
	}
	o := object{"ContainerGroupId": u.ID, "UpdateType": "IncrementalUpdate", "ClientToken": change.Token}
	if change.Images {
		o["Container"], o["InitContainer"] = otherImages(u, pod.Spec.Containers), otherImages(u, pod.Spec.InitContainers)
		o["ImageRegistryCredential"] = logins(change.Logins)
	}
	var volumes []object
	for _, name := range slices.Sorted(maps.Keys(change.Files)) {
		volumes = append(volumes, object{"Name": name, "Type": configFileVolume, configFiles: files(change.Files[name], false)})
	}
	o["Volume"] = volumes
	p := params{}
	p.set("", o)
	defer b.groups.expire(u.ID)
	return b.client.call(ctx, podgroup.ActionUpdate, "UpdateContainerGroup", p, eci.CreateUpdateContainerGroupResponse())
}

// otherImages returns the containers whose image is not that of the unit.
func otherImages(u *podgroup.Unit, containers []corev1.Container) (list []object) {
	for i := range containers {
		c := &containers[i]
		if found := u.Container(c.Name); found == nil || found.Image != c.Image {
			list = append(list, object{"Name": c.Name, "Image": c.Image})
		}
	}
	return list
}
