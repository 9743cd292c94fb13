package statuspage

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// interval is how often a page that is watched is sent.
	interval = 2 * time.Second
	// writeTimeout is what a browser may take to read it.
	writeTimeout = 30 * time.Second
	// watchTime is how long a page is sent before the browser has to ask again, with
	// credentials that count then.
	watchTime = 5 * time.Minute
	// maxWatchers is how many pages of one Handler may be watched at once.
	maxWatchers = 16
)

// Watchers bounds how many pages are watched at the same time. Handlers can share one.
type Watchers chan struct{}

// NewWatchers makes a Watchers.
func NewWatchers() Watchers { return make(Watchers, maxWatchers) }

// Handler serves what take returns: HTML, JSON to those who prefer it by the header Accept,
// and with ?watch=true the part of the page that changes, again and again, as server-sent
// events (https://html.spec.whatwg.org/multipage/server-sent-events.html) until the client
// or the server ends, or five minutes are over: browsers ask again then.
func Handler(watchers Watchers, take func(*http.Request) *Status) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Cache-Control", "no-store")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Vary", "Accept")
		watch, _ := strconv.ParseBool(r.URL.Query().Get("watch"))
		switch {
		case watch:
			serveWatch(w, r, watchers, take)
		case prefersJSON(r.Header.Get("Accept")):
			text, err := json.Marshal(take(r))
			if err != nil {
				http.Error(w, "cannot encode the status: "+err.Error(), http.StatusInternalServerError)
				return
			}
			header.Set("Content-Type", "application/json")
			_, _ = w.Write(append(text, '\n')) // the client may have gone
		default:
			header.Set("Content-Type", "text/html; charset=utf-8")
			header.Set("Content-Security-Policy", contentSecurityPolicy)
			header.Set("Referrer-Policy", "no-referrer")
			_, _ = w.Write(take(r).HTML()) // the client may have gone
		}
	})
}

// prefersJSON reports whether a client names JSON, and HTML not before it.
func prefersJSON(accept string) bool {
	asJSON, asHTML := strings.Index(accept, "application/json"), strings.Index(accept, "text/html")
	return asJSON >= 0 && (asHTML < 0 || asJSON < asHTML)
}

func serveWatch(w http.ResponseWriter, r *http.Request, watchers Watchers, take func(*http.Request) *Status) {
	select {
	case watchers <- struct{}{}:
		defer func() { <-watchers }()
	default:
		w.Header().Set("Retry-After", "10")
		http.Error(w, "the pages of this process are watched by as many as may at once: close some", http.StatusTooManyRequests)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for end := time.Now().Add(watchTime); time.Now().Before(end); {
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // where there is no connection, nothing hangs either
		if _, err := w.Write(event(take(r).Main())); err != nil {
			return
		}
		if err := control.Flush(); err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}

// event is a server-sent event with data in one line: HTML does not need others, and what
// messages have in them would end it.
func event(data []byte) []byte {
	line := bytes.Map(func(r rune) rune {
		if r == '\n' || r == '\r' {
			return ' '
		}
		return r
	}, data)
	return append(append([]byte("data: "), line...), "\n\n"...)
}
