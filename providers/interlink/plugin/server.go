package plugin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/internal/providercalls"
	"github.com/virtual-kubelet/virtual-kubelet/internal/turns"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink/internal/wire"
)

const (
	// maxRequest limits bodies of requests: a status has many pods.
	maxRequest = 256 << 20
	// callTimeout is the timeout of a call of the provider. A creation, or a deletion, does
	// not end with the connection of its client.
	callTimeout = 5 * time.Minute
	// removalInterval is how often a pod that is deleted is looked at until it has gone.
	removalInterval = 2 * time.Second
)

// Options are what a Server is made with.
type Options struct {
	// NewProvider makes the provider. Required.
	NewProvider nodeutil.NewProviderFunc
	// NodeName is the name of the node for the provider, which may be in what it creates:
	// it must not change. Defaults to interlink.
	NodeName string
	// ClusterUID stands for the UID of a cluster, by which providers know their own units. It
	// must not change, and has to differ between plugins that use the same service.
	// Defaults to the name of the node.
	ClusterUID types.UID
	// HostIPs are the addresses of the machine, if the provider needs them.
	HostIPs []string
	// Store keeps the pods for the next start. Nil loses them.
	Store Store
}

// Store keeps a text for each pod, which has secrets. It is safe for concurrent use.
type Store interface {
	// Load returns all texts by the UIDs of the pods.
	Load() (map[string][]byte, error)
	// Save replaces the text of a pod, as a whole or not at all.
	Save(uid string, text []byte) error
	// Delete removes the text of a pod, if there is one.
	Delete(uid string) error
}

// Server answers an interLink API server. Make it with New.
type Server struct {
	opts     Options
	cluster  *cluster
	provider nodeutil.Provider
	node     node.NodeProvider // may be nil
	byUID    node.PodUIDLifecycleHandler

	ctx    context.Context // ends with the server
	cancel context.CancelFunc
	work   sync.WaitGroup

	turns turns.Turns // of pods, by their UIDs and names
}

// New loads the pods, and makes the provider. ctx has the logger; the server ends with it,
// or with Close.
func New(ctx context.Context, o Options) (*Server, error) {
	if o.NewProvider == nil {
		return nil, errdefs.InvalidInput("plugin: NewProvider is missing")
	}
	o.NodeName = cmp.Or(o.NodeName, "interlink")
	o.ClusterUID = cmp.Or(o.ClusterUID, types.UID(o.NodeName))
	s := &Server{opts: o}
	var err error
	if s.cluster, err = newCluster(o); err != nil {
		return nil, fmt.Errorf("plugin: %w", err)
	}
	s.ctx, s.cancel = context.WithCancel(ctx)
	init, err := s.cluster.config(s.ctx)
	if err == nil {
		s.provider, s.node, err = o.NewProvider(init)
	}
	if err != nil {
		s.cancel()
		return nil, fmt.Errorf("plugin: cannot make the provider: %w", err)
	}
	s.byUID, _ = s.handler().(node.PodUIDLifecycleHandler)
	if notifier, ok := s.handler().(node.PodNotifier); ok { // some begin to work when they are asked for that
		notifier.NotifyPods(s.ctx, func(*corev1.Pod) {})
	}
	if s.node != nil {
		s.node.NotifyNodeStatus(s.ctx, s.cluster.setNode)
	}
	for _, record := range s.cluster.records() {
		if record.Deleting {
			s.work.Go(func() { s.remove(record) })
		}
	}
	return s, nil
}

// handler returns the provider with all that it can do.
func (s *Server) handler() any {
	if partial, ok := s.provider.(interface {
		Unwrap() node.PodLifecycleHandler
	}); ok {
		return partial.Unwrap()
	}
	return s.provider
}

