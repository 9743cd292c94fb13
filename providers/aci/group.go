package aci

import (
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"

	aci "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerinstance/armcontainerinstance/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// The annotations of pods. The provider that this one replaces has those of SKU, policy, GPU,
// zones and DNS, too.
const (
	annotationSKU      = "virtual-kubelet.io/container-sku"
	annotationPolicy   = "virtual-kubelet.io/confidential-compute-cce-policy"
	annotationPriority = "virtual-kubelet.io/priority"
	annotationGPU      = "virtual-kubelet.io/gpu-type"
	annotationZones    = "virtual-kubelet.io/container-zones"
	annotationDNSLabel = "virtualkubelet.io/dnsnamelabel"
)

const gpuResource corev1.ResourceName = "nvidia.com/gpu"

// What Azure gives a container that requests nothing.
const (
	defaultCPUs      = 1.0
	defaultGigabytes = 1.5
)

// group translates the request for a pod.
func (b *backend) group(ctx context.Context, r *podgroup.Request) (*aci.ContainerGroup, error) {
	p := &aci.ContainerGroupPropertiesProperties{
		OSType: new(aci.OperatingSystemTypes(b.cfg.OperatingSystem)), RestartPolicy: new(aci.ContainerGroupRestartPolicy(r.Pod.Spec.RestartPolicy)),
	}
	g := &aci.ContainerGroup{Location: &b.cfg.Region, Tags: pointers(r.Tags), Properties: p}
	notes := r.Pod.Annotations
	volumes := map[string]string{} // the names in the group
	for i := range r.Pod.Spec.Volumes {
		source := &r.Pod.Spec.Volumes[i]
		if b.cfg.OperatingSystem == "Windows" {
			continue // it is the token's, which is ignored
		}
		v, err := b.volume(ctx, r, source)
		if err != nil {
			return nil, fmt.Errorf("volume %s: %w", source.Name, err)
		}
		volumes[source.Name] = fmt.Sprintf("volume-%d", i) // names in pods may be too short
		v.Name = new(volumes[source.Name])
		p.Volumes = append(p.Volumes, v)
	}
	for i := range r.Pod.Spec.InitContainers {
		c := &r.Pod.Spec.InitContainers[i]
		p.InitContainers = append(p.InitContainers, &aci.InitContainerDefinition{Name: &c.Name, Properties: &aci.InitContainerPropertiesDefinition{
			Image: &c.Image, Command: command(c), EnvironmentVariables: b.environment(c), VolumeMounts: mounts(c, volumes), SecurityContext: security(r.Pod, c),
		}})
	}
	var ports []*aci.Port
	sizes, _ := resourcesOf(r.Pod)
	for i := range r.Pod.Spec.Containers {
		c := &r.Pod.Spec.Containers[i]
		one := &aci.ContainerProperties{
			Image: &c.Image, Command: command(c), EnvironmentVariables: b.environment(c), VolumeMounts: mounts(c, volumes), SecurityContext: security(r.Pod, c),
			Resources: sizes[i], LivenessProbe: probe(c, c.LivenessProbe), ReadinessProbe: probe(c, c.ReadinessProbe),
		}
		for _, port := range c.Ports {
			protocol := string(port.Protocol)
			if protocol == "" {
				protocol = string(corev1.ProtocolTCP)
			}
			one.Ports = append(one.Ports, &aci.ContainerPort{Port: &port.ContainerPort, Protocol: new(aci.ContainerNetworkProtocol(protocol))})
			if !slices.ContainsFunc(ports, func(p *aci.Port) bool { return *p.Port == port.ContainerPort && string(*p.Protocol) == protocol }) {
				ports = append(ports, &aci.Port{Port: &port.ContainerPort, Protocol: new(aci.ContainerGroupNetworkProtocol(protocol))})
			}
		}
		p.Containers = append(p.Containers, &aci.Container{Name: &c.Name, Properties: one})
	}
	for _, login := range r.Logins {
		if login.Registry == "docker.io" { // as Azure knows it
			login.Registry = "index.docker.io"
		}
		p.ImageRegistryCredentials = append(p.ImageRegistryCredentials, &aci.ImageRegistryCredential{Server: &login.Registry, Username: &login.Username, Password: &login.Password})
	}
	b.images(r, p)
	if priorityOf(r.Pod, b.cfg.Priority) == string(aci.ContainerGroupPrioritySpot) {
		ports = nil // spot groups have neither a subnet nor an address
	} else if b.cfg.SubnetName != "" {
		id := fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Network/virtualNetworks/%s/subnets/%s", b.cfg.VNetSubscriptionID, b.cfg.VNetResourceGroup, b.cfg.VNetName, b.cfg.SubnetName)
		p.SubnetIDs = []*aci.ContainerGroupSubnetID{{ID: &id}}
		if dns := r.DNS; len(dns.Nameservers) > 0 && b.cfg.OperatingSystem == "Linux" {
			p.DNSConfig = &aci.DNSConfiguration{NameServers: addresses(dns.Nameservers), SearchDomains: new(strings.Join(dns.Searches, " ")), Options: new(strings.Join(dns.Options, " "))}
		}
	}
	if len(ports) > 0 && p.SubnetIDs == nil {
		p.IPAddress = &aci.IPAddress{Type: new(aci.ContainerGroupIPAddressTypePublic), Ports: ports}
		if label := notes[annotationDNSLabel]; label != "" {
			p.IPAddress.DNSNameLabel = &label
		}
	}
	if id := b.cfg.LogAnalyticsID; id != "" {
		p.Diagnostics = &aci.ContainerGroupDiagnostics{LogAnalytics: &aci.LogAnalytics{WorkspaceID: &id, WorkspaceKey: new(b.cfg.LogAnalyticsKey.Reveal())}}
		if cluster := b.cfg.ClusterResourceID; cluster != "" { // the names are those of Container Insights
			p.Diagnostics.LogAnalytics.LogType = new(aci.LogAnalyticsLogTypeContainerInsights)
			p.Diagnostics.LogAnalytics.Metadata = map[string]*string{
				"cluster-resource-id": &cluster, "node-name": &r.Pod.Spec.NodeName, "pod-uuid": new(string(r.Pod.UID)),
			}
		}
	}
	if policy := notes[annotationPolicy]; policy != "" {
		p.ConfidentialComputeProperties = &aci.ConfidentialComputeProperties{CcePolicy: &policy}
		p.SKU = new(aci.ContainerGroupSKUConfidential)
	} else if strings.EqualFold(notes[annotationSKU], "confidential") {
		p.SKU = new(aci.ContainerGroupSKUConfidential)
	}
	if priority := priorityOf(r.Pod, b.cfg.Priority); priority != "" {
		p.Priority = new(aci.ContainerGroupPriority(priority))
	}
	for _, zone := range zonesOf(r.Pod, b.cfg.Zones) {
		g.Zones = append(g.Zones, &zone)
	}
	if len(b.cfg.Identities) > 0 || b.cfg.ImageIdentity != "" {
		g.Identity = &aci.ContainerGroupIdentity{Type: new(aci.ResourceIdentityTypeUserAssigned), UserAssignedIdentities: map[string]*aci.UserAssignedIdentities{}}
		for _, id := range append(slices.Clone(b.cfg.Identities), b.cfg.ImageIdentity) {
			if id != "" {
				g.Identity.UserAssignedIdentities[id] = &aci.UserAssignedIdentities{}
			}
		}
	}
	return g, nil
}

// images has the configured identity read images of Azure's registries for which the pod has
// no credentials.
func (b *backend) images(r *podgroup.Request, p *aci.ContainerGroupPropertiesProperties) {
	if b.cfg.ImageIdentity == "" {
		return
	}
	for _, c := range slices.Concat(r.Pod.Spec.InitContainers, r.Pod.Spec.Containers) {
		registry, _, _ := strings.Cut(c.Image, "/")
		known := func(known *aci.ImageRegistryCredential) bool { return *known.Server == registry }
		if strings.Contains(registry, ".azurecr.") && !slices.ContainsFunc(p.ImageRegistryCredentials, known) {
			p.ImageRegistryCredentials = append(p.ImageRegistryCredentials, &aci.ImageRegistryCredential{Server: &registry, Identity: &b.cfg.ImageIdentity})
		}
	}
}

// command returns command and arguments as one: Azure replaces the image's entry point by it.
func command(c *corev1.Container) []*string { return addresses(slices.Concat(c.Command, c.Args)) }

func addresses(texts []string) (all []*string) {
	for _, text := range texts {
		all = append(all, &text)
	}
	return all
}

// environment returns the variables as secure values, which Azure does not show again: they
// may come from Secrets.
func (b *backend) environment(c *corev1.Container) (all []*aci.EnvironmentVariable) {
	set := func(name, value string) {
		v := &aci.EnvironmentVariable{Name: &name, SecureValue: &value}
		if value == "" { // no secret, and no secure value either
			v.Value, v.SecureValue = &value, nil
		}
		all = append(all, v)
	}
	master, _ := url.Parse(b.cfg.MasterURI) // complete
	for _, v := range c.Env {
		if !variableRule.MatchString(v.Name) { // of a service with a long name: check has refused others
			continue
		}
		switch {
		case b.cfg.MasterURI != "" && v.Name == "KUBERNETES_SERVICE_HOST":
			v.Value = master.Hostname()
		case b.cfg.MasterURI != "" && (v.Name == "KUBERNETES_SERVICE_PORT" || v.Name == "KUBERNETES_SERVICE_PORT_HTTPS"):
			if v.Value = master.Port(); v.Value == "" {
				v.Value = "443"
			}
		}
		set(v.Name, v.Value)
	}
	return all
}

func mounts(c *corev1.Container, names map[string]string) (all []*aci.VolumeMount) {
	for _, m := range c.VolumeMounts {
		if name := names[m.Name]; name != "" { // else it is ignored
			all = append(all, &aci.VolumeMount{Name: &name, MountPath: new(m.MountPath), ReadOnly: new(m.ReadOnly)})
		}
	}
	return all
}

// security returns the security context of a container; nil if there is nothing to say.
func security(pod *corev1.Pod, c *corev1.Container) *aci.SecurityContextDefinition {
	s, found := &aci.SecurityContextDefinition{}, false
	id := func(n *int64) *int32 {
		if n == nil {
			return nil
		}
		found = true
		return new(int32(*n)) // #nosec G115 -- check has seen to it
	}
	own := podspec.SecurityContext(pod, c)
	s.RunAsUser, s.RunAsGroup = id(own.RunAsUser), id(own.RunAsGroup)
	s.Privileged, s.AllowPrivilegeEscalation = own.Privileged, own.AllowPrivilegeEscalation
	if caps := own.Capabilities; caps != nil {
		s.Capabilities = &aci.SecurityContextCapabilitiesDefinition{}
		for _, name := range caps.Add {
			s.Capabilities.Add = append(s.Capabilities.Add, new(string(name)))
		}
		for _, name := range caps.Drop {
			s.Capabilities.Drop = append(s.Capabilities.Drop, new(string(name)))
		}
	}
	if !found && s.Privileged == nil && s.AllowPrivilegeEscalation == nil && s.Capabilities == nil {
		return nil
	}
	return s
}

// resourcesOf returns what the containers of a pod get. Azure refuses a limit above what all
// containers request together, since the group has no more: such limits are lowered, and named.
func resourcesOf(pod *corev1.Pod) (all []*aci.ResourceRequirements, lowered []string) {
	var cpu, memory float64
	for i := range pod.Spec.Containers {
		one := resources(&pod.Spec.Containers[i], pod.Annotations[annotationGPU])
		all, cpu, memory = append(all, one), cpu+*one.Requests.CPU, memory+*one.Requests.MemoryInGB
	}
	cpu, memory = math.Round(cpu*100)/100, math.Round(memory*10)/10
	for i, one := range all {
		if one.Limits == nil {
			continue
		}
		for _, l := range []struct {
			what, unit string
			limit      *float64
			total      float64
		}{{"cpu", "", one.Limits.CPU, cpu}, {"memory", " GB", one.Limits.MemoryInGB, memory}} {
			if *l.limit > l.total {
				lowered = append(lowered, fmt.Sprintf("containers[%s].resources.limits.%s above the %g%s that the containers request together", pod.Spec.Containers[i].Name, l.what, l.total, l.unit))
				*l.limit = l.total
			}
		}
	}
	return all, lowered
}

// ignores returns what of a pod container groups have only in part.
func ignores(pod *corev1.Pod) []string {
	_, lowered := resourcesOf(pod)
	return lowered
}

// resources returns what a container gets, in the steps that Azure sells: hundredths of a CPU,
// tenths of a gigabyte.
func resources(c *corev1.Container, gpuType string) *aci.ResourceRequirements {
	cpu := func(q resource.Quantity) *float64 { return new(math.Ceil(float64(q.MilliValue())/10) / 100) }
	memory := func(q resource.Quantity) *float64 { return new(math.Ceil(float64(q.Value())/1e8) / 10) }
	all := &aci.ResourceRequirements{Requests: &aci.ResourceRequests{CPU: new(defaultCPUs), MemoryInGB: new(defaultGigabytes)}}
	limits := &aci.ResourceLimits{}
	if q, ok := c.Resources.Limits[corev1.ResourceCPU]; ok && !q.IsZero() {
		limits.CPU, all.Requests.CPU, all.Limits = cpu(q), cpu(q), limits
	}
	if q, ok := c.Resources.Limits[corev1.ResourceMemory]; ok && !q.IsZero() {
		limits.MemoryInGB, all.Requests.MemoryInGB, all.Limits = memory(q), memory(q), limits
	}
	if q, ok := c.Resources.Requests[corev1.ResourceCPU]; ok && !q.IsZero() {
		all.Requests.CPU = cpu(q)
	}
	if q, ok := c.Resources.Requests[corev1.ResourceMemory]; ok && !q.IsZero() {
		all.Requests.MemoryInGB = memory(q)
	}
	if all.Limits != nil && limits.CPU == nil {
		limits.CPU = all.Requests.CPU
	}
	if all.Limits != nil && limits.MemoryInGB == nil {
		limits.MemoryInGB = all.Requests.MemoryInGB
	}
	if q := podgroup.SizeOf(&c.Resources).Other[gpuResource]; !q.IsZero() {
		if gpuType == "" {
			gpuType = string(aci.GpuSKUV100)
		}
		all.Requests.Gpu = &aci.GpuResource{Count: new(int32(q.Value())), SKU: new(aci.GpuSKU(strings.ToUpper(gpuType)))} // #nosec G115 -- check has seen to it
		if all.Limits != nil {
			limits.Gpu = all.Requests.Gpu
		}
	}
	return all
}

// probe translates a probe with a command or an HTTP request; check has seen to the others.
func probe(c *corev1.Container, p *corev1.Probe) *aci.ContainerProbe {
	if p == nil {
		return nil
	}
	all := &aci.ContainerProbe{}
	for _, n := range []struct {
		from int32
		to   **int32
	}{{p.InitialDelaySeconds, &all.InitialDelaySeconds}, {p.PeriodSeconds, &all.PeriodSeconds}, {p.TimeoutSeconds, &all.TimeoutSeconds}, {p.FailureThreshold, &all.FailureThreshold}, {p.SuccessThreshold, &all.SuccessThreshold}} {
		if n.from != 0 {
			*n.to = &n.from
		}
	}
	if p.Exec != nil {
		all.Exec = &aci.ContainerExec{Command: addresses(p.Exec.Command)}
	}
	if get := p.HTTPGet; get != nil {
		scheme := aci.SchemeHTTP
		if get.Scheme == corev1.URISchemeHTTPS {
			scheme = aci.SchemeHTTPS
		}
		all.HTTPGet = &aci.ContainerHTTPGet{Port: new(podspec.PortNumber(c, get.Port)), Path: new(get.Path), Scheme: &scheme}
		for _, header := range get.HTTPHeaders {
			all.HTTPGet.HTTPHeaders = append(all.HTTPGet.HTTPHeaders, &aci.HTTPHeader{Name: &header.Name, Value: &header.Value})
		}
	}
	return all
}

// priorityOf and zonesOf return what a pod's annotations say, or else the configuration.
func priorityOf(pod *corev1.Pod, configured string) string {
	if text := pod.Annotations[annotationPriority]; text != "" {
		return text
	}
	return configured
}

func zonesOf(pod *corev1.Pod, configured []string) []string {
	if text := pod.Annotations[annotationZones]; text != "" {
		return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
	}
	return configured
}

// volume translates a volume. Contents of all kinds are Azure's secret volumes, whose files
// are in memory and not shown again.
func (b *backend) volume(ctx context.Context, r *podgroup.Request, v *corev1.Volume) (*aci.Volume, error) {
	switch {
	case v.EmptyDir != nil:
		return &aci.Volume{EmptyDir: map[string]any{}}, nil
	case v.GitRepo != nil:
		g := &aci.GitRepoVolume{Repository: &v.GitRepo.Repository}
		if v.GitRepo.Directory != "" {
			g.Directory = &v.GitRepo.Directory
		}
		if v.GitRepo.Revision != "" {
			g.Revision = &v.GitRepo.Revision
		}
		return &aci.Volume{GitRepo: g}, nil
	case v.AzureFile != nil:
		return b.share(ctx, v.AzureFile.ShareName, r.Pod.Namespace, v.AzureFile.SecretName, v.AzureFile.ReadOnly)
	case v.CSI != nil:
		return b.share(ctx, v.CSI.VolumeAttributes["shareName"], r.Pod.Namespace, v.CSI.VolumeAttributes["secretName"], valueOf(v.CSI.ReadOnly))
	case r.Claims[v.Name] != nil:
		return b.claimed(ctx, r, v)
	}
	files := r.Files[v.Name]
	if len(files) == 0 { // of an object that is optional
		return &aci.Volume{EmptyDir: map[string]any{}}, nil
	}
	return secretVolume(files)
}

// secretVolume returns a volume with files, which Azure has in one directory.
func secretVolume(files volume.Files) (*aci.Volume, error) {
	all := &aci.Volume{Secret: map[string]*string{}}
	for path, file := range files {
		if strings.Contains(path, "/") {
			return nil, errdefs.AsPermanent(fmt.Errorf("file %s is in a directory, and volumes of Azure Container Instances have none", path))
		}
		all.Secret[path] = new(base64.StdEncoding.EncodeToString(file.Data))
	}
	return all, nil
}

// claimed returns the volume of a claim.
func (b *backend) claimed(ctx context.Context, r *podgroup.Request, v *corev1.Volume) (*aci.Volume, error) {
	found := r.Claims[v.Name]
	readOnly := v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly
	switch s := &found.Spec; {
	case s.AzureFile != nil:
		return b.share(ctx, s.AzureFile.ShareName, orElse(valueOf(s.AzureFile.SecretNamespace), r.Pod.Namespace), s.AzureFile.SecretName, readOnly || s.AzureFile.ReadOnly)
	case s.CSI != nil && s.CSI.Driver == fileDriver && s.CSI.NodeStageSecretRef != nil:
		share := s.CSI.VolumeAttributes["shareName"]
		if parts := strings.Split(s.CSI.VolumeHandle, "#"); share == "" && len(parts) > 2 { // group#account#share#…
			share = parts[2]
		}
		return b.share(ctx, share, orElse(s.CSI.NodeStageSecretRef.Namespace, r.Pod.Namespace), s.CSI.NodeStageSecretRef.Name, readOnly || s.CSI.ReadOnly)
	}
	return nil, errdefs.AsPermanent(fmt.Errorf("PersistentVolume %s is no share of Azure Files with a secret", found.Name))
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// fileDriver is the CSI driver of Azure Files.
const fileDriver = "file.csi.azure.com"

// share returns a volume of Azure Files, whose key a Secret has.
func (b *backend) share(ctx context.Context, share, namespace, secretName string, readOnly bool) (*aci.Volume, error) {
	if share == "" || secretName == "" {
		return nil, errdefs.AsPermanent(fmt.Errorf("the name of the share, or that of the secret with the key of its account, is missing"))
	}
	secret, err := b.objects.Secret(ctx, namespace, secretName)
	if err != nil {
		return nil, errdefs.AsUnavailable(fmt.Errorf("secret %s/%s with the key of the storage account: %w", namespace, secretName, err))
	}
	account, key := string(secret.Data["azurestorageaccountname"]), string(secret.Data["azurestorageaccountkey"])
	if account == "" || key == "" {
		return nil, errdefs.AsUnavailable(fmt.Errorf("secret %s/%s lacks azurestorageaccountname or azurestorageaccountkey", namespace, secretName))
	}
	return &aci.Volume{AzureFile: &aci.AzureFileVolume{ShareName: &share, StorageAccountName: &account, StorageAccountKey: &key, ReadOnly: &readOnly}}, nil
}
