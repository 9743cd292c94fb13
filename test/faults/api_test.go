package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// apiServer is a small API server in memory. It speaks the protocol of the real
// one (protobuf, watches, resource versions that expire), and keeps its rules for
// pods: status and spec apart, UIDs as preconditions, graceful deletion,
// finalizers, generations.
type apiServer struct {
	audit  auditor
	behind func() time.Duration // is its clock, when it stamps deletions
	keeps  int                  // so many of the last events can be watched from

	mu      sync.Mutex
	version uint64
	uids    int
	kinds   map[string]*kindOfObject // by resource
	events  []event
	expired uint64 // the version up to which events are forgotten
	changed chan struct{}
	served  map[string]int // requests by verb and resource, of agents
}

// auditor sees what is done to pods, with the server's lock held.
type auditor interface {
	auditPatch(before, after *corev1.Pod, subresource string, patch []byte)
	auditDelete(pod *corev1.Pod, options *metav1.DeleteOptions)
	auditEnd(pod *corev1.Pod)
	know(pod *corev1.Pod) // any change of a pod, by anyone
}

type kindOfObject struct {
	gvk     schema.GroupVersionKind
	make    func() object
	shallow func(object) object             // a copy: encoders set the kind in what they encode
	objects map[types.NamespacedName]object // never changed, only replaced
}

func addKind[T any, P interface {
	*T
	object
}](s *apiServer, resource string, gvk schema.GroupVersionKind) {
	s.kinds[resource] = &kindOfObject{
		gvk:     gvk,
		make:    func() object { return P(new(T)) },
		shallow: func(o object) object { c := *o.(P); return P(&c) },
		objects: map[types.NamespacedName]object{},
	}
}

type object interface {
	runtime.Object
	metav1.Object
}

type event struct {
	version  uint64
	resource string
	kind     watch.EventType
	object   object
}

func newAPIServer(audit auditor) *apiServer {
	s := &apiServer{audit: audit, behind: func() time.Duration { return 0 }, keeps: 40, kinds: map[string]*kindOfObject{}, changed: make(chan struct{}), served: map[string]int{}}
	v1 := corev1.SchemeGroupVersion
	addKind[corev1.Pod](s, "pods", v1.WithKind("Pod"))
	addKind[corev1.Node](s, "nodes", v1.WithKind("Node"))
	addKind[corev1.Service](s, "services", v1.WithKind("Service"))
	addKind[corev1.ConfigMap](s, "configmaps", v1.WithKind("ConfigMap"))
	addKind[corev1.Secret](s, "secrets", v1.WithKind("Secret"))
	addKind[coordinationv1.Lease](s, "leases", coordinationv1.SchemeGroupVersion.WithKind("Lease"))
	return s
}

// transport returns the way to the server for an agent, or for somebody whose
// deeds nobody audits.
func (s *apiServer) transport(agent bool) http.RoundTripper { return door{s, agent} }

type door struct {
	server *apiServer
	agent  bool
}

// clientOver returns a client that speaks protobuf over a transport.
func clientOver(transport http.RoundTripper) kubernetes.Interface {
	return clientTo("http://api", transport)
}

func clientTo(host string, transport http.RoundTripper) kubernetes.Interface {
	config := &rest.Config{Host: host, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf}}
	client, err := kubernetes.NewForConfigAndClient(config, &http.Client{Transport: transport})
	if err != nil {
		panic(err) // the configuration is the same in all tests
	}
	return client
}

// call is a request, taken apart.
type call struct {
	agent       bool
	ctx         context.Context
	verb        string
	resource    string
	name        types.NamespacedName
	subresource string
	query       map[string][]string
	body        []byte
}

func (d door) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := request.Context().Err(); err != nil {
		return nil, err
	}
	c := &call{agent: d.agent, ctx: request.Context(), query: request.URL.Query(), verb: request.Method}
	if request.Body != nil {
		var err error
		if c.body, err = io.ReadAll(request.Body); err != nil {
			return nil, err
		}
		_ = request.Body.Close()
	}
	// /api/v1/... or /apis/GROUP/VERSION/...
	path := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	path = path[min(len(path), map[string]int{"api": 2, "apis": 3}[path[0]]):]
	if len(path) > 1 && path[0] == "namespaces" {
		c.name.Namespace, path = path[1], path[2:]
	}
	path = append(path, "", "", "")
	c.resource, c.name.Name, c.subresource = path[0], path[1], path[2]

	if c.agent {
		d.server.mu.Lock()
		d.server.served[c.verb+" "+c.resource]++
		d.server.mu.Unlock()
	}
	if c.verb == http.MethodGet && slices.Contains(c.query["watch"], "true") {
		return d.server.serveWatch(c)
	}
	result, err := d.server.serve(c)
	if o, ok := result.(object); ok {
		result = d.server.kinds[c.resource].shallow(o)
	}
	return response(result, err)
}

// protobuf is how answers are encoded.
var protobuf, _ = runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)

func response(result runtime.Object, err error) (*http.Response, error) {
	code := http.StatusOK
	if err != nil {
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			status = apierrors.NewInternalError(err)
		}
		answer := status.Status()
		code, result = int(answer.Code), &answer
	}
	var buffer bytes.Buffer
	if err := scheme.Codecs.EncoderForVersion(protobuf.Serializer, versionOf(result)).Encode(result, &buffer); err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: code, Status: strconv.Itoa(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        http.Header{"Content-Type": {runtime.ContentTypeProtobuf}},
		Body:          io.NopCloser(&buffer),
		ContentLength: int64(buffer.Len()),
	}, nil
}

