package podwatch

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
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
// A client that is not client-go's own, such as a fake, is returned as it is.
func newClient(client kubernetes.Interface, known lookup) corev1client.PodsGetter {
	plain := client.CoreV1()
	if set, ok := client.(*kubernetes.Clientset); ok {
		if inner, ok := set.CoreV1().RESTClient().(*rest.RESTClient); ok && inner != nil {
			if lean := leanClient(inner, known); lean != nil {
				return leanPods{plain, corev1client.New(lean)}
			}
		}
	}
	return plain
}

const (
	coreVersion = "/api/v1"
	accepted    = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
)

// leanClient returns a client that makes the requests of client, or nil if it is not of the core API.
func leanClient(client *rest.RESTClient, known lookup) *rest.RESTClient {
	base := client.Get().URL()
	path, ok := strings.CutSuffix(base.Path, coreVersion)
	if !ok {
		return nil
	}
	base.Path = path
	lean, err := rest.NewRESTClient(base, coreVersion, rest.ClientContentConfig{
		ContentType:        runtime.ContentTypeProtobuf,
		AcceptContentTypes: accepted,
		GroupVersion:       corev1.SchemeGroupVersion,
		Negotiator: negotiator{
			ClientNegotiator: runtime.NewClientNegotiator(rest.CodecFactoryForGeneratedClient(scheme.Scheme, scheme.Codecs).WithoutConversion(), corev1.SchemeGroupVersion),
			decoder:          &podDecoder{known: known},
		},
	}, client.GetRateLimiter(), httpClient(client))
	if err != nil {
		return nil
	}
	return lean
}

func httpClient(client *rest.RESTClient) *http.Client {
	if client.Client == nil {
		return http.DefaultClient
	}
	return client.Client
}

type leanPods struct {
	plain corev1client.PodsGetter
	lean  *corev1client.CoreV1Client
}

func (p leanPods) Pods(namespace string) corev1client.PodInterface {
	return leanPodsOf{p.plain.Pods(namespace), p.lean, namespace}
}

// leanPodsOf makes by lean those requests that are frequent, or of which the answers are large. It names
// the whole path at once: from a namespace, a kind and a name a request puts it together six times,
// for metrics, too.
type leanPodsOf struct {
	corev1client.PodInterface
	lean      *corev1client.CoreV1Client
	namespace string
}

// Watch implements corev1client.PodInterface.
func (p leanPodsOf) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return p.lean.Pods(p.namespace).Watch(ctx, options)
}

// Patch implements corev1client.PodInterface.
func (p leanPodsOf) Patch(ctx context.Context, name string, kind types.PatchType, patch []byte, options metav1.PatchOptions, subresources ...string) (*corev1.Pod, error) {
	request := p.lean.RESTClient().Patch(kind).AbsPath(p.path(name, subresources)).Body(patch)
	if !reflect.ValueOf(options).IsZero() {
		request = request.VersionedParams(&options, scheme.ParameterCodec)
	}
	object, err := request.Do(ctx).Get()
	if err != nil {
		return nil, err
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("the answer to a patch of pod %s is no pod, but %T", name, object)
	}
	return pod, nil
}

// metadataOnly asks for no more of an object than that, since nobody looks at it.
const metadataOnly = runtime.ContentTypeProtobuf + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1," + accepted

// Delete implements corev1client.PodInterface.
func (p leanPodsOf) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	body, err := json.Marshal(options)
	if err != nil {
		return fmt.Errorf("encode how pod %s is to be deleted: %w", name, err)
	}
	return p.lean.RESTClient().Delete().AbsPath(p.path(name, nil)).
		SetHeader("Accept", metadataOnly).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx).Error()
}

func (p leanPodsOf) path(name string, subresources []string) string {
	path := coreVersion + "/namespaces/" + p.namespace + "/pods/" + name
	for _, subresource := range subresources {
		path += "/" + subresource
	}
	return path
}
