package eci

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/eci"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/clusteruid"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

var (
	_ node.PodUIDLifecycleHandler = (*Provider)(nil)
	_ node.NodeProvider           = (*Provider)(nil)
)

// Provider runs pods in container groups. Create it with New. It is safe for concurrent
// use. It does not notify: the controller polls all pods, which takes one listing.
type Provider struct {
	cfg      Config
	nodeName string
	node     nodeutil.ProviderConfig
	client   *client
	groups   *groups
	events   *eventRecorder
	metrics  metrics
	sources  volume.Sources

	refresher refresher

	done  chan struct{}
	close func()
}

// New returns the provider of a node, and sets the node's spec and status. It sends no
// request to the API. Close stops the provider.
func New(init nodeutil.ProviderConfig, cfg Config) (*Provider, error) {
	if err := cfg.Complete(); err != nil {
		return nil, err
	}
	p := &Provider{
		cfg: cfg, nodeName: init.Node.Name, node: init,
		client: newClient(&cfg),
		events: newEventRecorder(init.Events, time.Now()),
		done:   make(chan struct{}),
	}
	p.sources = volume.Sources{Objects: init.Objects, Tokens: volume.NewTokens(volume.Client{Interface: init.Client})}
	p.groups = &groups{
		client: p.client, cluster: cfg.ClusterName, node: p.nodeName, cacheFor: cfg.CacheFor,
		owner: &owner{
			cluster: cfg.ClusterName, node: p.nodeName, home: clusteruid.New(init.Client.CoreV1()), pods: init.Pods,
		},
		created: map[types.UID]createdGroup{},
		listed:  func(list []group) { p.recordEvents(list); p.adopt(list) },

		confirmEmpty: p.confirmNoGroups,
	}
	p.configureNode(init.Node)
	stopRefreshing := p.startRefreshing()
	p.close = sync.OnceFunc(func() {
		close(p.done)
		stopRefreshing()
		p.client.closeIdle()
	})
	return p, nil
}

// Close ends the logs that are followed, and the background work. Container groups stay
// as they are.
func (p *Provider) Close() error {
	p.close()
	return nil
}

// CreatePod implements node.PodLifecycleHandler. Features that ECI does not have are
// found before anything is created.
func (p *Provider) CreatePod(ctx context.Context, pod *corev1.Pod) error {
	if err := Check(pod); err != nil {
		return err
	}
	if !p.groups.owner.isAccepted() {
		if _, err := p.groups.all(ctx); err != nil { // it decides whether the node may act
			return err
		}
	}
	in, due, err := p.readInputs(ctx, pod)
	if err != nil {
		return err
	}
	request, err := ToCreateRequest(pod, in)
	if err != nil {
		return err
	}
	volumes, err := volumeParams(request)
	if err != nil {
		return err
	}
	id, err := p.createGroup(ctx, request)
	p.groups.invalidate() // also after an error: it may have been created
	if err != nil {
		return err
	}
	p.groups.add(pod.UID, newGroup(pod, request, id))
	p.refresher.pods.recordApplied(pod.UID, volumes)
	p.schedule(cache.MetaObjectToName(pod), due)
	return nil
}

// newGroup returns a group as a listing will report it.
func newGroup(pod *corev1.Pod, request *CreateRequest, id string) group {
	g := group{
		ContainerGroupId: id, ContainerGroupName: request.ContainerGroupName, Status: groupScheduling,
		RestartPolicy: request.RestartPolicy, CreationTime: time.Now().UTC().Format(time.RFC3339),
	}
	for _, tag := range *request.Tag {
		g.Tags = append(g.Tags, eci.DescribeContainerGroupsLabel1(tag))
	}
	return g
}

