package huaweicci

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Where Kubernetes and CCI 2.0 have the same objects.
const (
	prefixKubernetes  = "/api/v1/"
	prefixCCI         = "/apis/cci/v2/"
	versionKubernetes = "v1"
	versionCCI        = "cci/v2"
)

const contentJSON = "application/json"

// fields are those of a JSON object.
type fields map[string]json.RawMessage

// isWatchList reports whether a request wants a list as a watch. An older API server ignores
// that, and the client would wait for ever; refused, it lists.
func isWatchList(request *http.Request) bool {
	return request.URL.Query().Get("sendInitialEvents") == "true"
}

func refuseWatchList(request *http.Request) *http.Response {
	status := apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "sendInitialEvents", nil).ErrStatus
	status.TypeMeta = metav1.TypeMeta{APIVersion: versionKubernetes, Kind: "Status"}
	body, _ := json.Marshal(status) // of strings and numbers
	return &http.Response{
		StatusCode: http.StatusUnprocessableEntity, Status: "422 Unprocessable Entity", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {contentJSON}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: request,
	}
}

// selectorOf returns the label selector of a request, or nil.
func selectorOf(request *http.Request) (labels.Selector, error) {
	text := request.URL.Query().Get("labelSelector")
	if text == "" || request.Method != http.MethodGet {
		return nil, nil
	}
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("label selector %q: %w", text, err)
	}
	return selector, nil
}

// toService returns a request as the service has it.
func (t *transport) toService(request *http.Request, body []byte) (*http.Request, []byte, error) {
	request = request.Clone(request.Context())
	var object fields
	if media, _, _ := mime.ParseMediaType(request.Header.Get("Content-Type")); len(body) > 0 && (strings.HasSuffix(media, "json") || media == string(types.ApplyYAMLPatchType)) {
		if err := json.Unmarshal(body, &object); err != nil {
			return nil, nil, fmt.Errorf("decode the body of a request: %w", err)
		}
		if media == string(types.ApplyYAMLPatchType) {
			var err error
			if body, err = withoutApply(request, object); err != nil {
				return nil, nil, err
			}
		}
	}
	if t.api != APIv2 {
		return request, body, nil
	}
	request.Header.Set("Accept", contentJSON) // nothing else is documented
	if rest, ok := strings.CutPrefix(request.URL.Path, prefixKubernetes); ok {
		request.URL.Path, request.URL.RawPath = prefixCCI+rest, ""
		if version, ok := object["apiVersion"]; ok && string(version) == strconv.Quote(versionKubernetes) {
			object["apiVersion"] = json.RawMessage(strconv.Quote(versionCCI))
			var err error
			if body, err = json.Marshal(object); err != nil {
				return nil, nil, fmt.Errorf("encode the body of a request: %w", err)
			}
		}
	}
	return request, body, nil
}

// withoutApply makes a server-side apply, which the service does not document, a creation,
// or the replacement of the object with the UID that the caller knows. A creation has no
// resourceVersion: an apply has one that no object has if there is to be none.
func withoutApply(request *http.Request, object fields) (body []byte, err error) {
	var meta fields
	if err := json.Unmarshal(object["metadata"], &meta); err != nil {
		return nil, fmt.Errorf("decode the metadata of a request: %w", err)
	}
	request.Header.Set("Content-Type", contentJSON)
	query := request.URL.Query()
	query.Del("force")
	request.URL.RawQuery = query.Encode()
	if _, known := meta["uid"]; known {
		request.Method = http.MethodPut
	} else {
		request.Method = http.MethodPost
		request.URL.Path, request.URL.RawPath = path.Dir(request.URL.Path), ""
		delete(meta, "resourceVersion")
	}
	if object["metadata"], err = json.Marshal(meta); err == nil {
		body, err = json.Marshal(object)
	}
	if err != nil {
		return nil, fmt.Errorf("encode the body of a request: %w", err)
	}
	return body, nil
}

