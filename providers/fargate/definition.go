package fargate

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	imagereference "github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// The annotations of a pod: the role that its containers have, and the capacity provider, with
// which it is placed instead of the node's.
const (
	annotationRole     = "iam.amazonaws.com/role"
	annotationCapacity = "ecs.amazonaws.com/capacity-provider"
)

// Limits of ECS: seconds between a signal and the end of a container, and characters of
// overrides, in JSON.
const (
	minStopTimeout, maxStopTimeout = 2, 120
	maxOverrides                   = 8000
)

// restartPeriod is for how many seconds a container has to have run to be started again: the
// least that ECS takes.
const restartPeriod = 60

// plan is what a pod is in ECS. Pods that differ in nothing but what overrides hold share a
// definition.
type plan struct {
	definition *ecs.RegisterTaskDefinitionInput
	overrides  types.TaskOverride
	role       string
	secrets    secrets
	login      string // the registry whose login is among the secrets
}

// plan translates the request for a pod. The family of its definition is made of all that the
// definition says, and of the secrets.
func (b *backend) plan(ctx context.Context, r *podgroup.Request) (*plan, error) {
	d := &ecs.RegisterTaskDefinitionInput{
		NetworkMode: types.NetworkModeAwsvpc, RequiresCompatibilities: []types.Compatibility{types.CompatibilityFargate},
		Cpu: new(strconv.FormatInt(r.Size.CPU.MilliValue()*1024/1000, 10)), Memory: new(strconv.FormatInt(r.Size.Memory.Value()>>20, 10)),
		RuntimePlatform: &types.RuntimePlatform{CpuArchitecture: types.CPUArchitecture(b.cfg.CPUArchitecture), OperatingSystemFamily: types.OSFamilyLinux},
		Tags:            tags(b.cfg.Tags),
	}
	p := &plan{definition: d, role: b.cfg.TaskRoleArn}
	if role := r.Pod.Annotations[annotationRole]; role != "" {
		p.role = role
	}
	if p.role != "" {
		d.TaskRoleArn = &p.role
	}
	if b.cfg.ExecutionRoleArn != "" {
		d.ExecutionRoleArn = &b.cfg.ExecutionRoleArn
	}
	storage, err := ephemeralStorage(r)
	if err != nil {
		return nil, err
	}
	d.EphemeralStorage = storage
	if d.Volumes, err = volumes(r); err != nil {
		return nil, err
	}
	if err := errors.Join(b.checkCommands(r.Pod), b.addLogins(r, p)); err != nil {
		return nil, err
	}
	before, err := b.addFiles(r, p) // what has to have completed, or started
	if err != nil {
		return nil, err
	}
	for i := range r.Pod.Spec.InitContainers {
		c := &r.Pod.Spec.InitContainers[i]
		definition, override := b.container(r, p, c)
		definition.Essential, definition.DependsOn = new(false), slices.Clone(before)
		condition := types.ContainerConditionSuccess
		if podspec.IsSidecar(c) {
			condition = types.ContainerConditionStart
			definition.RestartPolicy = restartPolicy(corev1.RestartPolicyAlways)
			if definition.HealthCheck != nil {
				condition = types.ContainerConditionHealthy
			}
		}
		before = append(before, types.ContainerDependency{ContainerName: definition.Name, Condition: condition})
		p.add(definition, override)
	}
	for i := range r.Pod.Spec.Containers {
		c := &r.Pod.Spec.Containers[i]
		definition, override := b.container(r, p, c)
		definition.Essential, definition.DependsOn, definition.RestartPolicy = new(true), before, restartPolicy(r.Pod.Spec.RestartPolicy)
		p.add(definition, override)
	}
	if err := p.limitOverrides(); err != nil {
		return nil, err
	}
	hidden, err := p.secrets.texts()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal([]any{d, hidden})
	if err != nil {
		return nil, err
	}
	prefix, sum := b.familyPrefix(r.Tags), shortHash(string(text))
	if len(hidden) > 0 { // who sees the name could find out values by trying them
		key, err := b.key(ctx, prefix)
		if err != nil {
			return nil, err
		}
		mac := hmac.New(sha256.New, key)
		mac.Write(text)
		sum = hex.EncodeToString(mac.Sum(nil)[:12])
	}
	d.Family = new(prefix + sum)
	return p, nil
}

