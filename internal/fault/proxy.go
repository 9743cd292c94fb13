package fault

import (
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
)

// NewProxy returns a handler that passes requests on to the API server at target,
// through transport, which has to trust it. What fails there ends the client's
// connection without an answer.
func NewProxy(target *url.URL, transport *Transport) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // watches
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:      log.New(io.Discard, "", 0), // failures are what it is for
	}
}
