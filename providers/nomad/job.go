package nomad

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// AnnotationDatacenters names the datacenters in which a pod may run, separated by commas.
const AnnotationDatacenters = "nomad.hashicorp.com/datacenters"

// groupName is the name of the group of each job.
const groupName = "pod"

// resourceGPU is Kubernetes' name of what Nomad calls nvidia/gpu.
const resourceGPU corev1.ResourceName = "nvidia.com/gpu"

// The keys in a job's meta beside those of the identity.
const (
	// metaDollar has a dollar sign: see literalEnv.
	metaDollar = "VK_DOLLAR"
	// metaFiles names the containers that have a variable.
	metaFiles = "VK_FILES"
	// metaOnce names the containers that are to run once.
	metaOnce = "VK_ONCE"
)

// job translates a pod. Everything that Nomad would interpolate is escaped.
func (b *backend) job(r *podgroup.Request) (*api.Job, error) {
	pod := r.Pod
	meta := maps.Clone(r.Tags)
	if meta == nil {
		meta = map[string]string{}
	}
	meta[metaDollar] = "$"
	job := &api.Job{
		ID: new(b.cfg.JobPrefix + r.Name), Name: new(pod.Namespace + "/" + pod.Name), Type: new(api.JobTypeBatch),
		Region: pointer(b.cfg.Region), Namespace: new(b.cfg.Namespace), Datacenters: b.datacenters(pod), NodePool: new(b.cfg.NodePool), Meta: meta,
	}
	group := &api.TaskGroup{
		Name: new(groupName), Count: new(1), RestartPolicy: restartPolicy(pod.Spec.RestartPolicy),
		ReschedulePolicy: &api.ReschedulePolicy{Attempts: new(0), Unlimited: new(false)}, // a pod does not move
		Networks:         []*api.NetworkResource{b.network(r)},
	}
	if pod.Spec.RestartPolicy == corev1.RestartPolicyAlways {
		job.Type = new(api.JobTypeService)
		job.Update = &api.UpdateStrategy{MaxParallel: new(0)} // no deployments
	}
	var withFiles, once []string
	for kind, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			task, err := b.task(r, *job.ID, c)
			if err != nil {
				return nil, err
			}
			if isInit := kind == 0; isInit {
				task.Lifecycle = &api.TaskLifecycle{Hook: api.TaskLifecycleHookPrestart, Sidecar: podspec.IsSidecar(c)}
			}
			if podspec.IsSidecar(c) {
				task.RestartPolicy = restartPolicy(corev1.RestartPolicyAlways)
			} else if pod.Spec.RestartPolicy == corev1.RestartPolicyNever {
				once = append(once, c.Name)
			}
			if len(task.Templates) > 0 {
				withFiles = append(withFiles, c.Name)
			}
			if kind == 0 && i > 0 {
				task.Templates = append(task.Templates, turnTemplate(*job.ID, i))
			}
			group.Tasks = append(group.Tasks, task)
		}
	}
	if turns := turnsOf(pod); turns != "" {
		meta[metaTurns] = turns
	}
	if len(withFiles) > 0 {
		meta[metaFiles] = strings.Join(withFiles, ",")
	}
	if len(once) > 0 {
		meta[metaOnce] = strings.Join(once, ",")
	}
	job.TaskGroups = []*api.TaskGroup{group}
	return job, nil
}

func (b *backend) datacenters(pod *corev1.Pod) []string {
	named := strings.FieldsFunc(pod.Annotations[AnnotationDatacenters], func(r rune) bool { return r == ',' || r == ' ' })
	if len(named) > 0 {
		return named
	}
	return b.cfg.Datacenters
}

// restartPolicy returns how Nomad starts containers again. Its delay does not grow: after
// ten restarts in ten minutes it waits for the rest of them.
func restartPolicy(policy corev1.RestartPolicy) *api.RestartPolicy {
	if policy == corev1.RestartPolicyNever {
		return &api.RestartPolicy{Attempts: new(0), Mode: new("fail"), Interval: new(10 * time.Minute), Delay: new(10 * time.Second)}
	}
	return &api.RestartPolicy{Attempts: new(10), Mode: new("delay"), Interval: new(10 * time.Minute), Delay: new(10 * time.Second)}
}

