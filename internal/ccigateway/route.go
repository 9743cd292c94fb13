package ccigateway

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// kinds are those of the service that Kubernetes has in its core group, with the
// subresources that clients may use.
var kinds = map[string][]string{
	"pods": {"log", "exec", "attach", "portforward", "status"}, "configmaps": nil, "secrets": nil, "events": nil, "services": nil, "persistentvolumeclaims": nil,
}

// route checks a request of a client, and makes it one of the API server behind. It returns
// no body if it has answered.
func (g *Gateway) route(w http.ResponseWriter, r *http.Request, body []byte) ([]byte, *failure) {
	prefix, networks := "/api/v1/", "/apis/networking.cci.io/v1beta1/"
	if g.V2 {
		prefix, networks = "/apis/cci/v2/", "/apis/yangtse/v2/"
	}
	if rest, ok := strings.CutPrefix(r.URL.Path, networks); ok {
		return nil, g.network(w, r, rest, body)
	}
	if strings.HasPrefix(r.URL.Path, "/apis/metrics.k8s.io/v1beta1/namespaces/") && r.Method == http.MethodGet {
		return body, nil
	}
	rest, ok := strings.CutPrefix(r.URL.Path, prefix)
	if !ok {
		return nil, &failure{status: http.StatusNotFound, code: "APIGW.0101", detail: "API not found or not released"}
	}
	parts := strings.Split(rest, "/") // namespaces, NAMESPACE, KIND, NAME, SUBRESOURCE
	if parts[0] != "namespaces" || len(parts) > 5 || len(parts) > 1 && parts[1] == "kube-system" {
		return nil, forbidden("not a namespace of this tenant")
	}
	kind, subresource := "namespaces", ""
	if len(parts) > 2 {
		kind = parts[2]
	}
	if len(parts) > 4 {
		subresource = parts[4]
	}
	if allowed, ok := kinds[kind]; kind != "namespaces" && (!ok || subresource != "" && !slices.Contains(allowed, subresource)) {
		return nil, &failure{status: http.StatusNotFound, reason: "NotFound", detail: "the server could not find the requested resource"}
	}
	if f := g.checkQuery(r); f != nil {
		return nil, f
	}
	body, f := g.checkBody(r, body)
	if f != nil {
		return nil, f
	}
	if r.Method == http.MethodPost && subresource == "" {
		switch kind {
		case "pods":
			f = g.checkPod(parts[1], body)
		case "namespaces":
			f = g.checkNamespace(body)
		}
	}
	r.URL.Path, r.URL.RawPath = "/api/v1/"+rest, ""
	if body == nil {
		body = []byte{}
	}
	return body, f
}

func forbidden(why string) *failure {
	return &failure{status: http.StatusForbidden, reason: "Forbidden", detail: why}
}

func invalid(why string) *failure {
	return &failure{status: http.StatusBadRequest, reason: "BadRequest", detail: why}
}

func (g *Gateway) checkQuery(r *http.Request) *failure {
	query := r.URL.Query()
	if query.Get("sendInitialEvents") != "" {
		return invalid("sendInitialEvents would be ignored, and the client wait for ever")
	}
	if g.V2 {
		for _, name := range []string{"labelSelector", "fieldSelector", "limit", "continue"} {
			query.Del(name)
		}
	}
	if !g.Watches {
		query.Del("watch")
	}
	r.URL.RawQuery = query.Encode()
	return nil
}

// checkBody checks the content type and version of a body, and returns it as Kubernetes has
// it.
func (g *Gateway) checkBody(r *http.Request, body []byte) ([]byte, *failure) {
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	allowed := []string{"application/json"}
	if r.Method == http.MethodPatch {
		allowed = []string{"application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json"}
	}
	if len(body) > 0 && !slices.Contains(allowed, media) {
		return nil, &failure{status: http.StatusUnsupportedMediaType, reason: "UnsupportedMediaType", detail: "content type " + media}
	}
	if !g.V2 {
		return body, nil
	}
	r.Header.Set("Accept", "application/json")
	var object map[string]json.RawMessage
	if len(body) == 0 || json.Unmarshal(body, &object) != nil || object["apiVersion"] == nil {
		return body, nil
	}
	if string(object["apiVersion"]) != `"cci/v2"` && string(object["kind"]) != `"DeleteOptions"` {
		return nil, invalid("no matches for version " + string(object["apiVersion"]))
	}
	object["apiVersion"] = json.RawMessage(`"v1"`)
	body, err := json.Marshal(object)
	if err != nil {
		return nil, invalid(err.Error())
	}
	return body, nil
}