func versionOf(o runtime.Object) schema.GroupVersion {
	if kinds, _, err := scheme.Scheme.ObjectKinds(o); err == nil && len(kinds) > 0 {
		for _, kind := range kinds {
			if kind.Version != runtime.APIVersionInternal {
				return kind.GroupVersion()
			}
		}
	}
	return corev1.SchemeGroupVersion
}

func (s *apiServer) serve(c *call) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := s.kinds[c.resource]
	if kind == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: c.resource}, c.name.Name)
	}
	switch {
	case c.verb == http.MethodGet && c.name.Name == "":
		return s.list(kind, c)
	case c.verb == http.MethodGet:
		if o := kind.objects[c.name]; o != nil {
			return o, nil
		}
		return nil, notFound(c)
	case c.verb == http.MethodPost:
		return s.create(kind, c)
	case c.verb == http.MethodPut:
		return s.replace(kind, c)
	case c.verb == http.MethodPatch:
		return s.patch(kind, c)
	case c.verb == http.MethodDelete:
		return s.delete(kind, c)
	}
	return nil, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: c.resource}, c.verb)
}

func notFound(c *call) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: c.resource}, c.name.Name)
}

func conflict(c *call, format string, args ...any) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: c.resource}, c.name.Name, fmt.Errorf(format, args...))
}

func (s *apiServer) list(kind *kindOfObject, c *call) (runtime.Object, error) {
	list, err := scheme.Scheme.New(kind.gvk.GroupVersion().WithKind(kind.gvk.Kind + "List"))
	if err != nil {
		return nil, err
	}
	selects, err := selection(c)
	if err != nil {
		return nil, err
	}
	var items []runtime.Object
	for _, o := range sorted(kind.objects) {
		if selects(o) {
			items = append(items, o)
		}
	}
	if err := meta.SetList(list, items); err != nil {
		return nil, err
	}
	list.(metav1.ListInterface).SetResourceVersion(strconv.FormatUint(s.version, 10))
	return list, nil
}

func sorted(objects map[types.NamespacedName]object) []object {
	all := make([]object, 0, len(objects))
	for _, o := range objects {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b object) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	return all
}

// selection is the namespace and the field selector of a call.
func selection(c *call) (func(object) bool, error) {
	selector := fields.Everything()
	if text := strings.Join(c.query["fieldSelector"], ","); text != "" {
		var err error
		if selector, err = fields.ParseSelector(text); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	return func(o object) bool {
		if c.name.Namespace != "" && c.name.Namespace != o.GetNamespace() {
			return false
		}
		set := fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()}
		if pod, ok := o.(*corev1.Pod); ok {
			set["spec.nodeName"] = pod.Spec.NodeName
		}
		return selector.Matches(set)
	}, nil
}

// store makes o the object of its name, and sends it to the watches.
func (s *apiServer) store(kind *kindOfObject, resource string, o object, what watch.EventType) {
	s.version++
	o.SetResourceVersion(strconv.FormatUint(s.version, 10))
	name := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
	pod, isPod := o.(*corev1.Pod)
	if isPod {
		logEvent("API: %s %s (%s) version %s: %s, to be deleted %v by %v", what, pod.Name, pod.UID, pod.ResourceVersion, pod.Status.Phase, pod.DeletionTimestamp != nil, pod.DeletionTimestamp)
		s.audit.know(pod)
	}
	if what == watch.Deleted {
		delete(kind.objects, name)
		if isPod {
			s.audit.auditEnd(pod)
		}
	} else {
		kind.objects[name] = o
	}
	s.events = append(s.events, event{s.version, resource, what, o})
	if len(s.events) > 2*s.keeps {
		s.forgetEvents(s.keeps)
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// forgetEvents keeps the last few events only.
func (s *apiServer) forgetEvents(keep int) {
	if len(s.events) <= keep {
		return
	}
	forgotten := len(s.events) - keep
	s.expired = s.events[forgotten-1].version
	s.events = slices.Clone(s.events[forgotten:])
}

// compact has all resource versions but the newest expire.
func (s *apiServer) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetEvents(0)
}

func (s *apiServer) newUID() types.UID {
	s.uids++
	return types.UID(fmt.Sprintf("uid-%d", s.uids))
}

func (s *apiServer) create(kind *kindOfObject, c *call) (runtime.Object, error) {
	o := kind.make()
	if err := runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), c.body, o); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	o.SetNamespace(c.name.Namespace)
	name := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
	if kind.objects[name] != nil {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: c.resource}, o.GetName())
	}
	o.SetUID(s.newUID())
	o.SetCreationTimestamp(now())
	o.SetGeneration(1)
	if pod, ok := o.(*corev1.Pod); ok {
		pod.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBestEffort}
	}
	s.store(kind, c.resource, o, watch.Added)
	return o, nil
}

// now is the time as the API has it, in whole seconds.
func now() metav1.Time { return metav1.Time{Time: time.Now().Truncate(time.Second)} }
