package podwatch

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// A lookup returns the pod of a name on a node as the watch has last shown it, or nil. It is read only.
type lookup func(node, namespace, name string) *corev1.Pod

// newClient returns the client of pods of client, whose patches and watches decode what is new to
// known. Pods that they return share the rest with those that are known, and are for reading.
// They have no managed fields.
//
// Most of what an API server sends about a pod is known: an answer to a patch and the event of
// the watch that follows have the same pod, and of most events only the status is new. Decoding
// is the larger part of what a node does about an event.
//
// A client that is not client-go's own, such as a fake, or that has to speak JSON, is returned as it is.
func newClient(client kubernetes.Interface, known lookup) corev1client.PodsGetter {
	plain := client.CoreV1()
	if _, ok := client.(*kubernetes.Clientset); !ok {
		return plain
	}
	core, ok := plain.RESTClient().(*rest.RESTClient)
	if !ok || core == nil || !SpeaksProtobuf(core) {
		return plain
	}
	decoder := &podDecoder{known: known}
	watches := watchClient(core, decoder)
	if watches == nil {
		return plain
	}
	return &leanPods{plain, core, watches, decoder}
}

// SpeaksProtobuf reports whether a client's configuration leaves it protobuf: by default it does. An object that
// has no encoding in protobuf is no body for such a client.
func SpeaksProtobuf(client *rest.RESTClient) bool {
	return client.Post().UseProtobufAsDefault().Body(&metav1.Table{}).Error() != nil
}

const (
	coreVersion = "/api/v1"
	accepted    = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
)

// watchClient returns a client that watches as core does, with events that decoder decodes. It is nil if core is not
// made as usual.
func watchClient(core *rest.RESTClient, decoder *podDecoder) *corev1client.CoreV1Client {
	base := core.Get().URL()
	if base.Path != core.Get().AbsPath(coreVersion).URL().Path {
		return nil
	}
	base.Path = strings.TrimSuffix(base.Path, coreVersion)
	client, err := rest.NewRESTClient(base, coreVersion, rest.ClientContentConfig{
		ContentType:        runtime.ContentTypeProtobuf,
		AcceptContentTypes: accepted,
		GroupVersion:       corev1.SchemeGroupVersion,
		Negotiator: negotiator{
			ClientNegotiator: runtime.NewClientNegotiator(rest.CodecFactoryForGeneratedClient(scheme.Scheme, scheme.Codecs).WithoutConversion(), corev1.SchemeGroupVersion),
			decoder:          decoder,
		},
	}, core.GetRateLimiter(), core.Client)
	if err != nil {
		return nil
	}
	return corev1client.New(client)
}

type leanPods struct {
	plain   corev1client.PodsGetter
	core    *rest.RESTClient
	watches *corev1client.CoreV1Client
	decoder *podDecoder
}

func (p *leanPods) Pods(namespace string) corev1client.PodInterface {
	return leanPodsOf{p.plain.Pods(namespace), p, namespace}
}

// leanPodsOf makes by itself those requests that are frequent, or of which the answers are large. It names
// the whole path at once: from a namespace, a kind and a name a request puts it together six times,
// for metrics, too.
type leanPodsOf struct {
	corev1client.PodInterface
	*leanPods
	namespace string
}

// List implements corev1client.PodInterface.
func (p leanPodsOf) List(ctx context.Context, options metav1.ListOptions) (*corev1.PodList, error) {
	list, err := p.PodInterface.List(ctx, options)
	if err == nil {
		for i := range list.Items {
			settle(&list.Items[i])
		}
	}
	return list, err
}

// Watch implements corev1client.PodInterface.
func (p leanPodsOf) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return p.watches.Pods(p.namespace).Watch(ctx, options)
}

// Patch implements corev1client.PodInterface.
func (p leanPodsOf) Patch(ctx context.Context, name string, kind types.PatchType, patch []byte, options metav1.PatchOptions, subresources ...string) (*corev1.Pod, error) {
	if !reflect.ValueOf(options).IsZero() { // a dry run, say, whose answer no event shows
		return p.PodInterface.Patch(ctx, name, kind, patch, options, subresources...)
	}
	path, err := p.path(name, subresources)
	if err != nil {
		return nil, err
	}
	result := p.core.Patch(kind).UseProtobufAsDefault().AbsPath(path).Body(patch).Do(ctx)
	if answer, err := result.Raw(); err == nil {
		if pod := p.decoder.answer(answer); pod != nil {
			return pod, nil
		}
	}
	pod := &corev1.Pod{}
	if err := result.Into(pod); err != nil {
		return nil, err
	}
	return pod, nil
}

// MetadataOnly is the Accept header that asks for no more of an object than that, since nobody looks at it.
const MetadataOnly = runtime.ContentTypeProtobuf + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1," + accepted

// Delete implements corev1client.PodInterface.
func (p leanPodsOf) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	path, err := p.path(name, nil)
	if err != nil {
		return err
	}
	body, err := json.Marshal(options)
	if err != nil {
		return fmt.Errorf("encode how pod %s is to be deleted: %w", name, err)
	}
	return p.core.Delete().AbsPath(path).
		SetHeader("Accept", MetadataOnly).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx).Error()
}

// path returns that of a pod, or an error if its name would lead elsewhere: without one, to all pods.
func (p leanPodsOf) path(name string, subresources []string) (string, error) {
	segments := append(make([]string, 0, 4), p.namespace, name)
	segments = append(segments, subresources...)
	for _, segment := range segments {
		if wrong := rest.IsValidPathSegmentName(segment); segment == "" || len(wrong) > 0 {
			return "", fmt.Errorf("%q is no part of the path of a pod", segment)
		}
	}
	return coreVersion + "/namespaces/" + p.namespace + "/pods/" + strings.Join(segments[1:], "/"), nil
}