// UpdatePod implements node.PodLifecycleHandler. It updates images and the files of
// downwardAPI volumes; container groups have nothing else that can change of a pod.
func (p *Provider) UpdatePod(ctx context.Context, pod *corev1.Pod) error {
	if len(pod.Spec.EphemeralContainers) > 0 {
		return errdefs.AsPermanent(fmt.Errorf("ProviderNotSupported: ephemeral containers, such as %s", pod.Spec.EphemeralContainers[0].Name))
	}
	p.refresher.queue.Add(cache.MetaObjectToName(pod))
	found, err := p.find(ctx, pod.Namespace, pod.Name, pod.UID)
	if err != nil {
		return err
	}
	if !imagesDiffer(pod, found) {
		return nil
	}
	defer p.groups.invalidate()
	return p.updateImages(ctx, pod, found.ContainerGroupId)
}

// DeletePod implements node.PodLifecycleHandler. The grace period is that of the pod's
// spec, since the API takes none with the deletion.
func (p *Provider) DeletePod(ctx context.Context, pod *corev1.Pod) error {
	found, err := p.find(ctx, pod.Namespace, pod.Name, pod.UID)
	if err != nil {
		return err
	}
	p.groups.remove(uidOf(found))
	defer p.groups.invalidate()
	request := eci.CreateDeleteContainerGroupRequest()
	request.RegionId, request.ContainerGroupId = p.cfg.Region, found.ContainerGroupId
	return p.client.do(ctx, request, eci.CreateDeleteContainerGroupResponse())
}

// GetPod implements node.PodLifecycleHandler.
func (p *Provider) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return p.GetPodByUID(ctx, namespace, name, "")
}

// GetPodByUID implements node.PodUIDLifecycleHandler.
func (p *Provider) GetPodByUID(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error) {
	found, err := p.find(ctx, namespace, name, uid)
	if err != nil {
		return nil, err
	}
	return p.pod(found), nil
}

// GetPodStatus implements node.PodLifecycleHandler.
func (p *Provider) GetPodStatus(ctx context.Context, namespace, name string) (*corev1.PodStatus, error) {
	return p.GetPodStatusByUID(ctx, namespace, name, "")
}

// GetPodStatusByUID implements node.PodUIDLifecycleHandler.
func (p *Provider) GetPodStatusByUID(ctx context.Context, namespace, name string, uid types.UID) (*corev1.PodStatus, error) {
	pod, err := p.GetPodByUID(ctx, namespace, name, uid)
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

// GetPods implements node.PodLifecycleHandler.
func (p *Provider) GetPods(ctx context.Context) ([]*corev1.Pod, error) {
	all, err := p.groups.all(ctx)
	if err != nil {
		return nil, err
	}
	pods := make([]*corev1.Pod, 0, len(all))
	for _, found := range all {
		pods = append(pods, p.pod(&found))
	}
	return pods, nil
}

// find returns the group of a pod by its UID. Without a UID it returns the newest of
// that name.
func (p *Provider) find(ctx context.Context, namespace, name string, uid types.UID) (*group, error) {
	all, err := p.groups.youngerThan(ctx, p.cfg.CacheFor)
	if err != nil {
		return nil, err
	}
	if found, ok := all[uid]; ok {
		return &found, nil
	}
	var newest *group
	for _, found := range all {
		if uid == "" && p.groups.owner.isOurs(&found) && tagOf(&found, TagNamespace) == namespace && tagOf(&found, TagPodName) == name &&
			(newest == nil || found.CreationTime > newest.CreationTime) {
			newest = &found
		}
	}
	if newest == nil {
		return nil, errdefs.NotFoundf("there is no container group of pod %s/%s", namespace, name)
	}
	return newest, nil
}

// pod returns the pod of a group, with the status from ECI. If the cache lacks the pod,
// it is made from the group.
func (p *Provider) pod(found *group) *corev1.Pod {
	pod := podOf(found)
	if known, err := p.node.Pods.Pods(pod.Namespace).Get(pod.Name); err == nil && known.UID == pod.UID {
		pod = known.DeepCopy()
	}
	pod.Status = statusOf(pod, found, p.node.HostIPs(), metav1.Now())
	return pod
}

func uidOf(found *group) types.UID { return types.UID(tagOf(found, TagUID)) }
