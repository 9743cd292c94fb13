package reflection

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

const (
	// workers is the number of copies written at the same time.
	workers = 4
	// rereadInterval is how often an original is read again: home originals that nobody
	// reads for five minutes are no longer watched.
	rereadInterval = 2 * time.Minute
	// mayBeginInterval is how often to check MayBegin while it returns false.
	mayBeginInterval = 5 * time.Second
	// writeTimeout is the timeout of one attempt to update a copy: a call that hangs
	// would hold up all pods that need the copy.
	writeTimeout = time.Minute
)

// Options configure where originals and copies are.
type Options struct {
	// Translate has the names of copies.
	Translate *translate.Options
	// Objects has the originals.
	Objects node.ObjectSource
	// Tokens requests tokens of home service accounts.
	Tokens volume.TokenRequester
	// NodeAllocatable is for the downward API. Nil means nothing.
	NodeAllocatable func() corev1.ResourceList
	// Remote is the remote cluster.
	Remote kubernetes.Interface
	// Environment resolves the environment of a home pod. It is needed for a pod that
	// was adopted, whose environment is unknown, if its copy is lost. Nil means that it
	// cannot be resolved.
	Environment func(ctx context.Context, pod *corev1.Pod) (map[string][]byte, error)
	// MayBegin reports whether this process may delete copies: another process may hold
	// the node, and have pods that need them. Nil means always.
	MayBegin func() bool
	// MayWrite returns an error while no copy may be written or deleted: another cluster
	// may be in the place of the remote one. Nil means always.
	MayWrite func() error
	// IsGone reports whether neither cluster has a pod any more. It must not block. Nil
	// means never.
	IsGone func(pod *corev1.Pod) bool
	// ReportFailure is called for each pod that needs a copy that cannot be written. It
	// must not block. Required.
	ReportFailure func(pod *corev1.Pod, err error)
}

// Reflector writes and deletes the copies. It is safe for concurrent use.
type Reflector struct {
	opts    Options
	sources volume.Sources
	queue   workqueue.TypedRateLimitingInterface[ref]

	mu     sync.Mutex
	pods   map[types.UID]*registeredPod
	copies map[ref]*copyState
}

// ref identifies an original. For the kinds that belong to a single pod, the name is
// the UID of the pod.
type ref struct{ kind, namespace, name string }

// registeredPod is a pod whose copies are kept up to date.
type registeredPod struct {
	pod   *corev1.Pod
	env   map[string][]byte // nil if unknown: the copy stays as it is, unless it is lost
	kept  []string          // the keys that the remote pod needs beside those of env
	refs  map[ref]bool      // whether the pod cannot run without
	since time.Time
}

// copyState is the state of one copy.
type copyState struct {
	writing chan struct{}  // holds one token while the copy is read or written
	sum     string         // of the content that was written last: see copyContent.sum
	version writtenVersion // the version in the remote cluster, if known
	isNew   bool           // no copy is expected in the remote cluster: see Reflector.apply
	missing bool           // the original does not exist, and so neither does the copy
	lost    bool           // the copy existed, and is gone

	pods    map[types.UID]struct{} // that need it; guarded by Reflector.mu, as is rewrite
	rewrite rewriteRequest
}

// rewriteRequest asks the next reflect of a copy to write it again, although its original
// has not changed.
type rewriteRequest struct {
	asked bool
	lost  bool // the copy may be gone
}

func newCopyState(isNew bool) *copyState {
	return &copyState{writing: make(chan struct{}, 1), isNew: isNew, pods: map[types.UID]struct{}{}}
}

// writtenVersion identifies a version of an object in the remote cluster.
type writtenVersion struct {
	uid     types.UID
	version string
	kind    corev1.SecretType
}

func versionOf(object metav1.Object) writtenVersion {
	is := writtenVersion{uid: object.GetUID(), version: object.GetResourceVersion()}
	if secret, ok := object.(*corev1.Secret); ok {
		is.kind = secret.Type
	}
	return is
}

// New returns a Reflector.
func New(opts Options) *Reflector {
	tokens := volume.NewTokens(opts.Tokens)
	return &Reflector{
		opts:    opts,
		sources: volume.Sources{Objects: opts.Objects, Tokens: tokens},
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[ref](200*time.Millisecond, time.Minute)),
		pods:    map[types.UID]*registeredPod{},
		copies:  map[ref]*copyState{},
	}
}

// Run updates copies until ctx ends.
func (r *Reflector) Run(ctx context.Context) {
	defer r.opts.Objects.Subscribe(func(kind, namespace, name string) {
		if of := (ref{kind, namespace, name}); r.isNeeded(of) {
			r.queue.Add(of)
		}
	})()
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for r.processNextItem(ctx) {
			}
		})
	}
	<-ctx.Done()
	r.queue.ShutDown()
	running.Wait()
}

// Close stops a Reflector, whether or not it has run.
func (r *Reflector) Close() { r.queue.ShutDown() }