func (p *plan) add(d types.ContainerDefinition, o *types.ContainerOverride) {
	p.definition.ContainerDefinitions = append(p.definition.ContainerDefinitions, d)
	if o != nil {
		p.overrides.ContainerOverrides = append(p.overrides.ContainerOverrides, *o)
	}
}

// limitOverrides moves overrides that are too large into the definition, which is then the
// pod's alone.
func (p *plan) limitOverrides() error {
	text, err := json.Marshal(p.overrides.ContainerOverrides)
	if err != nil || len(text) <= maxOverrides {
		return err
	}
	for _, o := range p.overrides.ContainerOverrides {
		i := slices.IndexFunc(p.definition.ContainerDefinitions, func(d types.ContainerDefinition) bool { return *d.Name == *o.Name })
		p.definition.ContainerDefinitions[i].Environment = append(p.definition.ContainerDefinitions[i].Environment, o.Environment...)
	}
	p.overrides.ContainerOverrides = nil
	return nil
}

// familyPrefix returns what begins the families of the definitions of this node. They are no
// other's, so that the node may delete them.
func (b *backend) familyPrefix(identity map[string]string) string {
	node := identity[podgroup.TagNodeName]
	return nodePrefix(node) + shortHash(b.cfg.ClusterName + "/" + identity[podgroup.TagClusterUID] + "/" + node)[:8] + "-"
}

// nodePrefix returns the readable part of a family prefix. Nodes with similar names may share it.
func nodePrefix(node string) string {
	readable := strings.ReplaceAll(node, ".", "-")
	return "vk-" + readable[:min(len(readable), 100)] + "-"
}

func shortHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:12])
}

func restartPolicy(of corev1.RestartPolicy) *types.ContainerRestartPolicy {
	p := &types.ContainerRestartPolicy{Enabled: new(true), RestartAttemptPeriod: new(int32(restartPeriod))}
	switch of {
	case corev1.RestartPolicyNever:
		return nil
	case corev1.RestartPolicyOnFailure:
		p.IgnoredExitCodes = []int32{0}
	}
	return p
}

// variableKinds returns functions that report whether a variable of a container is about this pod
// alone, such as its name, and whether it is secret. The first are not in the definition, which
// other pods then share.
func (b *backend) variableKinds(pod *corev1.Pod, container string) (own, secret func(name string) bool) {
	original := b.original(pod)
	var names []string
	if original != nil {
		for _, c := range slices.Concat(original.Spec.InitContainers, original.Spec.Containers) {
			for _, v := range c.Env {
				if c.Name == container && v.ValueFrom != nil && v.ValueFrom.FieldRef != nil {
					names = append(names, v.Name)
				}
			}
		}
	}
	own = func(name string) bool { return slices.Contains(names, name) }
	if !b.cfg.SecretsManager {
		return own, func(string) bool { return false }
	}
	return own, isSecret(original, container)
}

// original returns a pod as it is in the API, with references in place of values, or nil.
func (b *backend) original(pod *corev1.Pod) *corev1.Pod {
	if b.pods == nil {
		return nil
	}
	if known, err := b.pods.Pods(pod.Namespace).Get(pod.Name); err == nil && known.UID == pod.UID {
		return known
	}
	return nil
}

