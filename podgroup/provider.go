package podgroup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/clusteruid"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// Options say what a Backend's service can do, and what the node offers.
type Options struct {
	// Service is the name of the service, for messages, metrics and spans: ECI. Required.
	Service string
	// Scheme is what IDs of containers begin with, as in scheme://unit/container/run.
	// Required. It must not change between versions.
	Scheme string
	// Identity is whose units the node's are.
	Identity Identity
	// Place is where the units of a Lister are, as far as settings say it that may be changed, such
	// as an account and a job. Pods have it in an annotation, AnnotationPlace, which all who may
	// read pods see. A node that finds no units, while its pods were created in another place, is
	// not ready. Defaults to none, with which a change goes unnoticed; a Getter must not set it.
	Place string
	// Features are what the service can do: see Features. Required.
	Features Features
	// Sizes are what the service sells. Without any, requests are taken as they are.
	Sizes Sizes
	// Capacity is the node's.
	Capacity corev1.ResourceList
	// DNS is what the pods resolve names with. Nil leaves it to the service, except for what
	// the pod itself sets.
	DNS *podspec.DNS
	// Budget keeps the calls within the account's quotas. Defaults to no limit, with silence
	// after a refusal for too many calls.
	Budget *Budget
	// CacheFor is how old a list may be that answers another call. Defaults to two seconds.
	CacheFor time.Duration
	// CreateTimeout is how long Backend.Create may take. Defaults to a minute.
	CreateTimeout time.Duration
	// UsageBatch is how many units Meter.Usage is called with at once. Zero is no limit.
	UsageBatch int
	// MaxName is how long Request.Name may be, at least 30. Defaults to 63.
	MaxName int
}

// complete sets defaults, and returns an error of class InvalidInput that names all
// mistakes.
func (o *Options) complete(b Backend, nodeName string) error {
	var wrong []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	_, lists := b.(Lister)
	_, gets := b.(Getter)
	o.Identity.Node = cmp.Or(o.Identity.Node, nodeName)
	o.Identity.MaxTag = cmp.Or(o.Identity.MaxTag, 128)
	o.CacheFor = cmp.Or(o.CacheFor, 2*time.Second)
	o.MaxName = cmp.Or(o.MaxName, 63)
	o.CreateTimeout = cmp.Or(o.CreateTimeout, callTimeout)
	if o.Budget == nil {
		o.Budget = NewBudget(nil)
	}
	check(o.Service != "", "Service is missing")
	check(o.Scheme != "", "Scheme is missing")
	check(lists != gets, "the backend has to be either a Lister or a Getter")
	check(!lists || o.Identity.Cluster != "", "Identity.Cluster is missing: it distinguishes this cluster's units from those of others")
	check(lists || o.Place == "", "Place is set, and the backend is no Lister: a change would go unnoticed")
	check(o.Identity.MaxTag >= minTagLength, "Identity.MaxTag is %d, less than %d", o.Identity.MaxTag, minTagLength)
	check(o.MaxName >= minNameLength, "MaxName is %d, less than %d", o.MaxName, minNameLength)
	check(o.CacheFor > 0, "CacheFor is negative")
	check(o.CreateTimeout > 0, "CreateTimeout is negative")
	check(o.UsageBatch >= 0, "UsageBatch is negative")
	wrong = append(wrong, o.Features.validate(), o.Sizes.validate())
	return errdefs.AsInvalidInput(errors.Join(wrong...))
}

var (
	_ node.PodUIDLifecycleHandler = (*Provider)(nil)
	_ node.NodeProvider           = (*Provider)(nil)
	_ nodeutil.Provider           = (*Provider)(nil)
	_ nodeutil.Limited            = (*Provider)(nil)
	_ node.PodNotifier            = (*watchingProvider)(nil)
)

// Provider runs pods as units of a service. Make it with New. It is safe for concurrent
// use.
type Provider struct {
	backend  Backend
	opts     Options
	init     nodeutil.ProviderConfig
	calls    *calls
	units    *units
	statuses statusMaker
	events   *eventRecorder
	usage    usage
	sources  volume.Sources
	claims   volume.Claims
	renewals renewals
	marks    annotator
	report   report

	ctx     context.Context // ends with the provider
	cancel  context.CancelFunc
	closing sync.Mutex // work begins before ctx ends
	work    sync.WaitGroup
}