func (g *Gateway) checkNamespace(body []byte) *failure {
	var namespace corev1.Namespace
	if err := json.Unmarshal(body, &namespace); err != nil {
		return invalid(err.Error())
	}
	if flavor := namespace.Annotations["namespace.kubernetes.io/flavor"]; !g.V2 && flavor != "general-computing" && flavor != "gpu-accelerated" {
		return invalid("annotation namespace.kubernetes.io/flavor is required")
	}
	return nil
}

// network has the networks of namespaces, with what each generation requires of one.
func (g *Gateway) network(w http.ResponseWriter, r *http.Request, rest string, body []byte) *failure {
	parts := strings.Split(rest, "/")
	if len(parts) != 3 || parts[0] != "namespaces" || parts[2] != "networks" {
		return &failure{status: http.StatusNotFound, code: "APIGW.0101", detail: "API not found or not released"}
	}
	namespace := parts[1]
	if r.Method == http.MethodGet {
		write(w, http.StatusOK, nil, map[string]any{"kind": "NetworkList", "items": append([]json.RawMessage{}, g.Networks(namespace)...)})
		return nil
	}
	var network struct {
		APIVersion string
		Kind       string
		Metadata   struct {
			Name        string
			Annotations map[string]string
		}
		Spec struct {
			NetworkType, AttachedVPC, NetworkID, SubnetID, CIDR string
			SecurityGroups                                      []string
			Subnets                                             []struct{ SubnetID string }
		}
	}
	err := json.Unmarshal(body, &network)
	s, has := network.Spec, network.Metadata.Annotations
	ok := err == nil && r.Method == http.MethodPost && network.Kind == "Network" && network.Metadata.Name != "" && s.NetworkType == "underlay_neutron"
	if g.V2 {
		ok = ok && network.APIVersion == "yangtse/v2" && len(s.SecurityGroups) == 1 && len(s.Subnets) == 1 && s.Subnets[0].SubnetID != "" &&
			has["yangtse.io/domain-id"] != "" && has["yangtse.io/project-id"] == ProjectID
	} else {
		ok = ok && network.APIVersion == "networking.cci.io/v1beta1" && s.AttachedVPC != "" && s.NetworkID != "" && s.SubnetID != "" && s.CIDR != "" &&
			has["network.alpha.kubernetes.io/default-security-group"] != "" && has["network.alpha.kubernetes.io/domain-id"] != "" && has["network.alpha.kubernetes.io/project-id"] == ProjectID
	}
	if !ok {
		return invalid("the network is not complete")
	}
	g.mu.Lock()
	g.networks[namespace] = append(g.networks[namespace], body)
	g.mu.Unlock()
	write(w, http.StatusCreated, nil, json.RawMessage(body))
	return nil
}

// modify gives the answers of the API server the version of CCI 2.0.
func (g *Gateway) modify(response *http.Response) error {
	g.count(response)
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if !g.V2 || media != "application/json" || strings.HasPrefix(response.Request.URL.Path, "/apis/") {
		return nil
	}
	if response.Request.URL.Query().Get("watch") == "true" && response.StatusCode == http.StatusOK {
		response.Body = &events{response.Body, json.NewDecoder(response.Body), nil}
		return nil
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	var object map[string]json.RawMessage
	if json.Unmarshal(body, &object) == nil && string(object["apiVersion"]) == `"v1"` {
		object["apiVersion"] = json.RawMessage(`"cci/v2"`)
		if body, err = json.Marshal(object); err != nil {
			return err
		}
	}
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	response.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

// count counts a request that was successful.
func (g *Gateway) count(response *http.Response) {
	parts := strings.Split(response.Request.URL.Path, "/") // "", api, v1, namespaces, NAMESPACE, KIND, NAME, SUBRESOURCE
	if len(parts) < 6 || response.StatusCode >= http.StatusBadRequest {
		return
	}
	what := response.Request.Method + " " + parts[5]
	if len(parts) > 7 {
		what += "/" + parts[7]
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.requests[what]++
}

// events are those of a watch, with the version of CCI 2.0.
type events struct {
	io.Closer
	from *json.Decoder
	rest []byte
}

// Read implements io.Reader.
func (e *events) Read(into []byte) (int, error) {
	if len(e.rest) == 0 {
		var event struct {
			Type   string                     `json:"type"`
			Object map[string]json.RawMessage `json:"object"`
		}
		if err := e.from.Decode(&event); err != nil {
			return 0, err
		}
		event.Object["apiVersion"] = json.RawMessage(`"cci/v2"`)
		var err error
		if e.rest, err = json.Marshal(event); err != nil {
			return 0, err
		}
	}
	n := copy(into, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}
