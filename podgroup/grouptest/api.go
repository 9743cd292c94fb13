package grouptest

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// API is the server of a REST API, with the calls of a World. It is an http.Handler.
type API struct {
	World *World
	// Calls are by their actions, which are patterns of http.ServeMux.
	Calls map[string]Call
	// Admit is called before each call, and checks what all have. It may be nil.
	Admit func(action string, r *http.Request) error
	// Failed is the status of errors that are neither a Refusal nor of the World. Defaults to 400.
	Failed int
	// Refuse writes the answer of an error. Defaults to an object with a message.
	Refuse func(w http.ResponseWriter, status int, err error)
}

// Call serves a request. It may write a header and a status other than 200. The answer follows
// in JSON, or as it is if it is []byte; nil is no body, or one that the call has written.
type Call func(w http.ResponseWriter, r *http.Request) (answer any, err error)

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var mux http.ServeMux
	for action, call := range a.Calls {
		mux.HandleFunc(action, func(w http.ResponseWriter, r *http.Request) { a.serve(w, r, action, call) })
	}
	mux.ServeHTTP(w, r)
}

func (a *API) serve(w http.ResponseWriter, r *http.Request, action string, call Call) {
	w.Header().Set("Content-Type", "application/json")
	var answer any
	err := a.World.Serve(r.Context(), action, func() (err error) {
		if a.Admit != nil {
			err = a.Admit(action, r)
		}
		if err == nil {
			answer, err = call(w, r)
		}
		return err
	})
	if err != nil {
		a.refuse(w, err)
		return
	}
	switch answer := answer.(type) { // the client may have gone
	case nil:
	case []byte:
		_, _ = w.Write(answer)
	default:
		_ = json.NewEncoder(w).Encode(answer)
	}
}

func (a *API) refuse(w http.ResponseWriter, err error) {
	status := statusOf(err, cmp.Or(a.Failed, http.StatusBadRequest))
	if a.Refuse != nil {
		a.Refuse(w, status, err)
		return
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": Message(err)}) // as above
}

// Schema has the fields of objects in JSON, by the name of the field that an object, or a list of
// objects, is the value of. With *NAME the keys are the client's, and the values have the fields
// of NAME. Objects that are not named may have any.
type Schema map[string]string

// Decode decodes an object, and refuses fields that it does not have.
func (s Schema) Decode(from io.Reader, object string, into any) (text string, err error) {
	read, err := io.ReadAll(from)
	var tree any
	if err = errors.Join(err, json.Unmarshal(read, &tree), json.Unmarshal(read, into)); err != nil {
		return "", err
	}
	if field := s.unknown(object, tree); field != "" {
		return "", errors.New("there is no field " + field)
	}
	return string(read), nil
}

// unknown returns a field that there is not; empty if there is none.
func (s Schema) unknown(object string, value any) (found string) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			found = cmp.Or(found, s.unknown(object, element))
		}
	case map[string]any:
		names, known := s[object]
		ofAll, isFree := strings.CutPrefix(names, "*")
		for key, inner := range value {
			of := key
			if isFree {
				of = ofAll
			} else if known && !slices.Contains(strings.Fields(names), key) {
				return object + "." + key
			}
			found = cmp.Or(found, s.unknown(of, inner))
		}
	}
	return found
}

// StateOf returns the state of a container in the form of Kubernetes, without reasons, for the
// fake of a service that has this form.
func StateOf(r podgroup.Run) (s corev1.ContainerState) {
	switch r.State {
	case podgroup.Executing:
		s.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(r.Started)}
	case podgroup.Terminated:
		s.Terminated = &corev1.ContainerStateTerminated{ExitCode: r.ExitCode, StartedAt: metav1.NewTime(r.Started), FinishedAt: metav1.NewTime(r.Finished)}
	case podgroup.Waiting:
		s.Waiting = &corev1.ContainerStateWaiting{}
	}
	return s
}