// New makes the provider of a node, whose spec and status it sets. It makes no call. What
// it returns, which is the same Provider twice, or one that is a node.PodNotifier too if the
// backend is a Watcher, is an io.Closer: closing it ends the background work and the logs
// that are followed, and leaves the units as they are. If the backend is an io.Closer, it is
// closed, too. An error is of class InvalidInput.
func New(init nodeutil.ProviderConfig, b Backend, o Options) (nodeutil.Provider, node.NodeProvider, error) {
	if err := o.complete(b, init.Node.Name); err != nil {
		return nil, nil, fmt.Errorf("podgroup: %w", err)
	}
	p := &Provider{
		backend: b, opts: o, init: init,
		calls:    newCalls(o.Service, o.Budget, o.CreateTimeout, init.Metrics),
		statuses: statusMaker{scheme: o.Scheme, service: o.Service, hostIPs: init.HostIPs},
		events:   newEventRecorder(init.Events, time.Now()),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	client := volume.Client{Interface: init.Client}
	p.sources, p.claims = volume.Sources{Objects: init.Objects, Tokens: volume.NewTokens(client)}, client
	p.sources.Tokens.MinLifetime = o.Features.TokenLifetime
	p.units = &units{
		backend: b, calls: p.calls, identity: o.Identity, cacheFor: o.CacheFor, pods: init.Pods,
		owner:   &owner{identity: o.Identity, home: clusteruid.New(init.Client.CoreV1()), pods: init.Pods},
		missing: map[types.UID]time.Time{}, created: map[types.UID]createdUnit{}, unsure: map[types.UID]doubt{}, stopped: map[types.UID]time.Time{}, late: map[types.UID]lateUnit{},
		listed: func(list []Unit) {
			p.events.recordAll(list, o.Identity.Node)
			p.renewals.adopt(list)
			p.marks.want(list...)
		},
		hadUnit:      func(pod *corev1.Pod) bool { return p.statuses.createdIn(pod) != "" },
		synced:       func() bool { return init.PodsSynced == nil || init.PodsSynced() },
		confirmEmpty: p.confirmEmpty,
		superfluous:  p.deleteSuperfluous,
		stored:       func([]Unit) {},
		begin:        p.begin,
	}
	p.configureNode()
	p.renewals.start(p)
	p.marks.init(p)
	if replacer, ok := b.(Replacer); ok {
		replacer.SetRequest(p.requestAgain)
	}
	if watcher, ok := b.(Watcher); ok {
		w := &watchingProvider{Provider: p, watcher: watcher}
		p.units.stored = w.listed
		return w, w, nil
	}
	return p, p, nil
}

// Close implements io.Closer.
func (p *Provider) Close() error {
	p.closing.Lock()
	p.cancel()
	p.closing.Unlock()
	p.renewals.stop()
	p.marks.queue.ShutDown()
	ended := make(chan struct{})
	go func() { // ends with the last call
		p.work.Wait()
		close(ended)
	}()
	timeout := time.NewTimer(closeTimeout)
	defer timeout.Stop()
	var err error
	select {
	case <-ended:
	case <-timeout.C:
		err = fmt.Errorf("a call of %s goes on %s after the provider was closed: its backend ignores the end of the context", p.opts.Service, closeTimeout)
	}
	if closer, ok := p.backend.(io.Closer); ok {
		err = errors.Join(err, closer.Close())
	}
	return err
}

// closeTimeout is how long Close waits for calls that are under way.
const closeTimeout = 10 * time.Second

// begin begins something that Close ends, by its context, and waits for. It fails once the
// provider is closed.
func (p *Provider) begin(ctx context.Context) (context.Context, func(), error) {
	p.closing.Lock()
	defer p.closing.Unlock()
	if p.ctx.Err() != nil {
		return nil, nil, errdefs.AsUnavailable(errors.New("the provider is closed"))
	}
	p.work.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(p.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
		p.work.Done()
	}, nil
}

// CreatePod implements node.PodLifecycleHandler. What the service cannot do is found
// before anything is created.
func (p *Provider) CreatePod(ctx context.Context, pod *corev1.Pod) error {
	ignored, err := p.check(pod)
	if err != nil {
		return err
	}
	if _, lists := p.backend.(Lister); lists && !p.units.owner.isAccepted() {
		if _, err := p.units.all(ctx); err != nil { // it decides whether the node may act
			return err
		}
	}
	before := p.statuses.createdIn(pod)
	if before != "" && !p.units.isGone(pod.UID) {
		return p.notShown(pod, before)
	}
	if before != "" && pod.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		return errdefs.AsPermanent(fmt.Errorf("%s: unit %s, in which the pod was created, is gone; the pod may have run, and is not run again", reasonUnitGone, before))
	}
	request, due, err := p.request(ctx, pod)
	if err != nil {
		return err
	}
	if before != "" { // the service may still know the token of the unit that is gone
		request.Token += "-" + shortHash(before)
	}
	var created Unit
	called := false
	err = p.calls.do(ctx, ActionCreate, func(ctx context.Context) (err error) {
		called = true
		created, err = p.backend.Create(ctx, request)
		return err
	})
	if err != nil {
		if called {
			p.units.addUnsure(pod, !IsRefusal(err))
		}
		return err
	}
	if created.ID == "" {
		p.units.addUnsure(pod, true)
		return fmt.Errorf("%s has created a unit of pod %s/%s, and not returned its ID: it is looked for in the next list", p.opts.Service, pod.Namespace, pod.Name)
	}
	created.Owner, created.Tags = OwnerOf(pod), request.Tags
	if created.Created.IsZero() {
		created.Created = time.Now()
	}
	p.events.created(created.ID)
	p.units.add(pod.UID, created)
	p.marks.want(created)
	p.renewals.created(pod, request.Files, due)
	p.events.recordCreated(pod, p.opts.Service, ignored, sizeOf(pod), request.Size)
	return nil
}

