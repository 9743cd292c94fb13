package remote

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote/internal/wire"
	pb "github.com/virtual-kubelet/virtual-kubelet/providers/remote/v1alpha1"
)

// capabilityVolumes is that of a provider which is sent what is in volumes.
const capabilityVolumes = "volumes"

// capabilityPullSecrets is that of one which is sent the image pull secrets of pods with them.
const capabilityPullSecrets = "pull-secrets"

const (
	// The back-off of updates that fail.
	firstVolumesRetry = 5 * time.Second
	lastVolumesRetry  = 5 * time.Minute
	// rereadInterval is how often contents are read again: objects that nobody reads for five
	// minutes are no longer watched.
	rereadInterval = 2 * time.Minute
	// staleEventInterval is the least time between events that a pod's volumes are not up to
	// date.
	staleEventInterval = time.Hour
	// updaters is how many pods are sent volumes at the same time: a call that hangs keeps
	// no tokens of other pods from being renewed.
	updaters = 10
)

// volumes sends the provider what is in the volumes of pods: with their creation, and again
// when it has changed, one pod at a time. A nil one sends nothing.
type volumes struct {
	p           *Provider
	init        nodeutil.ProviderConfig
	sources     volume.Sources
	queue       workqueue.TypedRateLimitingInterface[cache.ObjectName]
	unsubscribe func()
	workers     sync.WaitGroup

	mu   sync.Mutex
	pods map[cache.ObjectName]*sentVolumes
}

// sentVolumes is what the provider has of a pod's volumes. Contents themselves are not kept.
type sentVolumes struct {
	uid      types.UID
	creating int               // creations that are under way
	tried    bool              // whether a creation may have arrived
	digests  map[string]digest // of what was accepted last, by the volume's name
	again    int               // how often all was to be sent again; what was accepted before does not count
	warned   time.Time         // when an event last reported that it is not up to date
}

type digest = [sha256.Size]byte

// newVolumes starts the workers, which end with stop, and nothing that acts on the provider.
func newVolumes(p *Provider, init nodeutil.ProviderConfig) (*volumes, error) {
	if init.Objects == nil || init.Pods == nil || init.Client == nil {
		return nil, errdefs.InvalidInput("the provider is sent what is in volumes: ProviderConfig needs Pods, Objects and Client")
	}
	v := &volumes{p: p, init: init, pods: map[cache.ObjectName]*sentVolumes{}}
	v.sources = volume.Sources{Objects: init.Objects, Tokens: volume.NewTokens(volume.Client{Interface: init.Client})}
	v.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](firstVolumesRetry, lastVolumesRetry))
	ctx, cancel := context.WithCancel(context.Background()) // calls of the workers end with stop
	for range updaters {
		v.workers.Go(func() {
			for v.next(ctx) {
			}
		})
	}
	unsubscribe := init.Objects.Subscribe(v.objectChanged)
	v.unsubscribe = func() { unsubscribe(); cancel() }
	return v, nil
}

func (v *volumes) stop() {
	if v != nil {
		v.unsubscribe()
		v.queue.ShutDown()
		v.workers.Wait()
	}
}

// with calls do with the state of a pod, which may be new.
func (v *volumes) with(pod *corev1.Pod, do func(*sentVolumes)) {
	name := cache.MetaObjectToName(pod)
	v.mu.Lock()
	defer v.mu.Unlock()
	state := v.pods[name]
	if state == nil || state.uid != pod.UID {
		if state != nil {
			v.sources.Tokens.Forget(state.uid)
		}
		state = &sentVolumes{uid: pod.UID}
		v.pods[name] = state
	}
	do(state)
}

func (v *volumes) forget(name cache.ObjectName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if state := v.pods[name]; state != nil {
		v.sources.Tokens.Forget(state.uid)
		delete(v.pods, name)
	}
	v.queue.Forget(name)
}

// has reports whether something of a pod is sent.
func (v *volumes) has(pod *corev1.Pod) bool {
	return len(v.pullSecrets(pod)) > 0 || slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return volume.HasContents(&v) })
}

// pullSecrets returns the names of the image pull secrets of a pod that are sent.
func (v *volumes) pullSecrets(pod *corev1.Pod) (names []string) {
	if v.p.Lacks(capabilityPullSecrets) {
		return nil
	}
	for _, ref := range pod.Spec.ImagePullSecrets {
		if ref.Name != "" && !slices.Contains(names, ref.Name) {
			names = append(names, ref.Name)
		}
	}
	return names
}

