package nodeutil

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podwatch"
)

// eventSink writes new events without reading what the API server makes of them: of the answer the recorder takes only
// the resourceVersion, of which it makes no use. It names the whole path at once, as the client of pods does.
type eventSink struct {
	record.EventSink
	core *rest.RESTClient
}

// coreVersion is the path of the API of events.
const coreVersion = "/api/v1"

// newEventSink returns a sink of a client. That of one that is not client-go's own, such as a fake, that has to speak
// JSON, or that has the API elsewhere, is client-go's.
func newEventSink(client kubernetes.Interface) record.EventSink {
	sink := &corev1client.EventSinkImpl{Interface: client.CoreV1().Events("")}
	core := directClient(client, client.CoreV1().RESTClient(), coreVersion)
	if core == nil {
		return sink
	}
	return eventSink{sink, core}
}

// directClient returns the client of a version of the API whose paths begin with version, for requests that name the whole path at
// once. It is nil for a client that is not client-go's own, such as a fake, that has to speak JSON, or that has the API
// elsewhere.
func directClient(client kubernetes.Interface, plain rest.Interface, version string) *rest.RESTClient {
	if _, ok := client.(*kubernetes.Clientset); !ok {
		return nil
	}
	direct, ok := plain.(*rest.RESTClient)
	if !ok || direct == nil || !podwatch.SpeaksProtobuf(direct) || direct.Get().URL().Path != direct.Get().AbsPath(version).URL().Path {
		return nil
	}
	return direct
}

// Create implements record.EventSink.
func (s eventSink) Create(event *corev1.Event) (*corev1.Event, error) {
	if wrong := rest.IsValidPathSegmentName(event.Namespace); event.Namespace == "" || len(wrong) > 0 {
		return nil, &rest.RequestConstructionError{Err: fmt.Errorf("write event %s: %q is no namespace", event.Name, event.Namespace)}
	}
	err := s.core.Post().AbsPath(coreVersion+"/namespaces/"+event.Namespace+"/events").
		SetHeader("Accept", podwatch.MetadataOnly).Body(event).Do(context.Background()).Error()
	if err != nil {
		return nil, err
	}
	return event, nil
}