// fromService returns a response as client-go expects it. Lists and watches have only what
// the selector selects: the API reference of CCI 2.0 has no selectors.
func (t *transport) fromService(request *http.Request, response *http.Response, selector labels.Selector) (*http.Response, error) {
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if media != contentJSON || response.StatusCode == http.StatusSwitchingProtocols || strings.HasSuffix(request.URL.Path, "/log") && response.StatusCode == http.StatusOK {
		return response, nil
	}
	if response.StatusCode == http.StatusOK && request.Method == http.MethodGet && request.URL.Query().Get("watch") == "true" {
		response.Body = &watchBody{source: response.Body, decoder: json.NewDecoder(response.Body), selector: selector}
		response.ContentLength = -1
		response.Header.Del("Content-Length")
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("read the response: %w", err)
	}
	var object fields
	if json.Unmarshal(body, &object) == nil { // what is none is left to the caller
		if response.StatusCode >= http.StatusBadRequest {
			object = statusOf(request, response, object)
		} else if request.Method == http.MethodGet && object["metadata"] == nil && object["items"] == nil {
			// It would be decoded as a pod of nobody, or a list of none.
			return nil, fmt.Errorf("the answer %s has no object: %s", response.Status, shorten(body))
		}
		if body, err = translated(object, selector); err != nil {
			return nil, err
		}
	}
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	response.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return response, nil
}

// statusOf returns the error of the gateway before the service as a Status of Kubernetes that
// says it comes from elsewhere. Other objects are returned as they are.
func statusOf(request *http.Request, response *http.Response, object fields) fields {
	text := func(names ...string) (value string) {
		for _, name := range names {
			if json.Unmarshal(object[name], &value) == nil && value != "" {
				return value
			}
		}
		return ""
	}
	code, message := text("error_code", "errorCode"), text("error_msg", "errorMessage")
	if code == "" && message == "" {
		return object
	}
	after, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	status := apierrors.NewGenericServerResponse(response.StatusCode, strings.ToLower(request.Method), schema.GroupResource{}, "", strings.TrimSpace(code+" "+message), after, true).ErrStatus
	status.TypeMeta = metav1.TypeMeta{APIVersion: versionKubernetes, Kind: "Status"}
	status.Message = fmt.Sprintf("%s %s", cmp.Or(code, "the gateway answers:"), message)
	var made fields
	encoded, err := json.Marshal(status)
	if err != nil || json.Unmarshal(encoded, &made) != nil {
		return object // a Status can always be encoded
	}
	return made
}

// translated encodes an object with the version that it has in Kubernetes. Of a list it
// leaves out what is not selected.
func translated(object fields, selector labels.Selector) ([]byte, error) {
	setVersion(object)
	if selector != nil && object["items"] != nil {
		var items, kept []json.RawMessage
		if err := json.Unmarshal(object["items"], &items); err != nil {
			return nil, fmt.Errorf("decode a list: %w", err)
		}
		kept = []json.RawMessage{}
		for _, item := range items {
			if isSelected(item, selector) {
				kept = append(kept, item)
			}
		}
		var err error
		if object["items"], err = json.Marshal(kept); err != nil {
			return nil, fmt.Errorf("encode a list: %w", err)
		}
	}
	body, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode an answer: %w", err)
	}
	return body, nil
}

func setVersion(object fields) {
	if string(object["apiVersion"]) == strconv.Quote(versionCCI) {
		object["apiVersion"] = json.RawMessage(strconv.Quote(versionKubernetes))
	}
}

func isSelected(object json.RawMessage, selector labels.Selector) bool {
	var has struct {
		Metadata struct {
			Labels labels.Set `json:"labels"`
		} `json:"metadata"`
	}
	return json.Unmarshal(object, &has) == nil && selector.Matches(has.Metadata.Labels)
}

// watchBody is the body of a watch, with its events translated.
type watchBody struct {
	source   io.ReadCloser
	decoder  *json.Decoder
	selector labels.Selector
	rest     []byte
}

type watchEvent struct {
	Type   string `json:"type"`
	Object fields `json:"object"`
}

// Read implements io.Reader. A list in place of a watch is an event without a type, which
// client-go refuses, and lists again.
func (w *watchBody) Read(into []byte) (int, error) {
	for len(w.rest) == 0 {
		var event watchEvent
		if err := w.decoder.Decode(&event); err != nil {
			return 0, err
		}
		if err := w.take(event); err != nil {
			return 0, err
		}
	}
	n := copy(into, w.rest)
	w.rest = w.rest[n:]
	return n, nil
}

// take translates an event. One of an object that is not selected is left out; if the object
// was selected before, it counts as deleted.
func (w *watchBody) take(event watchEvent) error {
	object, err := translated(event.Object, nil)
	if err != nil {
		return err
	}
	if w.selector != nil && (event.Type == "ADDED" || event.Type == "MODIFIED") && !isSelected(object, w.selector) {
		if event.Type == "ADDED" {
			return nil
		}
		event.Type = "DELETED"
	}
	w.rest, err = json.Marshal(struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}{event.Type, object})
	return err
}

// Close implements io.Closer.
func (w *watchBody) Close() error { return w.source.Close() }
