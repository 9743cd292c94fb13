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
	metaName, metaNamespace, metaUID, metaVersion = 1, 3, 5, 6
	metaManagedFields                             = 17
	specNodeName                                  = 10
)

// split takes the encoding of a pod apart. It returns false if it is that of something else, or not as
// an API server encodes it.
func split(data []byte) (pod encodedPod, ok bool) {
	data, ok = bytes.CutPrefix(data, objectPrefix)
	if !ok {
		return pod, false
	}
	var kind, raw, encoding []byte
	if !parts(data, &kind, &raw, &encoding) || !bytes.Equal(kind, podKind) || len(encoding) > 0 {
		return pod, false
	}
	ok = parts(raw, &pod.meta, &pod.spec, &pod.status) && pod.splitMeta() && messageFields(pod.spec, func(number protowire.Number, text []byte, _ int) {
		if number == specNodeName {
			pod.node = text
		}
	})
	return pod, ok
}

// ResourceVersion returns that of an object of any kind in protobuf, as an API server writes it. It is empty if it cannot be found so.
func ResourceVersion(data []byte) string {
	data, ok := bytes.CutPrefix(data, objectPrefix)
	if !ok {
		return ""
	}
	var kind, raw, encoding, meta, version []byte
	if !parts(data, &kind, &raw, &encoding) || len(encoding) > 0 || !parts(raw, &meta) {
		return ""
	}
	ok = messageFields(meta, func(number protowire.Number, text []byte, _ int) {
		if number == metaVersion {
			version = text
		}
	})
	if !ok {
		return ""
	}
	return string(version)
}

// splitEvent takes the encoding of an event apart. It returns false if it cannot be read.
func splitEvent(data []byte, event *metav1.WatchEvent) bool {
	var kind, object, raw []byte
	if !parts(data, &kind, &object) || !parts(object, &raw) {
		return false
	}
	event.Type, event.Object.Raw = string(kind), raw
	return true
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

// parts sets the first fields of a message, which are texts or messages. It returns false if it cannot be read so: a
// message that comes twice would have to be merged.
func parts(message []byte, fields ...*[]byte) bool {
	ok := true
	return messageFields(message, func(number protowire.Number, text []byte, _ int) {
		if int(number) <= len(fields) {
			ok = ok && text != nil && *fields[number-1] == nil
			*fields[number-1] = text
		}
	}) && ok
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