func (b *backend) isHostNetwork(pod *corev1.Pod) bool {
	return pod.Spec.HostNetwork || b.cfg.Network == networkHost
}

// network returns the network of a pod, with its ports. In the network of the host each
// port is the host's.
func (b *backend) network(r *podgroup.Request) *api.NetworkResource {
	pod := r.Pod
	n := &api.NetworkResource{Mode: b.cfg.Network}
	if pod.Spec.HostNetwork {
		n.Mode = networkHost
	}
	if n.Mode == networkBridge {
		n.Hostname = podspec.Hostname(pod)
	}
	if d := r.DNS; n.Mode != networkHost && len(d.Nameservers)+len(d.Searches)+len(d.Options) > 0 {
		n.DNS = &api.DNSConfig{Servers: d.Nameservers, Searches: d.Searches, Options: d.Options}
	}
	seen := map[string]bool{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, p := range c.Ports {
			port := api.Port{Label: "p" + strconv.Itoa(int(p.ContainerPort)), Value: int(p.HostPort), To: int(p.ContainerPort)}
			if n.Mode == networkHost {
				port.Value, port.To = int(p.ContainerPort), 0
			}
			if seen[port.Label] {
				continue // TCP and UDP are one port of Nomad
			}
			seen[port.Label] = true
			if port.Value != 0 {
				n.ReservedPorts = append(n.ReservedPorts, port)
			} else {
				n.DynamicPorts = append(n.DynamicPorts, port)
			}
		}
	}
	return n
}

// task translates a container.
func (b *backend) task(r *podgroup.Request, jobID string, c *corev1.Container) (*api.Task, error) {
	t := &api.Task{
		Name: c.Name, Driver: b.cfg.Driver, User: user(r.Pod, c), Env: map[string]string{}, Resources: b.resources(c),
		LogConfig: &api.LogConfig{MaxFiles: new(5), MaxFileSizeMB: new(10)},
	}
	if grace := r.Pod.Spec.TerminationGracePeriodSeconds; grace != nil {
		t.KillTimeout = new(time.Duration(max(1, *grace)) * time.Second)
	}
	for _, v := range c.Env {
		if v.ValueFrom != nil && v.ValueFrom.FieldRef != nil {
			t.Env[v.Name] = b.fieldValue(r.Pod, v.ValueFrom.FieldRef.FieldPath)
			continue
		}
		t.Env[v.Name] = literalEnv(v.Value)
	}
	mounts, templates, err := files(r, jobID, c)
	if err != nil {
		return nil, err
	}
	t.Templates = templates
	t.Config = literal(b.driverConfig(r, c, mounts)).(map[string]any)
	return t, nil
}

// driverConfig returns what the driver has to know of a container.
func (b *backend) driverConfig(r *podgroup.Request, c *corev1.Container, mounts []string) map[string]any {
	config := map[string]any{"image": c.Image}
	set := func(key string, value any, ok bool) {
		if ok {
			config[key] = value
		}
	}
	workDir := "work_dir"
	if b.cfg.Driver == driverPodman {
		workDir = "working_dir"
	}
	set("entrypoint", c.Command, len(c.Command) > 0)
	set("args", c.Args, len(c.Args) > 0)
	set(workDir, c.WorkingDir, c.WorkingDir != "")
	set("volumes", mounts, len(mounts) > 0)
	set("network_mode", networkHost, b.isHostNetwork(r.Pod)) // else it is the driver's own
	set("force_pull", true, c.ImagePullPolicy == corev1.PullAlways)
	if s := c.SecurityContext; s != nil {
		set("privileged", true, value(s.Privileged))
		set("readonly_rootfs", true, value(s.ReadOnlyRootFilesystem))
		if s.Capabilities != nil {
			set("cap_add", capabilities(s.Capabilities.Add), len(s.Capabilities.Add) > 0)
			set("cap_drop", capabilities(s.Capabilities.Drop), len(s.Capabilities.Drop) > 0)
		}
	}
	for _, login := range r.Logins {
		if registryOf(c.Image) == login.Registry {
			auth := map[string]any{"username": login.Username, "password": login.Password}
			if b.cfg.Driver == driverDocker {
				auth["server_address"] = login.Registry
			}
			config["auth"] = []map[string]any{auth}
		}
	}
	return config
}

