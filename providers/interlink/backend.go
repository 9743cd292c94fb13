package interlink

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/lastlines"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/rest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink/internal/wire"
)

// AnnotationJobID is the annotation of a pod with the plugin's ID of its job.
const AnnotationJobID = "JobID"

const (
	// statusLag is how old statuses can be: plugins answer from caches of ten seconds, which
	// lack a pod that was created since.
	statusLag = 15 * time.Second
	// unansweredLag is how long a creation may go on that was not answered: servers and plugins do
	// not notice that nobody waits any more. Package plugin gives its provider five minutes, of which
	// the request has waited for two.
	unansweredLag = 5 * time.Minute
	// answerRetry is when to ask again a plugin that has answered about other pods.
	answerRetry = 2 * time.Second
	// lookUpTimeout is how long Create asks for the pod before it creates it.
	lookUpTimeout = time.Minute
)

var (
	_ podgroup.Getter      = (*backend)(nil)
	_ podgroup.LogStreamer = (*backend)(nil)
	_ podgroup.Reporter    = (*backend)(nil)
)

// backend maps pods to the protocol. A unit has the UID of its pod as its ID: the protocol
// knows pods by it.
type backend struct {
	*rest.Client
	config     *Config
	cluster    kubernetes.Interface // where pods are annotated; nil does without
	process    string               // the sender of its creations
	started    time.Time
	unclear    recent      // creations that may have happened, or not, as far as statuses show
	unanswered recent      // creations that may still happen
	deleted    recent      // deletions that were asked for
	stateless  atomic.Bool // the plugin reports pods that it does not know as ones without a state
	refused    recent      // deletions of pods that have ended, since when
	unstarted  recent      // pods that have ended without a start, since when
}

// Create implements podgroup.Backend. The protocol does not make creations idempotent: a pod
// that is created twice is two jobs. So it is looked for before, and not before statuses
// show what an earlier try has left.
func (b *backend) Create(ctx context.Context, r *podgroup.Request) (podgroup.Unit, error) {
	wait := b.untilStatusesAreClear(r.Pod) // before the look-up: one that began earlier may show what was before
	mayExist := b.mayExist(r.Pod)
	found, err := b.prepare(ctx, r.Pod, wait, mayExist)
	if err != nil {
		if _, known := errors.AsType[jobUnclear](err); !known && !mayExist {
			err = podgroup.NotCreated(err)
		}
		return podgroup.Unit{}, err
	}
	if found != nil {
		return *found, nil
	}
	request := b.request(r)
	var answer json.RawMessage
	err = b.Do(ctx, call(podgroup.ActionCreate, http.MethodPost, "/create", request, r.Secrets()...), &answer)
	if err != nil {
		b.failed(r.Pod.UID, rest.StatusOf(err))
		return podgroup.Unit{}, err
	}
	b.unclear.add(r.Pod.UID) // statuses need not show it yet
	created := podgroup.Unit{ID: string(r.Pod.UID), Data: r.Pod}
	if id := jobID(answer, r.Pod.UID); id != "" {
		created.Annotations = map[string]string{AnnotationJobID: id}
	}
	return created, nil
}

// prepare returns what an earlier creation of a pod has left, nil for nothing. After an error nothing is
// sent yet. Statuses are clear after wait.
func (b *backend) prepare(ctx context.Context, pod *corev1.Pod, wait time.Duration, mayExist bool) (*podgroup.Unit, error) {
	if mayExist {
		if err := b.forget(ctx, pod.UID); err != nil { // it may have known the pod as one without a job
			return nil, err
		}
	}
	found, unknown, err := b.lookUp(ctx, pod)
	switch {
	case err != nil && rest.StatusOf(err) != http.StatusNotFound:
		return nil, err
	case len(found) > 0:
		return &found[0], nil
	case wait > 0:
		return nil, errdefs.AsRetryAfter(errors.New("an earlier creation of the pod may have happened: looking for it first"), min(wait, statusLag))
	case mayExist && err == nil && !unknown[pod.UID] && b.stateless.Load():
		return nil, errdefs.AsRetryAfter(errors.New("an earlier creation of the pod may have happened, and the plugin has answered about other pods: asking again"), answerRetry)
	}
	return nil, b.recordSender(ctx, pod)
}

