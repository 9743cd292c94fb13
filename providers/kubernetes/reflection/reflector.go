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
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/translate"
)

const (
	// workers is how many copies are written at the same time.
	workers = 4
	// rereadInterval is how often an original is read again: what nobody reads
	// for five minutes is no longer watched at home.
	rereadInterval = 2 * time.Minute
	// removeInterval is how often to look whether copies may be removed again, and
	// writeTimeout how long one attempt to bring a copy to where it should be may take: a
	// call that hangs holds all pods that need the copy.
	removeInterval = 5 * time.Second
	writeTimeout   = time.Minute
)

// Options say where originals are, and where copies.
type Options struct {
	// Translate has the names of copies.
	Translate *translate.Options
	// Objects has the originals.
	Objects node.ObjectSource
	// Tokens requests tokens of service accounts at home.
	Tokens volume.TokenRequester
	// NodeAllocatable is for the downward API; nil means nothing.
	NodeAllocatable func() corev1.ResourceList
	// Remote is the remote cluster.
	Remote kubernetes.Interface
	// Environment resolves the environment of a pod at home, which is not known of a
	// pod that was taken up, where its copy is lost. Nil means that it is not.
	Environment func(ctx context.Context, pod *corev1.Pod) (map[string][]byte, error)
	// MayRemove reports whether this process may remove copies: not while another one
	// may have the node, whose pods may need them. Nil means always.
	MayRemove func() bool
	// Tell is called for each pod that needs a copy that cannot be written. It
	// must not block. Required.
	Tell func(pod *corev1.Pod, err error)
}

// Reflector keeps the copies. It is safe for concurrent use.
type Reflector struct {
	opts    Options
	sources volume.Sources
	queue   workqueue.TypedRateLimitingInterface[ref]

	mu     sync.Mutex
	pods   map[types.UID]*followed
	copies map[ref]*copied
}

// ref names an original, or for the kinds that are for one pod alone the pod by
// its UID.
type ref struct{ kind, namespace, name string }

// followed is a pod whose copies are kept.
type followed struct {
	pod   *corev1.Pod
	env   map[string][]byte // nil where it is not known: it stays as it is, unless it is lost
	refs  map[ref]bool      // whether the pod cannot run without
	since time.Time
}

// copied is the state of one copy.
type copied struct {
	writing sync.Mutex // held while the copy is looked at or changed
	written string     // what was written last: see content.sum
	is      written    // where that is known: what the remote cluster made of it
	missing bool       // the original is, and hence the copy
	lost    bool       // the copy was there, and is gone

	pods map[types.UID]struct{} // that need it; Reflector.mu is held
}

// written is a version of an object in the remote cluster.
type written struct {
	uid     types.UID
	version string
	kind    corev1.SecretType
}

func writtenAs(object metav1.Object) written {
	is := written{uid: object.GetUID(), version: object.GetResourceVersion()}
	if secret, ok := object.(*corev1.Secret); ok {
		is.kind = secret.Type
	}
	return is
}

// New makes a Reflector.
func New(opts Options) *Reflector {
	tokens := volume.NewTokens(opts.Tokens)
	return &Reflector{
		opts:    opts,
		sources: volume.Sources{Objects: opts.Objects, Tokens: tokens},
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[ref](200*time.Millisecond, time.Minute)),
		pods:    map[types.UID]*followed{},
		copies:  map[ref]*copied{},
	}
}

// Run follows the originals until ctx ends.
func (r *Reflector) Run(ctx context.Context) {
	defer r.opts.Objects.Subscribe(func(kind, namespace, name string) {
		if of := (ref{kind, namespace, name}); r.needed(of) {
			r.queue.Add(of)
		}
	})()
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for r.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	r.queue.ShutDown()
	running.Wait()
}

// Close ends a Reflector that may never have run.
func (r *Reflector) Close() { r.queue.ShutDown() }