func (r *Reflector) processNextItem(ctx context.Context) bool {
	of, end := r.queue.Get()
	if end {
		return false
	}
	defer r.queue.Done(of)
	if r.isAbandoned(of) {
		r.queue.AddAfter(of, rereadInterval)
		return true
	}
	if err := r.reflectOnce(ctx, of); err != nil && ctx.Err() == nil {
		log.G(ctx).WithError(err).WithFields(log.Fields{"kind": of.kind, "namespace": of.namespace, "name": of.name}).
			Warn("Cannot copy an object to the remote cluster; retrying")
		if errors.As(err, new(translate.NameConflict)) {
			r.queue.AddAfter(of, rereadInterval)
			return true
		}
		r.queue.AddRateLimited(of)
		return true
	}
	r.queue.Forget(of)
	return true
}

// RegisterPod writes the copies that pod needs, and keeps them up to date. The
// environment of pod is resolved; remote is its remote pod as it is, or is to be. Originals
// that do not exist are reported by ReportFailure, and copied once they do.
func (r *Reflector) RegisterPod(ctx context.Context, pod, remote *corev1.Pod) error {
	f := r.register(pod, remote, r.opts.Translate.Environment(pod), true)
	var errs []error
	for of := range f.refs {
		if err := r.reflectOnce(ctx, of); err != nil {
			errs = append(errs, err)
			r.queue.AddRateLimited(of)
		}
	}
	return errors.Join(errs...)
}

// AdoptPod registers a pod that runs already, as remote. Its environment need not be
// resolved. It does not wait for the copies, and does nothing if the pod is registered.
func (r *Reflector) AdoptPod(pod, remote *corev1.Pod) {
	if r.IsRegistered(pod.UID) {
		return
	}
	r.opts.Objects.Follow(pod) // as the node does for a pod that it creates
	for of := range r.register(pod, remote, nil, false).refs {
		r.queue.Add(of)
	}
}

// IsRegistered reports whether a pod is registered.
func (r *Reflector) IsRegistered(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pods[uid] != nil
}

// register records a pod and what it needs: of the Secrets of its own those that its remote
// pod refers to. Copies that no pod has needed before are expected not to be in the remote
// cluster if the pod is new.
func (r *Reflector) register(pod, remote *corev1.Pod, env map[string][]byte, isNew bool) *registeredPod {
	f := &registeredPod{pod: pod.DeepCopy(), env: env, refs: map[ref]bool{}, since: time.Now()}
	for o, required := range translate.Objects(pod) {
		f.refs[ref{o.Kind, pod.Namespace, o.Name}] = required
	}
	used := ReferencedBy(remote)
	for _, kind := range []string{translate.KindEnvironment, translate.KindFiles} {
		if _, ok := used[r.opts.Translate.ObjectName(kind, pod.Namespace, string(pod.UID))]; ok {
			f.refs[ref{kind, pod.Namespace, string(pod.UID)}] = true
		}
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if old := r.pods[pod.UID]; old != nil {
		f.since = old.since
		for of, required := range old.refs { // volumes do not change
			f.refs[of] = f.refs[of] || required
		}
	}
	if _, ok := f.refs[ref{translate.KindEnvironment, pod.Namespace, string(pod.UID)}]; !ok {
		f.env = nil
	}
	if f.env != nil {
		f.keepVariables(r.opts.Translate.VariableKeys(pod, remote), r.pods[pod.UID])
	}
	r.pods[pod.UID] = f
	for of := range f.refs {
		c := r.copies[of]
		if c == nil {
			c = newCopyState(isNew)
			r.copies[of] = c
		}
		c.pods[pod.UID] = struct{}{}
	}
	return f
}

// keepVariables takes the values of keys that f.env lacks from old, the pod as it was
// registered before, if it is known. Home may have deleted what they were from, while the
// remote pod, whose variables never change, cannot restart a container without them.
func (f *registeredPod) keepVariables(keys []string, old *registeredPod) {
	for _, key := range keys {
		if _, ok := f.env[key]; ok {
			continue
		}
		if old != nil && old.env[key] != nil {
			f.env[key] = old.env[key]
		} else {
			f.kept = append(f.kept, key)
		}
	}
}

// UnregisterPod drops a pod. Copies that no other pod needs are deleted.
func (r *Reflector) UnregisterPod(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.pods[uid]
	if f == nil {
		return
	}
	delete(r.pods, uid)
	r.opts.Objects.Forget(uid)
	r.sources.Tokens.Forget(uid)
	for of := range f.refs {
		if c := r.copies[of]; c != nil {
			delete(c.pods, uid)
			if len(c.pods) == 0 {
				r.queue.Add(of)
			}
		}
	}
}

// RegisteredPods returns the pods that were registered at least age ago.
func (r *Reflector) RegisteredPods(age time.Duration) []*corev1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	var old []*corev1.Pod
	for _, f := range r.pods {
		if time.Since(f.since) >= age {
			old = append(old, f.pod)
		}
	}
	return old
}