func (b *backend) lookUp(ctx context.Context, pod *corev1.Pod) (found []podgroup.Unit, unknown map[types.UID]bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	return b.ask(ctx, []*corev1.Pod{pod})
}

// failed records a creation that was answered with an HTTP status; 0 is no answer. A gateway gives
// up, too, while the server goes on.
func (b *backend) failed(uid types.UID, status int) {
	switch {
	case status == 0, status == http.StatusBadGateway, status == http.StatusGatewayTimeout:
		b.unanswered.add(uid)
	case status >= http.StatusInternalServerError:
		b.unclear.add(uid)
	}
}

// mayExist reports whether the creation of a pod may have been sent.
func (b *backend) mayExist(pod *corev1.Pod) bool {
	_, unclear := b.unclear.since(pod.UID)
	_, unanswered := b.unanswered.since(pod.UID)
	return unclear || unanswered || pod.CreationTimestamp.Time.Before(b.started)
}

// untilStatusesAreClear returns how long a missing status does not mean that there is no
// job: after an error of a creation, and after the start, or the first look at a creation that
// another process has sent, if that may have begun one. It is not positive if it does.
func (b *backend) untilStatusesAreClear(pod *corev1.Pod) time.Duration {
	if b.sentByAnother(pod) {
		b.unanswered.addOnce(pod.UID)
	}
	if at, ok := b.unanswered.since(pod.UID); ok && time.Since(at) < unansweredLag {
		return time.Until(at.Add(unansweredLag))
	}
	since, ok := b.unclear.since(pod.UID)
	if !ok && pod.CreationTimestamp.Time.Before(b.started) {
		since = b.started
	}
	return time.Until(since.Add(statusLag))
}

// recent are the times at which something happened to pods, as far as they are not older than max.
type recent struct {
	max time.Duration

	mu sync.Mutex
	at map[types.UID]time.Time
}

func (r *recent) add(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at == nil {
		r.at = map[types.UID]time.Time{}
	}
	maps.DeleteFunc(r.at, func(_ types.UID, at time.Time) bool { return time.Since(at) > r.max })
	r.at[uid] = time.Now()
}

// addOnce is add for pods to which it has not happened yet, and returns when it has.
func (r *recent) addOnce(uid types.UID) (at time.Time) {
	if _, ok := r.since(uid); !ok {
		r.add(uid)
	}
	at, _ = r.since(uid)
	return at
}

func (r *recent) since(uid types.UID) (at time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok = r.at[uid]
	return at, ok
}

// jobID returns the ID of a job from the answer to a creation, which is an object, or a list
// of one, by the plugin. It is for people: an answer that is neither is none.
func jobID(answer json.RawMessage, uid types.UID) string {
	var list []wire.Created
	if json.Unmarshal(answer, &list) != nil {
		list = make([]wire.Created, 1)
		_ = json.Unmarshal(answer, &list[0])
	}
	for _, one := range list {
		if one.UID == string(uid) {
			return one.JobID
		}
	}
	return ""
}

// request translates the request for a pod.
func (b *backend) request(r *podgroup.Request) *wire.Create {
	pod := sentPod(r.Pod)
	request := &wire.Create{
		Pod: pod, ConfigMaps: []corev1.ConfigMap{}, Secrets: []corev1.Secret{}, Projected: []corev1.ConfigMap{}, JobScriptURL: b.config.JobScriptBuilderURL,
	}
	sent := sentVolumes{config: b.config, request: request}
	sent.add(pod, r.Files)
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			b.completeEnv(&containers[i])
		}
	}
	return request
}

