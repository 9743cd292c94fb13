package eci

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/eci"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// refresher gives container groups new contents of their volumes when an object
// that the pod names has changed: one group at a time, and what failed again.
type refresher struct {
	queue       workqueue.TypedRateLimitingInterface[cache.ObjectName]
	unsubscribe func()
	worker      sync.WaitGroup
}

// The delays between tries.
const (
	firstRefreshRetry = 5 * time.Second
	lastRefreshRetry  = 5 * time.Minute
)

// startRefreshing begins to follow objects, until the function that it returns is
// called.
func (p *Provider) startRefreshing() (stop func()) {
	r := &p.refresher
	r.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](firstRefreshRetry, lastRefreshRetry))
	ctx, cancel := context.WithCancel(context.Background())
	r.worker.Go(func() {
		for p.refreshNext(ctx) {
		}
	})
	r.unsubscribe = p.node.Objects.Subscribe(p.objectChanged)
	return func() {
		r.unsubscribe()
		cancel()
		r.queue.ShutDown()
		r.worker.Wait()
	}
}

// objectChanged has the pods looked at that have an object in a volume.
func (p *Provider) objectChanged(kind, namespace, name string) {
	pods, err := p.node.Pods.Pods(namespace).List(labels.Everything())
	if err != nil {
		return // which a lister of a cache does not give
	}
	for _, pod := range pods {
		if hasInVolume(pod, kind, name) {
			p.refresher.queue.Add(cache.MetaObjectToName(pod))
		}
	}
}

// hasInVolume tells whether a volume of the pod has the contents of an object.
func hasInVolume(pod *corev1.Pod, kind, name string) bool {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		switch {
		case v.ConfigMap != nil && kind == "ConfigMap" && v.ConfigMap.Name == name,
			v.Secret != nil && kind == "Secret" && v.Secret.SecretName == name:
			return true
		case v.Projected == nil:
			continue
		}
		for _, from := range v.Projected.Sources {
			if from.ConfigMap != nil && kind == "ConfigMap" && from.ConfigMap.Name == name ||
				from.Secret != nil && kind == "Secret" && from.Secret.Name == name {
				return true
			}
		}
	}
	return false
}

// refreshNext does so for one pod; false means that the provider has been closed.
func (p *Provider) refreshNext(ctx context.Context) bool {
	queue := p.refresher.queue
	name, closed := queue.Get()
	if closed {
		return false
	}
	defer queue.Done(name)
	pod, err := p.node.Pods.Pods(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		queue.Forget(name)
		return true
	}
	if err == nil {
		ctx = log.WithLogger(ctx, log.G(ctx).WithFields(log.Fields{"namespace": pod.Namespace, "pod": pod.Name, "uid": string(pod.UID)}))
		err = p.refresh(ctx, pod)
	}
	if err == nil || ctx.Err() != nil {
		queue.Forget(name)
		return true
	}
	// A group that does not run yet, or no longer, and throttling pass by themselves.
	if !errdefs.IsConflict(err) && !errdefs.IsNotFound(err) && !isThrottled(err) && queue.NumRequeues(name) == 0 {
		p.tellStale(ctx, pod, err)
	}
	switch delay, named := errdefs.RetryAfter(err); {
	case errdefs.IsPermanent(err): // until something changes again
		queue.Forget(name)
	case named:
		queue.AddAfter(name, delay)
	default:
		queue.AddRateLimited(name)
	}
	return true
}

// tellStale says that a pod goes on with what its volumes had before.
func (p *Provider) tellStale(ctx context.Context, pod *corev1.Pod, err error) {
	log.G(ctx).WithError(err).Warn("Cannot bring the volumes of a pod up to date")
	p.events.volumesStale(pod, fmt.Sprintf("The volumes keep what they had: %s", err))
}

// refresh writes the contents of the volumes of a pod to its group, if it has
// others. The group is told all volumes, so that it does not matter whether it
// keeps those that it is not told of.
func (p *Provider) refresh(ctx context.Context, pod *corev1.Pod) error {
	if pod.DeletionTimestamp != nil || !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return volume.HasContents(&v) }) {
		return nil
	}
	found, err := p.find(ctx, pod.Namespace, pod.Name, pod.UID)
	if errdefs.IsNotFound(err) {
		return nil // it is to be created, or is gone
	}
	if err != nil || ended(found.Status) {
		return err
	}
	in, err := p.inputs(ctx, pod)
	if err != nil {
		return err
	}
	request, err := ToCreateRequest(pod, in)
	if err != nil || !contentsDiffer(pod, found, *request.Volume) {
		return err
	}
	params, err := request.Params()
	if err != nil {
		return err
	}
	update := eci.CreateUpdateContainerGroupRequest()
	update.RegionId, update.ContainerGroupId = p.cfg.Region, found.ContainerGroupId
	for name, value := range params {
		if strings.HasPrefix(name, "Volume.") {
			update.GetFormParams()[name] = value
		}
	}
	defer p.groups.changed()
	if err := p.client.do(ctx, update, eci.CreateUpdateContainerGroupResponse()); err != nil {
		return err
	}
	log.G(ctx).Info("Brought the volumes of the pod up to date")
	return nil
}

// contentsDiffer tells whether a group lacks something of the volumes that it is to
// have, as far as it says what they contain. Tokens are different each time, and do
// not count.
func contentsDiffer(pod *corev1.Pod, found *group, want []eci.CreateContainerGroupVolume) bool {
	has := map[string]map[string]string{}
	for _, v := range found.Volumes {
		has[v.Name] = map[string]string{}
		for _, f := range v.ConfigFileVolumeConfigFileToPaths {
			has[v.Name][f.Path] = f.Content
		}
	}
	tokens := tokenPaths(pod)
	for _, v := range want {
		if v.Type != configFileVolume {
			continue
		}
		files := *v.ConfigFileVolume.ConfigFileToPath
		if len(files) != len(has[v.Name]) {
			return true
		}
		for _, f := range files {
			content, ok := has[v.Name][f.Path]
			plain := base64.StdEncoding.EncodeToString([]byte(content)) // should it not be told as it was given
			if !ok || content != f.Content && plain != f.Content && !tokens[v.Name+"/"+f.Path] {
				return true
			}
		}
	}
	return false
}

// contentsOf are volumes that a group was asked to have, as it will show them.
func contentsOf(asked []eci.CreateContainerGroupVolume) []eci.DescribeContainerGroupsVolume1 {
	var volumes []eci.DescribeContainerGroupsVolume1
	for _, v := range asked {
		shown := eci.DescribeContainerGroupsVolume1{Name: v.Name, Type: v.Type}
		if v.Type == configFileVolume {
			for _, f := range *v.ConfigFileVolume.ConfigFileToPath {
				shown.ConfigFileVolumeConfigFileToPaths = append(shown.ConfigFileVolumeConfigFileToPaths,
					eci.DescribeContainerGroupsConfigFileVolumeConfigFileToPath2{Content: f.Content, Path: f.Path})
			}
		}
		volumes = append(volumes, shown)
	}
	return volumes
}

// tokenPaths are the files of tokens, as VOLUME/PATH.
func tokenPaths(pod *corev1.Pod) map[string]bool {
	paths := map[string]bool{}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Projected == nil {
			continue
		}
		for _, from := range v.Projected.Sources {
			if from.ServiceAccountToken != nil {
				paths[v.Name+"/"+from.ServiceAccountToken.Path] = true
			}
		}
	}
	return paths
}