func capabilities(list []corev1.Capability) (names []string) {
	for _, c := range list {
		names = append(names, strings.ToLower(string(c)))
	}
	return names
}

// user returns the user of a container, as drivers write it.
func user(pod *corev1.Pod, c *corev1.Container) string {
	sc := podspec.SecurityContext(pod, c)
	switch uid, gid := sc.RunAsUser, sc.RunAsGroup; {
	case uid == nil && gid == nil:
		return ""
	case gid == nil:
		return strconv.FormatInt(*uid, 10)
	default:
		return fmt.Sprintf("%d:%d", value(uid), *gid)
	}
}

// resources returns what a container reserves. What is not given is Nomad's default.
func (b *backend) resources(c *corev1.Container) *api.Resources {
	found := &api.Resources{}
	size := podgroup.SizeOf(&c.Resources)
	request := func(name corev1.ResourceName, otherwise resource.Quantity) resource.Quantity {
		if q, ok := c.Resources.Requests[name]; ok {
			return q
		}
		return otherwise
	}
	if cpu := request(corev1.ResourceCPU, size.CPU); cpu.Sign() > 0 {
		found.CPU = new(int(max(1, roundUp(cpu.MilliValue()*int64(b.cfg.MHzPerCPU), 1000))))
	}
	memory := size.Memory
	if limit, ok := c.Resources.Limits[corev1.ResourceMemory]; ok && b.cfg.MemoryOversubscription {
		memory = request(corev1.ResourceMemory, size.Memory)
		if memory.Cmp(limit) < 0 {
			found.MemoryMaxMB = new(megabytes(limit))
		}
	}
	if memory.Sign() > 0 {
		found.MemoryMB = new(megabytes(memory))
	}
	if gpus := size.Other[resourceGPU]; gpus.Value() > 0 {
		found.Devices = []*api.RequestedDevice{{Name: "nvidia/gpu", Count: new(uint64(gpus.Value()))}}
	}
	return found
}

// megabytes returns a size in Nomad's unit, of which ten are the least.
func megabytes(q resource.Quantity) int { return int(max(10, roundUp(q.Value(), 1<<20))) }

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit }

// fieldValue returns what Nomad replaces by an address that the pod asks for; empty if it
// has none.
func (b *backend) fieldValue(pod *corev1.Pod, path string) string {
	const hostIP = "${attr.unique.network.ip-address}"
	switch path {
	case "status.hostIP", "status.hostIPs":
		return hostIP
	case "status.podIP", "status.podIPs":
		if b.isHostNetwork(pod) {
			return hostIP
		}
	}
	return ""
}

// literalEnv returns the value of a variable so that Nomad leaves it as it is: it replaces
// ${NAME} once, for which there is no escape, but a dollar sign in the job's meta.
func literalEnv(text string) string {
	return strings.ReplaceAll(text, "${", "${NOMAD_META_"+metaDollar+"}{")
}

var literalConfig = strings.NewReplacer("${", "$${", "%{", "%%{")

// literal returns the configuration of a driver so that Nomad leaves it as it is: its texts
// are templates of HCL.
func literal(config any) any {
	switch config := config.(type) {
	case string:
		return literalConfig.Replace(config)
	case []string:
		texts := make([]string, len(config))
		for i, text := range config {
			texts[i] = literalConfig.Replace(text)
		}
		return texts
	case []map[string]any:
		list := make([]map[string]any, len(config))
		for i, object := range config {
			list[i] = literal(object).(map[string]any)
		}
		return list
	case map[string]any:
		object := map[string]any{}
		for key, value := range config {
			object[key] = literal(value)
		}
		return object
	}
	return config
}

// pointer returns nil for an empty text: the agent's default.
func pointer(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