func (r *Reflector) next(ctx context.Context) bool {
	of, end := r.queue.Get()
	if end {
		return false
	}
	defer r.queue.Done(of)
	if err := r.reflectOnce(ctx, of); err != nil && ctx.Err() == nil {
		log.G(ctx).WithError(err).WithFields(log.Fields{"kind": of.kind, "namespace": of.namespace, "name": of.name}).
			Warn("Cannot reflect an object into the remote cluster; it is tried again")
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

// Follow keeps the copies that pod, whose environment is resolved, needs. It
// returns when all that can be are there. What is missing at home is told of, and
// reflected once it appears.
func (r *Reflector) Follow(ctx context.Context, pod *corev1.Pod) error {
	f := r.follow(pod, r.opts.Translate.Environment(pod))
	var errs []error
	for of := range f.refs {
		if err := r.reflectOnce(ctx, of); err != nil {
			errs = append(errs, err)
			r.queue.AddRateLimited(of)
		}
	}
	return errors.Join(errs...)
}

// TakeUp keeps the copies of a pod that runs already. Its environment need not be
// resolved. It does not wait, and does nothing about a pod that is followed.
func (r *Reflector) TakeUp(pod *corev1.Pod) {
	if r.Follows(pod.UID) {
		return
	}
	r.opts.Objects.Follow(pod) // as the node does for a pod that it creates
	for of := range r.follow(pod, nil).refs {
		r.queue.Add(of)
	}
}

// Follows tells whether the copies of a pod are kept.
func (r *Reflector) Follows(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pods[uid] != nil
}

func (r *Reflector) follow(pod *corev1.Pod, env map[string][]byte) *followed {
	f := &followed{pod: pod.DeepCopy(), env: env, refs: map[ref]bool{}, since: time.Now()}
	for o, required := range translate.Objects(pod) {
		f.refs[ref{o.Kind, pod.Namespace, o.Name}] = required
	}
	if len(translate.Files(pod)) > 0 {
		f.refs[ref{translate.KindFiles, pod.Namespace, string(pod.UID)}] = true
	}
	f.refs[ref{translate.KindEnvironment, pod.Namespace, string(pod.UID)}] = true

	r.mu.Lock()
	defer r.mu.Unlock()
	if old := r.pods[pod.UID]; old != nil {
		f.since = old.since
		for of, required := range old.refs { // volumes do not change
			f.refs[of] = f.refs[of] || required
		}
	}
	r.pods[pod.UID] = f
	for of := range f.refs {
		c := r.copies[of]
		if c == nil {
			c = &copied{pods: map[types.UID]struct{}{}}
			r.copies[of] = c
		}
		c.pods[pod.UID] = struct{}{}
	}
	return f
}

// Forget lets go of a pod, and of the copies that no other needs.
func (r *Reflector) Forget(uid types.UID) {
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

// Pods returns the pods that have been followed for at least so long.
func (r *Reflector) Pods(age time.Duration) []*corev1.Pod {
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

func (r *Reflector) needed(of ref) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.copies[of] != nil
}

// reflectOnce is reflect, for writeTimeout at most.
func (r *Reflector) reflectOnce(ctx context.Context, of ref) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return r.reflect(ctx, of)
}

// reflect brings one copy to where it should be.
func (r *Reflector) reflect(ctx context.Context, of ref) error {
	r.mu.Lock()
	c := r.copies[of]
	r.mu.Unlock()
	if c == nil {
		return nil
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	needs := r.needing(of)
	if len(needs) == 0 {
		if !r.mayRemove() {
			r.queue.AddAfter(of, removeInterval)
			return nil
		}
		if err := r.remove(ctx, of, c); err != nil {
			return err
		}
		c.written, c.is = "", written{}
		r.drop(of)
		return nil
	}
	wanted, err := r.content(ctx, of, needs[0], c.lost)
	switch {
	case apierror.IsNotFound(err):
		for _, f := range needs {
			if f.refs[of] {
				r.opts.Tell(f.pod, fmt.Errorf("%s %q not found", of.kind, of.name))
			}
		}
		r.queue.AddAfter(of, rereadInterval)
		if c.missing || !r.mayRemove() {
			return nil
		}
		if err := r.remove(ctx, of, c); err != nil {
			return err
		}
		c.written, c.is, c.missing = "", written{}, true
		return nil
	case err != nil:
		return r.tell(needs, err)
	case wanted == nil: // not known
		return nil
	}
	if again := time.Until(wanted.renew); !wanted.renew.IsZero() {
		r.queue.AddAfter(of, max(again, time.Second))
	} else if of.kind == translate.KindConfigMap || of.kind == translate.KindSecret {
		r.queue.AddAfter(of, rereadInterval)
	}
	if sum := wanted.sum(); c.written != sum {
		if err := r.apply(ctx, of, c, wanted); err != nil {
			return r.tell(needs, err)
		}
		c.written, c.missing, c.lost = sum, false, false
	}
	return nil
}

func (r *Reflector) mayRemove() bool { return r.opts.MayRemove == nil || r.opts.MayRemove() }

// tell tells the pods of an error that waiting alone does not cure.
func (r *Reflector) tell(needs []*followed, err error) error {
	if errors.As(err, new(translate.NameConflict)) || errdefs.IsPermanent(err) {
		for _, f := range needs {
			r.opts.Tell(f.pod, err)
		}
	}
	return err
}

func (r *Reflector) needing(of ref) []*followed {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.copies[of]
	if c == nil {
		return nil
	}
	var needs []*followed
	for _, uid := range slices.Sorted(maps.Keys(c.pods)) {
		needs = append(needs, r.pods[uid])
	}
	return needs
}

// WriteAgain writes all copies in a remote namespace again, which has gone, and they
// with it.
func (r *Reflector) WriteAgain(namespace string) {
	r.mu.Lock()
	var lost []ref
	for of := range r.copies {
		if at, err := r.place(of); err == nil && at.Namespace == namespace {
			lost = append(lost, of)
		}
	}
	r.mu.Unlock()
	for _, of := range lost {
		r.writeAgain(of, true)
	}
}

// drop forgets a copy that is removed, unless a pod has come to need it. That pod
// waits for copied.writing, and writes it then.
func (r *Reflector) drop(of ref) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.copies[of]; c != nil && len(c.pods) == 0 {
		delete(r.copies, of)
	}
}
