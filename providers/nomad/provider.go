package nomad

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// backend is Nomad as a backend of package podgroup.
type backend struct {
	cfg       Config // complete
	node      string
	api       *api.Client
	transport *http.Transport

	mu      sync.Mutex
	records map[string]*record // the jobs, by ID, as of the last list and the events since
	states  map[string]*state
	again   map[string]map[string]string // the meta of jobs for which something has failed, until the next heartbeat

	sweep sweep // of Watch alone
}

var (
	_ podgroup.Backend        = (*backend)(nil)
	_ podgroup.Watcher        = (*backend)(nil)
	_ podgroup.EmptyConfirmer = (*backend)(nil)
	_ podgroup.Updater        = (*backend)(nil)
	_ podgroup.LogStreamer    = (*backend)(nil)
	_ podgroup.Execer         = (*backend)(nil)
	_ podgroup.Meter          = (*backend)(nil)
	_ podgroup.Reporter       = (*backend)(nil)
)

// Sample returns a provider for nodeutil.Capabilities, and for nothing else.
func Sample() nodeutil.Provider { return podgroup.Sample(&backend{}) }

// New returns the provider of a node, and sets the node's spec and status. It makes no
// call. The provider is a node.PodNotifier, and an io.Closer: closing it leaves the jobs as
// they are. An error is of class InvalidInput.
func New(init nodeutil.ProviderConfig, cfg Config) (nodeutil.Provider, node.NodeProvider, error) {
	b, err := newBackend(cfg)
	if err != nil {
		return nil, nil, err
	}
	b.node = init.Node.Name
	return podgroup.New(init, b, b.options())
}

func newBackend(cfg Config) (*backend, error) {
	if err := cfg.Complete(); err != nil {
		return nil, err
	}
	client, transport, err := newClient(&cfg)
	if err != nil {
		return nil, err
	}
	return &backend{cfg: cfg, api: client, transport: transport, records: map[string]*record{}, states: map[string]*state{}, again: map[string]map[string]string{}, sweep: sweep{age: leftAfter}}, nil
}

// Close closes idle connections.
func (b *backend) Close() error {
	b.transport.CloseIdleConnections()
	return nil
}

// maxJobID leaves room for group and container in the path of a variable, which has 128
// characters at most.
const maxJobID = 48

// maxFiles is the size of all files of a pod: a variable has 64 KiB, in base64.
const maxFiles = 44 << 10

func (b *backend) options() podgroup.Options {
	capacity := corev1.ResourceList{corev1.ResourcePods: *b.cfg.Pods}
	if b.cfg.CPU != nil {
		capacity[corev1.ResourceCPU] = *b.cfg.CPU
	}
	if b.cfg.Memory != nil {
		capacity[corev1.ResourceMemory] = *b.cfg.Memory
	}
	return podgroup.Options{
		Service: "Nomad", Scheme: "nomad", Place: b.cfg.Address + " region " + cmp.Or(b.cfg.Region, "of the agent") + " namespace " + b.cfg.Namespace,
		Identity: podgroup.Identity{Cluster: b.cfg.ClusterName}, UsageBatch: 1,
		MaxName:  maxJobID - len(b.cfg.JobPrefix),
		Capacity: capacity,
		Features: podgroup.Features{
			Fields: fields, Ignored: ignored, FilesBytes: maxFiles, Check: b.check,
			Renew: []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever},
		},
	}
}

// fields are the fields of a pod's spec that jobs have.
var fields = []string{
	"restartPolicy", "hostNetwork", "hostname", "dnsConfig",
	"securityContext.runAsUser", "securityContext.runAsGroup",
	"initContainers", "initContainers.restartPolicy",
	"containers.ports.hostPort",
	"containers.securityContext.runAsUser", "containers.securityContext.runAsGroup", "containers.securityContext.privileged",
	"containers.securityContext.readOnlyRootFilesystem", "containers.securityContext.capabilities",
	"volumes.configMap", "volumes.secret", "volumes.downwardAPI", "volumes.projected", "volumes.emptyDir", "-volumes.emptyDir.medium",
	"-volumes.projected.sources.clusterTrustBundle", "-volumes.projected.sources.podCertificate",
}

// ignored are fields without which pods run on Nomad.
var ignored = []string{"volumes.emptyDir.sizeLimit"}

// check returns what else of a pod Nomad does not have.
func (b *backend) check(pod *corev1.Pod) (missing []string) {
	add := func(format string, args ...any) { missing = append(missing, fmt.Sprintf(format, args...)) }
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, v := range c.Env {
			if from := v.ValueFrom; from != nil && from.FieldRef != nil && b.fieldValue(pod, from.FieldRef.FieldPath) == "" {
				add("containers[%s].env[%s] from %s: the address is given after the variables", c.Name, v.Name, from.FieldRef.FieldPath)
			}
		}
		for _, m := range c.VolumeMounts {
			if strings.Contains(m.SubPath, ":") {
				add("containers[%s].volumeMounts[%s].subPath with a colon", c.Name, m.Name)
			}
			if other, ok := replaceable(pod, m); ok && !b.cfg.UnsafeSubPaths {
				add("containers[%s].volumeMounts[%s].subPath, which the container %s, with more of the volume, could make a link (unsafeSubPaths accepts it)", c.Name, m.Name, other)
			}
		}
	}
	return missing
}

// Create implements podgroup.Backend. A job is registered only if there is none with its ID:
// of two registrations the second finds the job of the first.
func (b *backend) Create(ctx context.Context, r *podgroup.Request) (podgroup.Unit, error) {
	job, err := b.job(r)
	if err != nil {
		return podgroup.Unit{}, err
	}
	if err := b.begin(ctx, *job.ID); err != nil {
		return podgroup.Unit{}, err
	}
	created, index, err := b.register(ctx, job, r)
	b.end(job, index, err)
	return created, err
}

