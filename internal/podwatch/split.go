package podwatch

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// encodedPod is a pod in protobuf, by its parts.
type encodedPod struct {
	meta                                  []byte // without managed fields
	spec, status                          []byte
	node                                  []byte
	namespace, name, uid, resourceVersion []byte
}

// What an API server writes before a pod: its prefix of all objects, and as the first field of
// runtime.Unknown the version and the kind.
var (
	objectPrefix = []byte("k8s\x00")
	podKind      = []byte("\x0a\x02v1\x12\x03Pod")
)

// The numbers of fields in the API's protobuf.
const (
	unknownType, unknownRaw, unknownEncoding      = 1, 2, 3
	podMeta, podSpec, podStatus                   = 1, 2, 3
	metaName, metaNamespace, metaUID, metaVersion = 1, 3, 5, 6
	metaManagedFields                             = 17
	specNodeName                                  = 10
	eventType, eventObject, extensionRaw          = 1, 2, 1
)

// split takes the encoding of a pod apart. It returns false if it is that of something else, or not as
// an API server encodes it.
func split(data []byte) (pod encodedPod, ok bool) {
	data, ok = bytes.CutPrefix(data, objectPrefix)
	if !ok {
		return pod, false
	}
	var kind, raw, encoding []byte
	ok = texts(data, func(number protowire.Number, text []byte) {
		switch number {
		case unknownType:
			kind = text
		case unknownRaw:
			raw = text
		case unknownEncoding:
			encoding = text
		}
	})
	if !ok || !bytes.Equal(kind, podKind) || len(encoding) > 0 {
		return pod, false
	}
	ok = texts(raw, func(number protowire.Number, text []byte) {
		switch number {
		case podMeta:
			pod.meta = text
		case podSpec:
			pod.spec = text
		case podStatus:
			pod.status = text
		}
	})
	return pod, ok && pod.splitMeta() && texts(pod.spec, func(number protowire.Number, text []byte) {
		if number == specNodeName {
			pod.node = text
		}
	})
}

// splitEvent takes the encoding of an event apart. It returns false if it cannot be read.
func splitEvent(data []byte, event *metav1.WatchEvent) bool {
	var object []byte
	ok := texts(data, func(number protowire.Number, text []byte) {
		switch number {
		case eventType:
			event.Type = string(text)
		case eventObject:
			object = text
		}
	})
	return ok && texts(object, func(number protowire.Number, text []byte) {
		if number == extensionRaw {
			event.Object.Raw = text
		}
	})
}

// splitMeta finds what identifies the pod, and leaves the managed fields, which are the last, out of the
// metadata.
func (e *encodedPod) splitMeta() bool {
	managed, inOrder := -1, true
	ok := messageFields(e.meta, func(number protowire.Number, text []byte, at int) {
		switch number {
		case metaName:
			e.name = text
		case metaNamespace:
			e.namespace = text
		case metaUID:
			e.uid = text
		case metaVersion:
			e.resourceVersion = text
		}
		switch {
		case number != metaManagedFields:
			inOrder = inOrder && managed < 0
		case managed < 0:
			managed = at
		}
	})
	if managed >= 0 {
		e.meta = e.meta[:managed]
	}
	return ok && inOrder
}

// texts calls f with the fields of a message that are texts or messages. It returns false if the message
// cannot be read.
func texts(message []byte, f func(number protowire.Number, text []byte)) bool {
	return messageFields(message, func(number protowire.Number, text []byte, _ int) {
		if text != nil {
			f(number, text)
		}
	})
}

// messageFields calls f with all fields of a message, with the value of those that are texts or messages, and
// where they begin.
func messageFields(message []byte, f func(number protowire.Number, text []byte, at int)) bool {
	for at := 0; at < len(message); {
		number, kind, n := protowire.ConsumeTag(message[at:])
		if n < 0 {
			return false
		}
		size := protowire.ConsumeFieldValue(number, kind, message[at+n:])
		if size < 0 {
			return false
		}
		var text []byte
		if kind == protowire.BytesType {
			text, _ = protowire.ConsumeBytes(message[at+n:])
		}
		f(number, text, at)
		at += n + size
	}
	return true
}