// UpdatePod implements node.PodLifecycleHandler: images, and files that depend on the pod's
// labels and annotations.
func (p *Provider) UpdatePod(ctx context.Context, pod *corev1.Pod) error {
	if len(pod.Spec.EphemeralContainers) > 0 {
		return NotSupportedf("ephemeral containers, such as %s", pod.Spec.EphemeralContainers[0].Name)
	}
	p.renewals.queue.Add(cache.MetaObjectToName(pod))
	found, err := p.find(ctx, pod.Namespace, pod.Name, pod.UID)
	if err != nil {
		return err
	}
	var state renewal
	p.renewals.update(pod.UID, func(known *renewal) { state = *known })
	differ, unsure := state.images.compare(pod, &found)
	updater, ok := p.backend.(Updater)
	switch {
	case len(differ) == 0 && !(ok && unsure):
		return nil
	case !ok:
		return NotSupportedf("another image of a pod that runs")
	case unsure:
		return errdefs.AsConflict(fmt.Errorf("unit %s does not show its containers now: their images are compared once it does", found.ID))
	}
	logins, err := p.logins(ctx, pod)
	if err != nil {
		return err
	}
	err = p.calls.do(ctx, ActionUpdate, func(ctx context.Context) error {
		return updater.Update(ctx, &found, Change{Pod: pod, Images: true, Logins: logins, Token: fmt.Sprintf("%s-%s", pod.UID, pod.ResourceVersion)})
	})
	if err != nil && IsRefusal(err) {
		return err
	}
	given := imagesOf(pod)
	if err != nil { // it may have happened
		for _, name := range differ {
			given[name] = ""
		}
	}
	p.renewals.update(pod.UID, func(known *renewal) { known.images = images{given, true} })
	return err
}

// DeletePod implements node.PodLifecycleHandler.
func (p *Provider) DeletePod(ctx context.Context, pod *corev1.Pod) error {
	var found Unit
	var err error
	if getter, ok := p.backend.(Getter); ok { // it cannot find a pod that was deleted with force
		if found, err = p.units.getPod(ctx, getter, pod, p.notFound(pod.Namespace, pod.Name)); errdefs.IsOnlyNotFound(err) {
			return p.deleteUnseen(ctx, pod)
		}
	} else {
		found, err = p.find(ctx, pod.Namespace, pod.Name, pod.UID)
	}
	if err != nil {
		return err
	}
	if err := p.delete(ctx, &found, podspec.GracePeriod(pod, nil)); err != nil {
		return err
	}
	p.units.stopping(found.Owner.UID)
	return nil
}

// deleteUnseen has a backend without a list delete the unit of a pod, although it does not show one:
// it may show nothing for a while, and nobody finds the unit once the API does not have the pod. It
// returns what absent does, or that the deletion has failed; but a service may refuse that of a unit that
// is not there for ever.
func (p *Provider) deleteUnseen(ctx context.Context, pod *corev1.Pod) error {
	unit := Unit{ID: string(pod.UID), Owner: OwnerOf(pod), Data: pod}
	switch err := p.delete(ctx, &unit, podspec.GracePeriod(pod, nil)); {
	case errdefs.IsOnlyNotFound(err):
		p.units.setGone(pod.UID)
	case err != nil && !p.units.isGone(pod.UID):
		return err
	}
	return p.absent(pod.Namespace, pod.Name, pod.UID)
}

