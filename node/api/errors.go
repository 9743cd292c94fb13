package api

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// statusError is an answer of our own, as opposed to an error of the provider.
type statusError struct {
	status  int
	message string
}

func (e statusError) Error() string { return e.message }

// notImplemented is the answer where the provider's function is nil.
func notImplemented(method, function string) error {
	return statusError{
		http.StatusNotImplemented,
		fmt.Sprintf("provider does not implement %s (see node/api.%s)", method, function),
	}
}

// statusFailed is an error of the provider's statistics, in words that tests of
// existing providers look for. It keeps the class of err.
func statusFailed(err error) error {
	return fmt.Errorf("error getting status from provider: %w", err)
}

// NotFound answers 404.
func NotFound(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "404 page not found", http.StatusNotFound)
}

// NotImplemented answers 501.
func NotImplemented(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "501 not implemented", http.StatusNotImplemented)
}

// handlerFunc is a handler that leaves its errors and panics to the caller.
type handlerFunc func(http.ResponseWriter, *http.Request) error

// answer makes an http.HandlerFunc that answers h's errors and panics.
func answer(h handlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		tracked := track(w)
		defer recoverPanic(tracked, r)
		if err := h(tracked, r); err != nil {
			answerError(tracked, r, err)
		}
	}
}

func answerError(w *responseWriter, r *http.Request, err error) {
	status, message := http.StatusInternalServerError, err.Error()
	if own, ok := err.(statusError); ok {
		status = own.status
	} else if errors.Is(err, errors.ErrUnsupported) {
		status = http.StatusNotImplemented
	} else if meaning := errdefs.Describe(err); meaning.HTTPStatus != 0 {
		status = meaning.HTTPStatus
		if delay, ok := errdefs.RetryAfter(err); ok && meaning.Class == errdefs.RetryAfterClass && !w.committed() {
			w.Header().Set("Retry-After", strconv.FormatInt(int64(math.Ceil(delay.Seconds())), 10))
		}
	}
	logger := log.G(r.Context()).WithFields(log.Fields{"method": r.Method, "uri": shortURI(r), "status": status}).WithError(err)
	if status >= http.StatusInternalServerError && r.Context().Err() == nil {
		logger.Error("request failed")
	} else {
		logger.Debug("request failed")
	}
	if w.committed() {
		w.abort()
		return
	}
	http.Error(w, message, status)
}

// recoverPanic is deferred around everything that calls a provider.
// http.ErrAbortHandler passes: it is not a failure but net/http's own way out.
func recoverPanic(w *responseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler {
		panic(http.ErrAbortHandler)
	}
	logPanic(r, v)
	if w.committed() {
		w.abort()
		return
	}
	http.Error(w, errPanic.Error(), http.StatusInternalServerError)
}

// errPanic is the answer to a client when a provider panics.
var errPanic = statusError{http.StatusInternalServerError, "internal error: the provider panicked, see the log of the virtual kubelet"}

// maxLoggedURI is how many bytes of a request's path are logged: a path may be as
// long as a megabyte.
const maxLoggedURI = 256

// shortURI is the request's path for the log.
func shortURI(r *http.Request) string { return shortText(r.URL.Path) }

// shortText cuts what a client has sent.
func shortText(text string) string {
	if len(text) <= maxLoggedURI {
		return text
	}
	return strings.ToValidUTF8(text[:maxLoggedURI], "") + "…"
}

func logPanic(r *http.Request, v any) {
	log.G(r.Context()).WithFields(log.Fields{
		"method": r.Method, "uri": shortURI(r), "panic": fmt.Sprint(v), "stack": string(debug.Stack()),
	}).Error("handler panicked")
}

// call calls f and turns its panic into errPanic.
func call(r *http.Request, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			logPanic(r, v)
			err = errPanic
		}
	}()
	return f()
}

// allow lets only the given methods through, and answers 405 to others (HEAD
// as well, like the kubelet).
func allow(h http.Handler, methods ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, method := range methods {
			if r.Method == method {
				h.ServeHTTP(w, r)
				return
			}
		}
		for _, method := range methods {
			w.Header().Add("Allow", method)
		}
		http.Error(w, "405: Method Not Allowed", http.StatusMethodNotAllowed)
	})
}