// readPullSecret returns the data of a pull secret, as files. found is false if it does not exist,
// which the pod may do without.
func (v *volumes) readPullSecret(ctx context.Context, namespace, name string) (files volume.Files, found bool, err error) {
	secret, err := v.init.Objects.Secret(ctx, namespace, name)
	if errdefs.IsOnlyNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("pull secret %s: %w", name, err)
	}
	files = volume.Files{}
	for _, key := range []string{corev1.DockerConfigJsonKey, corev1.DockerConfigKey} {
		if data, ok := secret.Data[key]; ok {
			files[key] = volume.File{Data: data, Mode: 0o600}
		}
	}
	return files, true, nil
}

// objectChanged queues the pods that have an object in a volume.
func (v *volumes) objectChanged(kind, namespace, name string) {
	pods, err := v.init.Pods.Pods(namespace).List(labels.Everything())
	if err != nil {
		return // the lister of a cache returns no error
	}
	for _, pod := range pods {
		if volume.HasObject(pod, func(k, n string) bool { return k == kind && n == name }) || kind == "Secret" && slices.Contains(v.pullSecrets(pod), name) {
			v.queue.Add(cache.MetaObjectToName(pod))
		}
	}
}

// podChanged queues a pod: its metadata are in downward API volumes.
func (v *volumes) podChanged(pod *corev1.Pod) {
	if v != nil && v.has(pod) {
		v.queue.Add(cache.MetaObjectToName(pod))
	}
}

// adopt queues the pods that the provider holds from an earlier process.
func (v *volumes) adopt(held []*corev1.Pod) {
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, pod := range held {
		if name := cache.MetaObjectToName(pod); v.pods[name] == nil {
			v.queue.Add(name)
		}
	}
}

// sendAgain sends all volumes again: the provider may have begun again without them.
func (v *volumes) sendAgain() {
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for name, state := range v.pods {
		state.digests = nil
		state.again++
		v.queue.Add(name)
	}
}

// addTo adds what is in the pod's volumes to the request for its creation.
func (v *volumes) addTo(ctx context.Context, request *pb.CreatePodRequest, pod *corev1.Pod) (created func(err error), err error) {
	if v == nil || !v.has(pod) {
		return func(error) {}, nil
	}
	sent, digests, _, err := v.read(ctx, pod, nil)
	if err != nil {
		v.forgetTokens(pod)
		return nil, err
	}
	request.Volumes = sent
	var state *sentVolumes
	first, era := false, 0
	v.with(pod, func(s *sentVolumes) {
		state, first, era = s, !s.tried, s.again
		s.tried = true
		s.creating++
	})
	return func(err error) {
		v.mu.Lock()
		state.creating--
		// Otherwise an earlier request may have been the creation, or an update came after it.
		if err == nil && first && state.digests == nil && state.again == era {
			state.digests = digests
		}
		v.mu.Unlock()
		v.podChanged(pod) // something may have changed meanwhile, and tokens will be due
	}, nil
}

// forgetTokens drops the tokens of a pod of which nothing has been sent, and which may never
// be created.
func (v *volumes) forgetTokens(pod *corev1.Pod) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if state := v.pods[cache.MetaObjectToName(pod)]; state == nil || state.uid != pod.UID {
		v.sources.Tokens.Forget(pod.UID)
	}
}

