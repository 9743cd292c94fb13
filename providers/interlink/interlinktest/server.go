package interlinktest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"regexp"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink/internal/wire"
)

// Server is an interLink API server. It has no list of pods, and no state but the statuses
// that the plugin has answered with.
type Server struct {
	// Plugin makes requests to the plugin.
	Plugin *http.Client
	// OneObject has it send a creation as one object, as newer servers do, not as a list.
	OneObject bool
	// Token is the bearer token that it demands, if any.
	Token string

	mu       sync.Mutex
	statuses map[string]wire.Status
}

// The names that paths of plugins are made of.
var (
	label = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	uuid  = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.Token != "" && r.Header.Get("Authorization") != "Bearer "+s.Token {
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
		return
	}
	routes := map[string]func(http.ResponseWriter, *http.Request, []byte) error{
		"POST /create": s.create, "DELETE /delete": s.delete, "GET /status": s.status, "GET /getLogs": s.logs,
		"POST /pinglink": s.ping, "POST /updateCache": s.forget,
	}
	serve := routes[r.Method+" "+r.URL.Path]
	if serve == nil {
		http.NotFound(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = serve(w, r, body)
	}
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// ping asks the plugin for no status.
func (s *Server) ping(w http.ResponseWriter, r *http.Request, _ []byte) error {
	if s.relay(w, r, http.MethodGet, "/status", []*corev1.Pod{}) != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	return nil
}

// forget drops the status of the pod whose UID is the body.
func (s *Server) forget(w http.ResponseWriter, _ *http.Request, body []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.statuses, string(body))
	_, err := io.WriteString(w, "Updated cache")
	return err
}

// create has each container get the objects that it mounts.
func (s *Server) create(w http.ResponseWriter, r *http.Request, body []byte) error {
	in := wire.Create{Pod: &corev1.Pod{}}
	if err := json.Unmarshal(body, &in); err != nil {
		return err
	}
	out := wire.PluginCreate{Pod: in.Pod}
	for _, c := range slices.Concat(in.Pod.Spec.InitContainers, in.Pod.Spec.Containers) {
		retrieved := wire.Container{Name: c.Name}
		for _, mount := range c.VolumeMounts {
			for _, v := range first(in.Pod.Spec.Volumes, func(v *corev1.Volume) bool { return v.Name == mount.Name }) {
				switch {
				case v.ConfigMap != nil:
					retrieved.ConfigMaps = append(retrieved.ConfigMaps, first(in.ConfigMaps, func(o *corev1.ConfigMap) bool { return o.Name == v.ConfigMap.Name })...)
				case v.Projected != nil:
					retrieved.Projected = append(retrieved.Projected, first(in.Projected, func(o *corev1.ConfigMap) bool { return o.Name == v.Name })...)
				case v.Secret != nil:
					retrieved.Secrets = append(retrieved.Secrets, first(in.Secrets, func(o *corev1.Secret) bool { return o.Name == v.Secret.SecretName })...)
				}
			}
		}
		out.Containers = append(out.Containers, retrieved)
	}
	if s.OneObject {
		return s.relay(w, r, http.MethodPost, "/create", out)
	}
	return s.relay(w, r, http.MethodPost, "/create", []wire.PluginCreate{out})
}

func first[T any](list []T, is func(*T) bool) []T {
	for i := range list {
		if is(&list[i]) {
			return list[i : i+1]
		}
	}
	return nil
}

func (s *Server) delete(w http.ResponseWriter, r *http.Request, body []byte) error {
	var pod corev1.Pod
	if err := json.Unmarshal(body, &pod); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.statuses, string(pod.UID))
	s.mu.Unlock()
	return s.relay(w, r, http.MethodPost, "/delete", pod)
}

// status asks the plugin for pods that it does not know as ended, and answers from what it
// knows.
func (s *Server) status(w http.ResponseWriter, r *http.Request, body []byte) error {
	var pods, ask []*corev1.Pod
	_ = json.Unmarshal(body, &pods) // it goes on with none
	s.mu.Lock()
	for _, pod := range pods {
		_, cached := s.statuses[string(pod.UID)]
		if pod.Status.Phase == corev1.PodRunning || pod.Status.Phase == corev1.PodPending || !cached {
			ask = append(ask, pod)
		}
	}
	s.mu.Unlock()
	if len(ask) > 0 {
		response, err := s.do(r.Context(), r, http.MethodGet, "/status", ask)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return s.refuse(w, response)
		}
		var statuses []wire.Status
		if err := json.NewDecoder(response.Body).Decode(&statuses); err != nil {
			return err
		}
		s.mu.Lock()
		if s.statuses == nil {
			s.statuses = map[string]wire.Status{}
		}
		for _, one := range statuses {
			s.statuses[one.UID] = one
		}
		s.mu.Unlock()
	}
	var answer []wire.Status // null, if there are none
	s.mu.Lock()
	for _, pod := range pods {
		if known, ok := s.statuses[string(pod.UID)]; ok {
			answer = append(answer, known)
		}
	}
	s.mu.Unlock()
	return json.NewEncoder(w).Encode(answer)
}

func (s *Server) logs(w http.ResponseWriter, r *http.Request, body []byte) error {
	var in wire.Log
	problem := ""
	switch err := json.Unmarshal(body, &in); {
	case err != nil:
		problem = "invalid request body"
	case !label.MatchString(in.Namespace):
		problem = "invalid namespace: must be a valid DNS label"
	case !uuid.MatchString(in.PodUID):
		problem = "invalid pod UID: must be a valid UUID"
	case !label.MatchString(in.ContainerName):
		problem = "invalid container name: must be a valid DNS label"
	case in.Opts.Tail != 0 && in.Opts.Bytes != 0:
		problem = "Both Tail and LimitBytes set. Set only one of them"
	case in.Opts.SinceSeconds != 0 && !in.Opts.SinceTime.IsZero():
		problem = "Both SinceSeconds and SinceTime set. Set only one of them"
	}
	if problem != "" {
		http.Error(w, problem, http.StatusBadRequest)
		return nil
	}
	return s.relay(w, r, http.MethodGet, "/getLogs", in)
}

// relay makes a request to the plugin, and streams the answer back.
func (s *Server) relay(w http.ResponseWriter, r *http.Request, method, path string, body any) error {
	response, err := s.do(r.Context(), r, method, path, body)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return s.refuse(w, response)
	}
	w.WriteHeader(http.StatusOK)
	part := make([]byte, 4096)
	for {
		n, err := response.Body.Read(part)
		_, _ = w.Write(part[:n])
		_ = http.NewResponseController(w).Flush() // the client may have gone
		if err != nil {
			return nil
		}
	}
}

// refuse relays the status of an answer of the plugin that is not good, and its text.
func (s *Server) refuse(w http.ResponseWriter, response *http.Response) error {
	text, _ := io.ReadAll(response.Body)
	w.WriteHeader(response.StatusCode)
	_, err := io.WriteString(w, html.EscapeString(fmt.Sprintf("call exit status: %d. Body: %s", http.StatusInternalServerError, text)))
	return err
}

func (s *Server) do(ctx context.Context, r *http.Request, method, path string, body any) (*http.Response, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://plugin"+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(wire.SessionHeader, r.Header.Get(wire.SessionHeader))
	return s.Plugin.Do(request)
}