func (p *Provider) delete(ctx context.Context, u *Unit, grace time.Duration) error {
	return p.calls.do(ctx, ActionDelete, func(ctx context.Context) error { return p.backend.Delete(ctx, u, grace) })
}

// deleteSuperfluous deletes units of pods that have an older one.
func (p *Provider) deleteSuperfluous(ctx context.Context, list []Unit) {
	if p.init.MayBegin != nil && !p.init.MayBegin() {
		return
	}
	for i := range list {
		err := p.delete(ctx, &list[i], 0)
		p.events.recordSuperfluous(ctx, &list[i], p.opts.Identity.Node, err)
	}
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
	pod, _ := p.pod(&found)
	return pod, nil
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
	all, err := p.units.all(ctx)
	if err != nil {
		return nil, err
	}
	pods := make([]*corev1.Pod, 0, len(all))
	for _, found := range all {
		pod, _ := p.pod(&found)
		pods = append(pods, pod)
	}
	return pods, nil
}

// find returns the unit of a pod by its UID. Without a UID it returns the newest of that
// name.
func (p *Provider) find(ctx context.Context, namespace, name string, uid types.UID) (found Unit, err error) {
	notFound := p.notFound(namespace, name)
	if getter, ok := p.backend.(Getter); ok {
		return p.units.getOne(ctx, getter, namespace, name, uid, notFound)
	}
	had, deleted := p.inAPI(namespace, name, uid)
	found, ok, err := p.units.find(ctx, uid, p.opts.CacheFor, had, deleted)
	if err != nil || ok {
		return found, err
	}
	if uid != "" {
		return Unit{}, p.absent(namespace, name, uid)
	}
	for _, other := range p.units.snapshot() {
		if other.Owner.Namespace == namespace && other.Owner.Name == name &&
			(!ok || older(&found, &other)) && p.units.owner.isOurs(&other) {
			found, ok = other, true
		}
	}
	if !ok {
		return Unit{}, notFound
	}
	return found, nil
}

// inAPI reports whether a pod has had a unit, by its status in the API, and whether it is being deleted.
func (p *Provider) inAPI(namespace, name string, uid types.UID) (had, deleted bool) {
	pod, err := p.init.Pods.Pods(namespace).Get(name)
	if err != nil || pod.UID != uid {
		return false, false
	}
	return p.statuses.createdIn(pod) != "", pod.DeletionTimestamp != nil
}

// absent returns the error of a pod whose unit the service does not show: NotFound, at which a pod that is
// deleted leaves the API, and another one of its name may begin. As long as its unit may only not be
// shown it is one of class Unavailable.
func (p *Provider) absent(namespace, name string, uid types.UID) error {
	pod, err := p.init.Pods.Pods(namespace).Get(name)
	if err != nil || pod.UID != uid || pod.DeletionTimestamp == nil {
		return p.notFound(namespace, name)
	}
	if rest := p.units.unsureFor(uid); rest > 0 {
		return errdefs.AsRetryAfter(errdefs.AsUnavailable(fmt.Errorf("whether %s has created a unit of pod %s/%s is not known: it may show it later", p.opts.Service, namespace, name)), min(rest, missingRetry))
	}
	if before := p.statuses.createdIn(pod); before != "" && !p.units.hasStopped(uid) && !p.units.isGone(uid) {
		return p.notShown(pod, before)
	}
	return p.notFound(namespace, name)
}

// notShown returns the error of a pod whose unit is not gone, and not shown.
func (p *Provider) notShown(pod *corev1.Pod, unit string) error {
	return errdefs.AsRetryAfter(errdefs.AsUnavailable(fmt.Errorf("%s does not show unit %s, in which pod %s/%s was created: it is looked for again before that counts",
		p.opts.Service, unit, pod.Namespace, pod.Name)), missingRetry)
}

func (p *Provider) notFound(namespace, name string) error {
	return errdefs.NotFoundf("%s has no unit of pod %s/%s", p.opts.Service, namespace, name)
}

// pod returns the pod of a unit, with the status from the service. If the cache lacks the
// pod, it is made from the unit, and known is false.
func (p *Provider) pod(u *Unit) (pod *corev1.Pod, known bool) {
	pod = podOf(u, p.opts.Identity.Node)
	if cached, err := p.init.Pods.Pods(pod.Namespace).Get(pod.Name); err == nil && cached.UID == pod.UID {
		pod, known = cached.DeepCopy(), true
		if u.Unknown {
			return pod, known
		}
	}
	pod.Status = p.statuses.status(pod, u, p.infeasible(pod), metav1.Now())
	p.showImages(pod, u)
	return pod, known
}