// completeEnv sets what the cluster's API server, and the pod's address, are outside of the
// cluster.
func (b *backend) completeEnv(c *corev1.Container) {
	for i := range c.Env {
		from := c.Env[i].ValueFrom
		if from != nil && from.FieldRef != nil && slices.Contains([]string{"status.podIP", "status.podIPs"}, from.FieldRef.FieldPath) && b.config.PodIP != "" {
			c.Env[i].Value, c.Env[i].ValueFrom = b.config.PodIP, nil
		}
	}
	host, port := b.config.KubernetesAPIAddr, b.config.KubernetesAPIPort
	if host == "" || port == "" {
		return
	}
	for _, v := range []corev1.EnvVar{
		{Name: "KUBERNETES_SERVICE_HOST", Value: host}, {Name: "KUBERNETES_SERVICE_PORT", Value: port}, {Name: "KUBERNETES_SERVICE_PORT_HTTPS", Value: port},
		{Name: "KUBERNETES_PORT", Value: "tcp://" + host + ":" + port}, {Name: "KUBERNETES_PORT_443_TCP", Value: "tcp://" + host + ":" + port},
		{Name: "KUBERNETES_PORT_443_TCP_ADDR", Value: host}, {Name: "KUBERNETES_PORT_443_TCP_PORT", Value: port}, {Name: "KUBERNETES_PORT_443_TCP_PROTO", Value: "tcp"},
	} {
		if i := slices.IndexFunc(c.Env, func(known corev1.EnvVar) bool { return known.Name == v.Name }); i >= 0 {
			c.Env[i] = v
		} else {
			c.Env = append(c.Env, v)
		}
	}
}

// sentPod returns the copy of a pod that is sent. The server asks the plugin again only for
// pods that are pending or run.
func sentPod(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.ManagedFields = nil
	delete(pod.Annotations, AnnotationSender) // a node behind the plugin would take it for its own
	pod.APIVersion, pod.Kind = "v1", "Pod"
	if phase := pod.Status.Phase; phase != corev1.PodRunning {
		pod.Status.Phase = corev1.PodPending
	}
	return pod
}

// StreamLog implements podgroup.LogStreamer. The server refuses pairs of options that a
// kubelet takes. Plugins take Bytes for the end of a log, not its beginning: they are not
// asked for it.
func (b *backend) StreamLog(ctx context.Context, u *podgroup.Unit, container string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
	in := wire.Log{
		Namespace: u.Owner.Namespace, PodName: u.Owner.Name, PodUID: string(u.Owner.UID), ContainerName: container,
		Opts: wire.LogOptions{
			Tail: opts.Tail, Timestamps: opts.Timestamps, Follow: opts.Follow, Previous: opts.Previous,
			SinceSeconds: opts.SinceSeconds, SinceTime: opts.SinceTime,
		},
	}
	if !opts.SinceTime.IsZero() {
		in.Opts.SinceSeconds = 0
	}
	body, err := b.openLog(ctx, in)
	if rest.StatusOf(err) >= http.StatusInternalServerError && opts.Tail > 0 {
		// The Slurm plugin fails for the last lines of a log that has no more.
		in.Opts.Tail = 0
		if body, err = b.openLog(ctx, in); err == nil && !opts.Follow {
			body, err = lastLines(body, opts.Tail)
		}
	}
	return body, err
}

func (b *backend) openLog(ctx context.Context, in wire.Log) (io.ReadCloser, error) {
	return b.Open(ctx, call(podgroup.ActionLog, http.MethodGet, "/getLogs", in))
}

// lastLines reads a log to its end, and returns its last lines, up to lastlines.MaxBytes.
func lastLines(log io.ReadCloser, count int) (io.ReadCloser, error) {
	defer log.Close()
	last := &lastlines.Writer{Lines: count}
	if _, err := io.Copy(last, log); err != nil {
		return nil, errdefs.AsUnavailable(fmt.Errorf("cannot read the log: %w", err))
	}
	return io.NopCloser(bytes.NewReader(last.Bytes())), nil
}

// check returns what of a pod the provider cannot do, besides fields of its spec.
func check(pod *corev1.Pod) (missing []string) {
	for _, key := range []string{"interlink.eu/disable-offload-containers", "interlink.eu/disable-offload-init-containers"} {
		if pod.Annotations[key] != "" {
			missing = append(missing, fmt.Sprintf("annotation %s: all containers of a pod are sent", key))
		}
	}
	return missing
}