// read returns what is in the volumes of a pod that have contents, but for those whose digests
// are known, digests of it, and when to read it again. The error names the volumes that could not
// be read, or are more than a message takes; the others are there.
func (v *volumes) read(ctx context.Context, pod *corev1.Pod, known map[string]digest) (found []*pb.Volume, digests map[string]digest, again time.Time, err error) {
	sources := v.sources
	if v.init.NodeAllocatable != nil {
		sources.NodeAllocatable = v.init.NodeAllocatable()
	}
	again, digests = time.Now().Add(rereadInterval), map[string]digest{}
	var errs []error
	size := 0
	add := func(name string, files volume.Files) (err error) {
		message := wire.FromFiles(name, files)
		encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
		if err != nil {
			return &volume.SetUpError{Volume: name, Err: err}
		}
		sum := sha256.Sum256(encoded)
		if sent, is := known[name]; is && sent == sum {
			return nil
		}
		if size += len(encoded); size > wire.MaxMessage { // a pod can name one object many times
			return tooLarge("what is in the volumes of the pod", wire.MaxMessage)
		}
		found, digests[name] = append(found, message), sum
		return nil
	}
	for i := range pod.Spec.Volumes {
		from := &pod.Spec.Volumes[i]
		if !volume.HasContents(from) {
			continue
		}
		files, renew, err := sources.Contents(ctx, pod, from)
		if !renew.IsZero() && renew.Before(again) {
			again = renew
		}
		if err != nil {
			errs = append(errs, &volume.SetUpError{Volume: from.Name, Err: err})
		} else if err := add(from.Name, files); err != nil {
			errs = append(errs, err)
		}
		if size > wire.MaxMessage {
			break
		}
	}
	for _, name := range v.pullSecrets(pod) {
		files, is, err := v.readPullSecret(ctx, pod.Namespace, name)
		if err == nil && is && size <= wire.MaxMessage {
			err = add(wire.PullSecrets+name, files)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return found, digests, again, errors.Join(errs...)
}

// next processes one pod of the queue. It returns false once the provider is closed.
func (v *volumes) next(ctx context.Context) bool {
	name, closed := v.queue.Get()
	if closed {
		return false
	}
	defer v.queue.Done(name)
	pod, err := v.init.Pods.Pods(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) || err == nil && (!v.has(pod) || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed) {
		v.forget(name)
		return true
	}
	var again time.Time
	if err == nil {
		again, err = v.update(ctx, pod)
	}
	if err != nil {
		v.retry(ctx, pod, name, err)
	} else {
		v.queue.Forget(name)
	}
	if !again.IsZero() { // the queue takes the earlier one
		v.queue.AddAfter(name, max(time.Until(again), time.Second))
	}
	return true
}

// update sends the volumes of a pod that have changed, and returns when to check again. A volume
// that cannot be read stays as it is.
func (v *volumes) update(ctx context.Context, pod *corev1.Pod) (again time.Time, err error) {
	creating, known, era := false, map[string]digest(nil), 0
	v.with(pod, func(state *sentVolumes) {
		creating, known, era = state.creating > 0, maps.Clone(state.digests), state.again
	})
	if creating {
		return time.Time{}, nil // which has them, and queues the pod when it has ended
	}
	found, digests, again, unread := v.read(ctx, pod, known)
	if len(found) == 0 {
		return again, unread
	}
	if v.init.MayBegin != nil && !v.init.MayBegin() {
		return again, errdefs.AsUnavailable(errors.New("another process may have taken the node"))
	}
	request := &pb.UpdateVolumesRequest{Pod: &pb.PodRef{Namespace: pod.Namespace, Name: pod.Name, Uid: string(pod.UID)}, Volumes: found}
	if err := checkSize(request); err != nil {
		return again, err
	}
	late, cancel := context.WithTimeout(ctx, v.p.cfg.CallTimeout.Duration)
	defer cancel()
	_, err = v.p.client.UpdateVolumes(late, request)
	if err = v.p.unlessLate(ctx, err); errdefs.IsOnlyNotFound(err) {
		return again, nil // it is not created yet, which will send them, or gone
	}
	if err != nil {
		return again, err
	}
	v.with(pod, func(state *sentVolumes) {
		if state.digests == nil {
			state.digests = map[string]digest{}
		}
		for _, m := range found {
			if state.again == era {
				state.digests[m.GetName()] = digests[m.GetName()]
			}
		}
		if unread == nil {
			state.warned = time.Time{}
		}
	})
	log.G(ctx).WithFields(log.Fields{"namespace": pod.Namespace, "pod": pod.Name, "volumes": len(found)}).Debug("Sent the provider what is in volumes of a pod")
	return again, unread
}

// retry queues a pod again after an error. That a provider is away is no event of each pod.
func (v *volumes) retry(ctx context.Context, pod *corev1.Pod, name cache.ObjectName, err error) {
	if pod != nil && ctx.Err() == nil && !errdefs.IsUnavailable(err) {
		log.G(ctx).WithFields(log.Fields{"namespace": name.Namespace, "pod": name.Name}).WithError(err).Warn("Cannot update what is in the volumes of a pod")
		stale := pod.Status.Phase == corev1.PodRunning // else its creation fails, and reports it
		v.with(pod, func(state *sentVolumes) {
			if stale = stale && (state.warned.IsZero() || time.Since(state.warned) >= staleEventInterval); stale {
				state.warned = time.Now()
			}
		})
		if stale && v.init.Events != nil {
			v.init.Events.Event(pod, corev1.EventTypeWarning, node.ReasonProviderUpdateFailed, fmt.Sprintf("The volumes keep their previous contents: %s", err))
		}
	}
	if delay, named := errdefs.RetryAfter(err); named {
		v.queue.AddAfter(name, delay)
	} else {
		v.queue.AddRateLimited(name)
	}
}

// checkSize returns an error for a request that is larger than what either side takes.
func checkSize(request proto.Message) error {
	if proto.Size(request) > wire.MaxMessage {
		return tooLarge("the pod with what is in its volumes", wire.MaxMessage)
	}
	return nil
}

func tooLarge(what string, most int) error {
	return errdefs.InvalidInputf("%s has more than the %d bytes that a provider in another process can be sent: make its ConfigMaps and Secrets smaller, or name the items that it needs", what, most)
}