// container translates what containers and init containers share.
func (b *backend) container(r *podgroup.Request, p *plan, c *corev1.Container) (d types.ContainerDefinition, o *types.ContainerOverride) {
	d = types.ContainerDefinition{Name: &c.Name, Image: &c.Image, EntryPoint: c.Command, Command: c.Args, HealthCheck: healthCheck(c)}
	if c.WorkingDir != "" {
		d.WorkingDirectory = &c.WorkingDir
	}
	own, secret := b.variableKinds(r.Pod, c.Name)
	for _, v := range c.Env {
		pair := types.KeyValuePair{Name: new(v.Name), Value: new(v.Value)}
		switch {
		case secret(v.Name) && v.Value != "":
			d.Secrets = append(d.Secrets, types.Secret{Name: pair.Name, ValueFrom: p.secrets.add(v.Value)})
		case own(v.Name):
			if o == nil {
				o = &types.ContainerOverride{Name: &c.Name}
			}
			o.Environment = append(o.Environment, pair)
		default:
			d.Environment = append(d.Environment, pair)
		}
	}
	for _, port := range c.Ports {
		protocol := types.TransportProtocolTcp
		if port.Protocol == corev1.ProtocolUDP {
			protocol = types.TransportProtocolUdp
		}
		d.PortMappings = append(d.PortMappings, types.PortMapping{ContainerPort: new(port.ContainerPort), Protocol: protocol})
	}
	for _, m := range c.VolumeMounts {
		has := func(v corev1.Volume) bool { return v.Name == m.Name && isMounted(r, &v) } // others are ignored
		if i := slices.IndexFunc(r.Pod.Spec.Volumes, has); i >= 0 {
			d.MountPoints = append(d.MountPoints, types.MountPoint{SourceVolume: new(m.Name), ContainerPath: new(m.MountPath), ReadOnly: new(m.ReadOnly || isReadOnly(r, &r.Pod.Spec.Volumes[i]))})
		}
	}
	if podspec.IsSidecar(c) || slices.ContainsFunc(r.Pod.Spec.Containers, func(main corev1.Container) bool { return main.Name == c.Name }) {
		if mib := c.Resources.Limits.Memory().Value() >> 20; mib >= 6 {
			d.Memory = new(int32(min(mib, r.Size.Memory.Value()>>20))) // #nosec G115 -- what Fargate sells at most
		}
		d.Cpu = int32(c.Resources.Requests.Cpu().MilliValue() * 1024 / 1000) // #nosec G115 -- as above; limits may be more than the task has
	}
	b.secure(&d, r.Pod, c)
	d.StopTimeout = new(int32(min(max(int64(podspec.GracePeriod(r.Pod, nil).Seconds()), minStopTimeout), maxStopTimeout))) // #nosec G115 -- limited
	d.LogConfiguration = b.logs()
	if name, err := imagereference.ParseNormalizedNamed(c.Image); err == nil {
		registry := imagereference.Domain(name)
		if arn := b.cfg.RegistryCredentials[registry]; arn != "" {
			d.RepositoryCredentials = &types.RepositoryCredentials{CredentialsParameter: &arn}
		} else if registry == p.login {
			d.RepositoryCredentials = &types.RepositoryCredentials{CredentialsParameter: new(loginSecret)}
		}
	}
	return d, o
}

// logs returns where the log of a container is written; nil is nowhere.
func (b *backend) logs() *types.LogConfiguration {
	if b.cfg.CloudWatchLogGroupName == "" {
		return nil
	}
	return &types.LogConfiguration{LogDriver: types.LogDriverAwslogs, Options: map[string]string{
		"awslogs-group": b.cfg.CloudWatchLogGroupName, "awslogs-region": b.cfg.Region, "awslogs-stream-prefix": streamPrefix,
	}}
}

// addLogins keeps the pod's own login of a registry, where that is allowed.
func (b *backend) addLogins(r *podgroup.Request, p *plan) error {
	for _, login := range r.Logins {
		switch {
		case b.cfg.RegistryCredentials[login.Registry] != "": // it goes before
		case !b.cfg.SecretsManager:
			return errdefs.AsPermanent(fmt.Errorf("the credentials of %s have to be in Secrets Manager: set secretsManager or registryCredentials, or leave out the pull secret", login.Registry))
		case p.login != "":
			return errdefs.AsPermanent(fmt.Errorf("pull secrets of two registries, %s and %s: set registryCredentials for one", p.login, login.Registry))
		default:
			p.login = login.Registry
			if err := p.secrets.addLogin(login); err != nil {
				return err
			}
		}
	}
	return nil
}