// Close ends the server. The pods go on, and the provider is left for its owner to close.
func (s *Server) Close() error {
	s.cancel()
	s.work.Wait()
	return nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	routes := map[string]func(http.ResponseWriter, *http.Request, []byte) error{
		"POST /create": s.create, "POST /delete": s.delete, "GET /status": s.status, "GET /getLogs": s.logs,
	}
	serve, ok := routes[r.Method+" "+r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	ctx := log.WithLogger(r.Context(), log.G(s.ctx).WithField("session", fmt.Sprintf("%.100q", r.Header.Get(wire.SessionHeader))))
	if err := serve(w, r.WithContext(ctx), body); err != nil {
		log.G(ctx).WithError(err).WithField("request", r.URL.Path).Warn("Cannot do what the interLink API server asks for")
		http.Error(w, err.Error(), statusOf(err))
	}
}

// statusOf returns the HTTP status of an error.
func statusOf(err error) int {
	_, later := errdefs.RetryAfter(err)
	switch {
	case errdefs.IsPermanent(err), errdefs.IsInvalidInput(err):
		return http.StatusBadRequest
	case errdefs.IsNotFound(err):
		return http.StatusNotFound
	case errdefs.IsConflict(err):
		return http.StatusConflict
	case errors.Is(err, errors.ErrUnsupported):
		return http.StatusNotImplemented
	case later, errdefs.IsUnavailable(err):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

func answer(w http.ResponseWriter, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // the client may have gone
	return nil
}

// lock waits for the turn of a pod, by its UID or its name, and returns what ends it.
func (s *Server) lock(ctx context.Context, pod string) (unlock func(), err error) {
	if unlock, err = s.turns.Take(ctx, pod); err != nil {
		return nil, errdefs.AsUnavailable(fmt.Errorf("pod %s is being created or deleted: %w", pod, err))
	}
	return unlock, nil
}

// call returns a context for a call of the provider, which outlives the client's connection, and the call (see
// node.PodLifecycleHandler). returned is to be called when the call has.
func (s *Server) call(ctx context.Context) (_ context.Context, returned func() bool) {
	call := providercalls.NewLasting(ctx, s.ctx)
	return call, time.AfterFunc(callTimeout, func() { call.End(context.DeadlineExceeded) }).Stop
}

// create creates a pod, once: it may be asked for again after an answer was lost.
func (s *Server) create(w http.ResponseWriter, r *http.Request, body []byte) error {
	in, err := decodeCreate(body)
	if err != nil {
		return err
	}
	for _, pod := range []string{string(in.Pod.UID), in.Pod.Namespace + "/" + in.Pod.Name} {
		unlock, err := s.lock(r.Context(), pod)
		if err != nil {
			return err
		}
		defer unlock()
	}
	record := s.cluster.record(in.Pod.UID)
	if record == nil {
		if record, err = s.newRecord(r.Context(), in); err != nil {
			return err
		}
	}
	if record.Deleting {
		return errdefs.AsConflict(fmt.Errorf("pod %s/%s is being deleted", in.Pod.Namespace, in.Pod.Name))
	}
	if !record.Created {
		ctx, returned := s.call(r.Context())
		defer returned()
		switch err := s.provider.CreatePod(ctx, record.Pod.DeepCopy()); {
		case errdefs.IsPermanent(err) || errdefs.IsInvalidInput(err):
			return errors.Join(err, s.cluster.drop(record))
		case err != nil:
			return err // it may be asked for again
		}
		created := *record
		created.Created = true
		if err := s.cluster.set(&created); err != nil {
			return err
		}
	}
	return answer(w, wire.Created{UID: string(in.Pod.UID), JobID: string(in.Pod.UID)})
}

// podStatus returns the provider's status of a pod.
func (s *Server) podStatus(ctx context.Context, pod *corev1.Pod) (*corev1.PodStatus, error) {
	if s.byUID != nil {
		return s.byUID.GetPodStatusByUID(ctx, pod.Namespace, pod.Name, pod.UID)
	}
	return s.provider.GetPodStatus(ctx, pod.Namespace, pod.Name)
}

// status answers with the statuses of pods. For none of them it is a ping.
func (s *Server) status(w http.ResponseWriter, r *http.Request, body []byte) error {
	var pods []*corev1.Pod
	if err := json.Unmarshal(body, &pods); err != nil {
		return errdefs.InvalidInputf("the body is no list of pods: %w", err)
	}
	if len(pods) == 0 {
		return s.ping(w, r)
	}
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout) // for all of them: the client waits
	defer cancel()
	all := make([]wire.Status, 0, len(pods))
	var failed error
	for _, pod := range pods {
		if pod == nil {
			continue
		}
		record := s.cluster.record(pod.UID)
		if record == nil {
			all = append(all, unknown(pod))
			continue
		}
		found, err := s.podStatus(ctx, record.Pod)
		switch {
		case errdefs.IsNotFound(err):
			all = append(all, unknown(record.Pod))
		case err != nil: // the server goes on with the last status that it has
			failed = err
			log.G(r.Context()).WithError(err).WithFields(log.Fields{"namespace": record.Pod.Namespace, "pod": record.Pod.Name, "uid": string(pod.UID)}).
				Warn("Cannot get the status of a pod")
		default:
			all = append(all, statusOfPod(record.Pod, found))
		}
	}
	if len(all) == 0 && failed != nil {
		return failed
	}
	return answer(w, all)
}

// ping answers with what the node offers.
func (s *Server) ping(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	if s.node != nil {
		if err := s.node.Ping(ctx); err != nil {
			return errdefs.AsUnavailable(err)
		}
	}
	n := s.cluster.currentNode()
	return answer(w, pingOf(n))
}

// delete has the provider delete a pod, and sees to it that it goes. A pod that is not there
// has gone.
func (s *Server) delete(w http.ResponseWriter, r *http.Request, body []byte) error {
	var pod corev1.Pod
	if err := json.Unmarshal(body, &pod); err != nil {
		return errdefs.InvalidInputf("the body is no pod: %w", err)
	}
	unlock, err := s.lock(r.Context(), string(pod.UID))
	if err != nil {
		return err
	}
	defer unlock()
	known := s.cluster.record(pod.UID)
	if known == nil {
		return answer(w, "The pod does not exist")
	}
	deleting := *known
	deleting.Deleting, deleting.Pod = true, known.Pod.DeepCopy()
	seconds := int64(podspec.GracePeriod(&pod, nil) / time.Second)
	deleting.Pod.DeletionGracePeriodSeconds, deleting.Pod.DeletionTimestamp = &seconds, ptr.To(metav1.Now())
	if !known.Deleting || deleting.deadline().Before(known.deadline()) {
		if err := s.cluster.set(&deleting); err != nil {
			return err
		}
	}
	if !known.Deleting {
		s.work.Go(func() { s.remove(&deleting) })
	}
	return answer(w, "The pod is being deleted")
}

// remove deletes a pod, as often as it takes: within its grace period, which may get shorter, and
// without one after that. It ends when the pod is gone, or another one has taken its name: a provider
// may go by that.
func (s *Server) remove(r *record) {
	ctx := log.WithLogger(s.ctx, log.G(s.ctx).WithFields(log.Fields{"namespace": r.Pod.Namespace, "pod": r.Pod.Name, "uid": string(r.Pod.UID)}))
	accepted := int64(math.MaxInt64) // the grace period of the last deletion that the provider has accepted
	for wait := time.Duration(0); periodic.Sleep(ctx, wait) == nil; wait = removalInterval {
		if r = s.cluster.record(r.Pod.UID); r == nil {
			return
		}
		pod := r.Pod.DeepCopy()
		grace := pod.DeletionGracePeriodSeconds
		if time.Now().After(r.deadline()) {
			*grace = 0
		}
		if *grace < accepted {
			err := s.deleteOnce(ctx, pod)
			if err != nil && !errdefs.IsNotFound(err) {
				log.G(ctx).WithError(err).Warn("Cannot delete a pod")
				continue
			}
			accepted = *grace
		}
		found, err := s.podStatus(ctx, pod)
		if errdefs.IsNotFound(err) || err == nil && hasEnded(found) {
			if err = s.drop(ctx, r); err == nil {
				return
			}
			log.G(ctx).WithError(err).Warn("Cannot forget a pod that is gone")
		}
	}
}

// drop forgets a pod, and not while a request is about it, which would store it again.
func (s *Server) drop(ctx context.Context, r *record) error {
	unlock, err := s.lock(ctx, string(r.Pod.UID))
	if err != nil {
		return err
	}
	defer unlock()
	return s.cluster.drop(r)
}

func (s *Server) deleteOnce(ctx context.Context, pod *corev1.Pod) error {
	ctx, returned := s.call(ctx)
	defer returned()
	return s.provider.DeletePod(ctx, pod)
}

// logs sends the log of a container, as it comes.
func (s *Server) logs(w http.ResponseWriter, r *http.Request, body []byte) error {
	var in wire.Log
	if err := json.Unmarshal(body, &in); err != nil {
		return errdefs.InvalidInputf("the body is no request for a log: %w", err)
	}
	known := s.cluster.record(types.UID(in.PodUID))
	if known == nil || known.Pod.Namespace != in.Namespace {
		return errdefs.NotFoundf("there is no pod with the UID %.100q in that namespace", in.PodUID)
	}
	if !slices.ContainsFunc(slices.Concat(known.Pod.Spec.InitContainers, known.Pod.Spec.Containers), func(c corev1.Container) bool { return c.Name == in.ContainerName }) {
		return errdefs.NotFoundf("pod %s/%s has no container %.100q", known.Pod.Namespace, known.Pod.Name, in.ContainerName)
	}
	o := in.Opts
	if o.Tail < 0 || o.Bytes < 0 || o.SinceSeconds < 0 {
		return errdefs.InvalidInput("numbers of lines, bytes and seconds are positive")
	}
	stream, err := s.provider.GetContainerLogs(r.Context(), known.Pod.Namespace, known.Pod.Name, in.ContainerName, api.ContainerLogOpts{
		Tail: o.Tail, LimitBytes: o.Bytes, Timestamps: o.Timestamps, Follow: o.Follow, Previous: o.Previous, SinceSeconds: o.SinceSeconds, SinceTime: o.SinceTime,
	})
	if err != nil {
		return err
	}
	if stream == nil { // an empty log
		stream = http.NoBody
	}
	closeOnce := sync.OnceFunc(func() { _ = stream.Close() }) // what it says comes too late for the client
	defer closeOnce()
	defer context.AfterFunc(s.ctx, closeOnce)()
	defer context.AfterFunc(r.Context(), closeOnce)()
	w.Header().Set("Content-Type", "text/plain")
	flush := http.NewResponseController(w).Flush
	_ = flush() // a client waits for the header no longer than for any answer, and a container may be silent
	part := make([]byte, 32<<10)
	for {
		n, err := stream.Read(part)
		if _, err := w.Write(part[:n]); err != nil {
			return nil // the client has gone
		}
		if n > 0 || err != nil {
			_ = flush() // not all writers can
		}
		if err != nil {
			return nil // also if it broke off: the header is sent
		}
	}
}