func (r *Reflector) isNeeded(of ref) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.copies[of] != nil
}

// isAbandoned reports whether a copy is only for pods that are gone, and will soon be
// unregistered. The node may not be able to read their originals any more.
func (r *Reflector) isAbandoned(of ref) bool {
	needs := r.podsNeeding(of)
	return r.opts.IsGone != nil && len(needs) > 0 && !slices.ContainsFunc(needs, func(f *registeredPod) bool { return !r.opts.IsGone(f.pod) })
}

// reflectOnce calls reflect with writeTimeout.
func (r *Reflector) reflectOnce(ctx context.Context, of ref) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return r.reflect(ctx, of)
}

// reflect updates or deletes one copy.
func (r *Reflector) reflect(ctx context.Context, of ref) error {
	r.mu.Lock()
	c := r.copies[of]
	r.mu.Unlock()
	if c == nil {
		return nil
	}
	if r.opts.MayWrite != nil {
		if err := r.opts.MayWrite(); err != nil {
			return err
		}
	}
	select {
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
	case <-ctx.Done():
		return errdefs.AsUnavailable(fmt.Errorf("%s is still being written to the remote cluster: %w", describe(of), context.Cause(ctx)))
	}
	r.acceptRewrite(c)
	needs := r.podsNeeding(of)
	if len(needs) == 0 {
		if !r.mayBegin() {
			r.queue.AddAfter(of, mayBeginInterval)
			return nil
		}
		if err := r.remove(ctx, of, c); err != nil {
			return err
		}
		c.sum, c.version = "", writtenVersion{}
		r.forget(of)
		return nil
	}
	wanted, err := r.contentOf(ctx, of, needs[0], c.lost)
	switch {
	case apierror.IsNotFound(err):
		for _, f := range needs {
			if f.refs[of] {
				r.opts.ReportFailure(f.pod, fmt.Errorf("%s %q not found", of.kind, of.name))
			}
		}
		r.queue.AddAfter(of, rereadInterval)
		if c.missing || !r.mayBegin() {
			return nil
		}
		if err := r.remove(ctx, of, c); err != nil {
			return err
		}
		c.sum, c.version, c.missing = "", writtenVersion{}, true
		return nil
	case err != nil:
		return r.reportFailure(needs, err)
	case wanted == nil: // unknown
		return nil
	}
	if again := time.Until(wanted.renew); !wanted.renew.IsZero() {
		r.queue.AddAfter(of, max(again, time.Second))
	} else if of.kind == translate.KindConfigMap || of.kind == translate.KindSecret {
		r.queue.AddAfter(of, rereadInterval)
	}
	if sum := wanted.sum(); c.sum != sum {
		if err := r.apply(ctx, of, c, wanted); err != nil {
			return r.reportFailure(needs, err)
		}
		c.sum, c.missing, c.lost = sum, false, false
	}
	if wanted.failed != nil {
		return r.reportFailure(needs, wanted.failed)
	}
	return nil
}

func (r *Reflector) mayBegin() bool { return r.opts.MayBegin == nil || r.opts.MayBegin() }

// reportFailure reports errors that retries alone do not fix to the pods. It returns
// err.
func (r *Reflector) reportFailure(needs []*registeredPod, err error) error {
	if errors.As(err, new(translate.NameConflict)) || errdefs.IsPermanent(err) {
		for _, f := range needs {
			r.opts.ReportFailure(f.pod, err)
		}
	}
	return err
}

func (r *Reflector) podsNeeding(of ref) []*registeredPod {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.copies[of]
	if c == nil {
		return nil
	}
	var needs []*registeredPod
	for _, uid := range slices.Sorted(maps.Keys(c.pods)) {
		needs = append(needs, r.pods[uid])
	}
	return needs
}

// RewriteNamespace writes all copies in a remote namespace again, which was deleted.
func (r *Reflector) RewriteNamespace(namespace string) {
	r.mu.Lock()
	var lost []ref
	for of := range r.copies {
		if at, err := r.remoteName(of); err == nil && at.Namespace == namespace {
			lost = append(lost, of)
		}
	}
	r.mu.Unlock()
	for _, of := range lost {
		r.rewrite(of, true)
	}
}

// acceptRewrite does what rewrite has asked for. The caller holds c.writing.
func (r *Reflector) acceptRewrite(c *copyState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.rewrite.asked {
		c.sum, c.version, c.lost = "", writtenVersion{}, c.lost || c.rewrite.lost
	}
	c.rewrite = rewriteRequest{}
}

// forget drops a copy that was deleted, unless a pod was registered meanwhile that
// needs it. That pod waits for copyState.writing, and writes it then.
func (r *Reflector) forget(of ref) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.copies[of]; c != nil && len(c.pods) == 0 {
		delete(r.copies, of)
	}
}