// secure sets what security contexts ask for.
func (b *backend) secure(d *types.ContainerDefinition, pod *corev1.Pod, c *corev1.Container) {
	s := podspec.SecurityContext(pod, c)
	d.ReadonlyRootFilesystem = s.ReadOnlyRootFilesystem
	if caps := s.Capabilities; caps != nil {
		d.LinuxParameters = &types.LinuxParameters{Capabilities: &types.KernelCapabilities{Add: capabilities(caps.Add), Drop: capabilities(caps.Drop)}}
	}
	switch user, group := s.RunAsUser, s.RunAsGroup; {
	case user != nil && group != nil:
		d.User = new(fmt.Sprintf("%d:%d", *user, *group))
	case user != nil:
		d.User = new(strconv.FormatInt(*user, 10))
	}
}

func capabilities(list []corev1.Capability) (names []string) {
	for _, c := range list {
		names = append(names, strings.TrimPrefix(string(c), "CAP_"))
	}
	return names
}

// probeOf returns the probe that is the health check of a container, or nil.
func probeOf(c *corev1.Container) *corev1.Probe {
	if c.LivenessProbe != nil {
		return c.LivenessProbe
	}
	return c.ReadinessProbe
}

// healthCheck translates the probe of a container, within the limits of ECS.
func healthCheck(c *corev1.Container) *types.HealthCheck {
	p := probeOf(c)
	if p == nil || p.Exec == nil {
		return nil
	}
	within := func(value, low, high int32) *int32 { return new(min(max(value, low), high)) }
	return &types.HealthCheck{
		Command: append([]string{"CMD"}, p.Exec.Command...), Interval: within(p.PeriodSeconds, 5, 300), Timeout: within(p.TimeoutSeconds, 2, 60),
		Retries: within(p.FailureThreshold, 1, 10), StartPeriod: within(p.InitialDelaySeconds, 0, 300),
	}
}

// minStorage and maxStorage are the GiB of storage that can be bought; without, a task has 20.
const freeStorage, minStorage, maxStorage = 20, 21, 200

func ephemeralStorage(r *podgroup.Request) (*types.EphemeralStorage, error) {
	need := r.Size.Other[corev1.ResourceEphemeralStorage]
	gib := (need.Value() + 1<<30 - 1) >> 30
	switch {
	case gib <= freeStorage:
		return nil, nil
	case gib > maxStorage:
		return nil, errdefs.AsPermanent(fmt.Errorf("%s of ephemeral storage: tasks have %d GiB at most", need.String(), maxStorage))
	}
	return &types.EphemeralStorage{SizeInGiB: int32(max(gib, minStorage))}, nil // #nosec G115 -- limited
}

func tags(list map[string]string) (sorted []types.Tag) {
	for _, key := range slices.Sorted(maps.Keys(list)) {
		sorted = append(sorted, types.Tag{Key: new(key), Value: new(list[key])})
	}
	return sorted
}

// sizes are those of Fargate: CPUs, and the memory that is sold with them.
func sizes() podgroup.Sizes {
	steps := func(from, to, step int) (list []string) {
		for gib := from; gib <= to; gib += step {
			list = append(list, strconv.Itoa(gib)+"Gi")
		}
		return list
	}
	return podgroup.Sizes{
		{CPU: "250m", Memory: []string{"512Mi", "1Gi", "2Gi"}}, {CPU: "500m", Memory: steps(1, 4, 1)}, {CPU: "1", Memory: steps(2, 8, 1)},
		{CPU: "2", Memory: steps(4, 16, 1)}, {CPU: "4", Memory: steps(8, 30, 1)}, {CPU: "8", Memory: steps(16, 60, 4)}, {CPU: "16", Memory: steps(32, 120, 8)},
	}
}