// register registers a job with its variables, and returns its index.
func (b *backend) register(ctx context.Context, job *api.Job, r *podgroup.Request) (created podgroup.Unit, index uint64, err error) {
	if len(r.Pod.Status.ContainerStatuses) > 0 { // it has had a job
		if err := b.noneRuns(ctx, *job.ID); err != nil {
			return podgroup.Unit{}, 0, err
		}
	}
	// The turns of a job before with the ID would let all init containers start at once.
	if err := b.deleteVariables(ctx, *job.ID, map[string]string{metaTurns: job.Meta[metaTurns]}); err != nil {
		return podgroup.Unit{}, 0, err
	}
	vars := b.variables(*job.ID, r.Pod, r.Files)
	if err := b.putVariables(ctx, podgroup.ActionCreate, *job.ID, vars); err != nil {
		return podgroup.Unit{}, 0, err
	}
	answer, _, err := b.api.Jobs().EnforceRegister(job, 0, write(ctx))
	if exists(err) {
		found, index, err := b.existing(ctx, *job.ID, r.Tags)
		if err != nil || index != 0 {
			b.mu.Lock()
			b.writeTurns(job)
			b.mu.Unlock()
			return found, index, err
		}
		answer, _, err = b.api.Jobs().EnforceRegister(job, 0, write(ctx))
		if err != nil {
			return podgroup.Unit{}, 0, classify(podgroup.ActionCreate, err)
		}
	} else if err != nil {
		err = classify(podgroup.ActionCreate, err)
		if errdefs.IsPermanent(err) { // no other attempt will find them
			_ = b.deleteVariables(context.WithoutCancel(ctx), *job.ID, job.Meta)
		}
		return podgroup.Unit{}, 0, err
	}
	return podgroup.Unit{ID: *job.ID, Tags: job.Meta, Created: time.Now()}, answer.JobModifyIndex, nil
}

// existing returns the unit of a job that exists already, and its index. If the job was stopped,
// it is removed, and the index is zero.
func (b *backend) existing(ctx context.Context, id string, tags map[string]string) (found podgroup.Unit, index uint64, err error) {
	job, _, err := b.api.Jobs().Info(id, query(ctx))
	if isStatus(err, http.StatusNotFound) {
		return podgroup.Unit{}, 0, nil
	}
	if err != nil {
		return podgroup.Unit{}, 0, classify(podgroup.ActionCreate, err)
	}
	for key, value := range tags {
		if job.Meta[key] != value {
			return podgroup.Unit{}, 0, errdefs.AsConflict(fmt.Errorf("job %s exists, and is not of this pod: its meta key %s is %q", id, key, job.Meta[key]))
		}
	}
	if !value(job.Stop) {
		rec := recordOf(job)
		found, _ := rec.unit()
		return found, rec.index, nil
	}
	if _, _, err = b.api.Jobs().Deregister(id, true, write(ctx)); err == nil {
		return podgroup.Unit{}, 0, b.noneRuns(ctx, id)
	}
	return podgroup.Unit{}, 0, classify(podgroup.ActionCreate, err)
}

// noneRuns returns an error of class Unavailable while an allocation of a job that was removed
// runs, since Nomad has not evaluated that yet. It would give it to another job with the ID,
// which then counted as one without an allocation.
func (b *backend) noneRuns(ctx context.Context, id string) error {
	allocs, _, err := b.api.Jobs().Allocations(id, true, query(ctx))
	if err != nil {
		return classify(podgroup.ActionCreate, err)
	}
	runs := func(a *api.AllocationListStub) bool { return a.DesiredStatus == api.AllocDesiredStatusRun && !ended(a) }
	if !slices.ContainsFunc(allocs, runs) {
		return nil
	}
	job, err := b.job1(ctx, id)
	if err != nil || job != nil { // an attempt before has registered it
		return err
	}
	return errdefs.AsUnavailable(fmt.Errorf("an allocation of an earlier job %s runs: Nomad has not stopped it yet", id))
}

// Delete implements podgroup.Backend. A job that runs is stopped, and removed by Watch once
// nothing of it runs any more. The grace period is that of the registration.
func (b *backend) Delete(ctx context.Context, u *podgroup.Unit, _ time.Duration) error {
	b.mu.Lock()
	b.state(u.ID).leaves = true // from now on its turns are not written
	meta := u.Tags
	if r := b.records[u.ID]; r != nil { // a unit that was just created has the tags of its request only
		meta = r.meta
	}
	b.mu.Unlock()
	if err := b.clean(ctx, u.ID, meta, math.MaxUint64); err != nil {
		return err
	}
	_, _, err := b.api.Jobs().Deregister(u.ID, u.Over(), write(ctx))
	return classify(podgroup.ActionDelete, err)
}

// ConfirmEmpty implements podgroup.EmptyConfirmer.
func (b *backend) ConfirmEmpty(ctx context.Context, unitID string, _ *corev1.Pod) error {
	job, _, err := b.api.Jobs().Info(unitID, query(ctx))
	switch {
	case isStatus(err, http.StatusNotFound):
		return nil
	case err != nil:
		return classify(podgroup.ActionList, err)
	case value(job.Stop):
		return nil
	}
	return fmt.Errorf("the list of jobs of Nomad is empty, while job %s exists: give the token the right list-jobs", unitID)
}

// value returns what p points to, or the zero value.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
