package podwatch

import (
	"bytes"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// negotiator has the pods of a watch decoded by decoder, where they come as protobuf.
type negotiator struct {
	runtime.ClientNegotiator
	decoder *podDecoder
}

func (n negotiator) StreamDecoder(contentType string, params map[string]string) (runtime.Decoder, runtime.Serializer, runtime.Framer, error) {
	general, serializer, framer, err := n.ClientNegotiator.StreamDecoder(contentType, params)
	if err != nil || contentType != runtime.ContentTypeProtobuf {
		return general, serializer, framer, err
	}
	return decoder{general, n.decoder.event}, frames{serializer}, framer, nil
}

// frames decodes the frames of a watch. The object in the event stays where it was read to: it is decoded
// before the next frame is read.
type frames struct{ runtime.Serializer }

func (f frames) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if event, ok := into.(*metav1.WatchEvent); ok && splitEvent(data, event) {
		return event, &schema.GroupVersionKind{}, nil
	}
	return f.Serializer.Decode(data, defaults, into)
}

// decoder decodes pods by pod, which returns nil for what is no pod or no usual one, and all else as
// the general decoder does.
type decoder struct {
	runtime.Decoder
	pod func(data []byte) *corev1.Pod
}

func (d decoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if into == nil {
		if pod := d.pod(data); pod != nil {
			kind := corev1.SchemeGroupVersion.WithKind("Pod")
			return pod, &kind, nil
		}
	}
	object, kind, err := d.Decoder.Decode(data, defaults, into)
	if pod, ok := object.(*corev1.Pod); ok {
		settle(pod)
	}
	return object, kind, err
}

// maxAnswers bounds what is remembered of answers that the watch has not shown.
const maxAnswers = 256

// podDecoder decodes pods, but for what is known.
type podDecoder struct {
	known lookup

	mu      sync.Mutex
	answers map[types.UID]*corev1.Pod // that the watch has not shown yet
}

// event returns the pod of an event of the watch.
func (d *podDecoder) event(data []byte) *corev1.Pod {
	encoded, known, ok := d.find(data)
	if !ok {
		return nil
	}
	if answer := d.take(encoded); answer != nil {
		return answer
	}
	return encoded.decode(known)
}

// answer returns the pod of an answer, and remembers it for the event that follows.
func (d *podDecoder) answer(data []byte) *corev1.Pod {
	encoded, known, ok := d.find(data)
	if !ok {
		return nil
	}
	pod := encoded.decode(known)
	if pod != nil && known != nil && known.UID == pod.UID && older(known.ResourceVersion, pod.ResourceVersion) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.answers == nil || len(d.answers) >= maxAnswers {
			d.answers = map[types.UID]*corev1.Pod{}
		}
		d.answers[pod.UID] = pod
	}
	return pod
}

// take returns the answer that had the same, if there was one. An answer that is older than the
// event is needed no more.
func (d *podDecoder) take(event encodedPod) *corev1.Pod {
	d.mu.Lock()
	defer d.mu.Unlock()
	answer := d.answers[types.UID(event.uid)]
	if answer == nil || older(string(event.resourceVersion), answer.ResourceVersion) {
		return nil
	}
	delete(d.answers, answer.UID)
	if string(event.resourceVersion) != answer.ResourceVersion {
		return nil
	}
	return answer
}

func (d *podDecoder) find(data []byte) (encoded encodedPod, known *corev1.Pod, ok bool) {
	if encoded, ok = split(data); ok {
		known = d.known(string(encoded.node), string(encoded.namespace), string(encoded.name))
	}
	return encoded, known, ok
}

// older reports whether a resource version is older than another.
func older(version, other string) bool {
	order, err := resourceversion.CompareResourceVersion(version, other)
	return err == nil && order < 0
}

var noPod corev1.Pod // is never written to

// decode decodes what differs from known, which may be nil. It returns nil if that fails.
func (e encodedPod) decode(known *corev1.Pod) *corev1.Pod {
	if known == nil || string(known.UID) != string(e.uid) {
		known = &noPod
	} else if len(e.resourceVersion) > 0 && known.ResourceVersion == string(e.resourceVersion) {
		return known
	}
	pod := &corev1.Pod{}
	if pod.ObjectMeta.Unmarshal(e.meta) != nil {
		return nil
	}
	if isEncoded(&known.Spec, e.spec) {
		pod.Spec = known.Spec
	} else if !decodePart(&pod.Spec, e.spec) {
		return nil
	}
	if isEncoded(&known.Status, e.status) {
		pod.Status = known.Status
	} else if !decodePart(&pod.Status, e.status) {
		return nil
	}
	return pod
}

// part is a part of a pod with an encoding of its own.
type part interface {
	Size() int
	MarshalToSizedBuffer(data []byte) (int, error)
	Unmarshal(data []byte) error
}

// decodePart decodes a part, and settles it.
func decodePart(into part, data []byte) bool {
	err := into.Unmarshal(data)
	_ = into.Size()
	return err == nil
}

// settle has a pod that nobody else has yet remember what its encoding takes: some quantities keep their text. isEncoded,
// which is called while others read the pod, does not write to it then.
func settle(pod *corev1.Pod) { _, _ = pod.Spec.Size(), pod.Status.Size() }

// buffers are for encodings that are compared.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// isEncoded reports whether data is the encoding of a part that is settled, so that decoding it would
// yield the same.
func isEncoded(known part, data []byte) bool {
	size := known.Size()
	if size != len(data) {
		return false
	}
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	if cap(*buffer) < size {
		*buffer = make([]byte, size)
	}
	n, err := known.MarshalToSizedBuffer((*buffer)[:size])
	return err == nil && n == size && bytes.Equal((*buffer)[:size], data)
}
