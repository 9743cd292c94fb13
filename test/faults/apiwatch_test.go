package faults

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	restwatch "k8s.io/client-go/rest/watch"
)

// watcher is one watch that is served.
type watcher struct {
	server   *apiServer
	kind     *kindOfObject
	resource string
	selects  func(object) bool
	encoder  *restwatch.Encoder
	next     uint64 // the version after which events are new
}

func (s *apiServer) serveWatch(c *call) (*http.Response, error) {
	kind := s.kinds[c.resource]
	if kind == nil {
		return response(nil, notFound(c))
	}
	selects, err := selection(c)
	if err != nil {
		return response(nil, err)
	}
	reader, writer := io.Pipe()
	gv := kind.gvk.GroupVersion()
	frames := protobuf.StreamSerializer.Framer.NewFrameWriter(writer)
	w := &watcher{
		server: s, kind: kind, resource: c.resource, selects: selects,
		encoder: restwatch.NewEncoder(
			streaming.NewEncoder(frames, scheme.Codecs.EncoderForVersion(protobuf.StreamSerializer.Serializer, gv)),
			scheme.Codecs.EncoderForVersion(protobuf.Serializer, gv)),
	}
	initial := slices.Contains(c.query["sendInitialEvents"], "true")
	timeout := 10 * time.Minute
	if n, err := strconv.Atoi(first(c.query["timeoutSeconds"])); err == nil {
		timeout = time.Duration(n) * time.Second
	}
	from, _ := strconv.ParseUint(first(c.query["resourceVersion"]), 10, 64)

	var events []event
	s.mu.Lock()
	w.next = from
	if from == 0 || initial {
		w.next = s.version
		for _, o := range sorted(kind.objects) {
			events = append(events, event{kind: watch.Added, object: o, resource: c.resource})
		}
		if initial {
			mark := kind.make()
			mark.SetResourceVersion(strconv.FormatUint(s.version, 10))
			mark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
			events = append(events, event{kind: watch.Bookmark, object: mark})
		}
	}
	s.mu.Unlock()
	go func() {
		ctx, cancel := context.WithTimeout(c.ctx, timeout)
		defer cancel()
		stop := context.AfterFunc(ctx, func() { // also in the midst of a write
			if c.ctx.Err() != nil {
				_ = writer.CloseWithError(c.ctx.Err())
			}
		})
		defer stop()
		_ = writer.CloseWithError(w.run(ctx, events))
	}()
	return &http.Response{
		StatusCode: http.StatusOK, Status: "200", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        http.Header{"Content-Type": {runtime.ContentTypeProtobuf + ";stream=watch"}},
		Body:          reader,
		ContentLength: -1,
	}, nil
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// run sends events until ctx ends or the client has gone.
func (w *watcher) run(ctx context.Context, events []event) error {
	for {
		for _, e := range events {
			if e.kind != watch.Bookmark && (e.resource != w.resource || !w.selects(e.object)) {
				continue
			}
			if err := w.encoder.Encode(&watch.Event{Type: e.kind, Object: w.kind.shallow(e.object)}); err != nil {
				return err
			}
		}
		var changed chan struct{}
		var expired bool
		if events, changed, expired = w.more(); expired {
			status := apierrors.NewResourceExpired("too old resource version").Status()
			return w.encoder.Encode(&watch.Event{Type: watch.Error, Object: &status})
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return io.EOF
		case <-changed:
		}
	}
}

// more returns the events that are new, or what is closed when there are some,
// or that it is not known any more which those are.
func (w *watcher) more() (events []event, changed chan struct{}, expired bool) {
	s := w.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.next < s.expired {
		return nil, nil, true
	}
	for _, e := range s.events {
		if e.version > w.next {
			events = append(events, e)
		}
	}
	w.next = max(w.next, s.version)
	return events, s.changed, false
}
