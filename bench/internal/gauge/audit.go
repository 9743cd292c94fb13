package gauge

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// AuditPolicy has the API server record who asks what of it, but for the rest of
// the control plane.
const AuditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: ["system:apiserver", "system:kube-controller-manager", "system:kube-scheduler"]
- level: None
  userGroups: ["system:serviceaccounts:kube-system"]
- level: Metadata
`

// WatchList is the verb of a watch that begins with a list.
const WatchList = "WATCHLIST"

// Audit reads a record made by AuditPolicy.
type Audit struct {
	Path string
	// Ours is how the user agents begin whose requests do not count.
	Ours string
}

// entry is a line of the record.
type entry struct {
	Verb                     string
	RequestURI               string
	UserAgent                string
	Stage                    string
	RequestReceivedTimestamp time.Time
	ObjectRef                struct{ Resource, Subresource string }
}

// Mark returns where the record ends now.
func (a Audit) Mark() (int64, error) {
	info, err := os.Stat(a.Path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Since returns the requests that were answered after a mark, and when the last
// of them came; of those to the resource that is called quiet it does not tell.
func (a Audit) Since(mark int64, quiet string) (Requests, time.Time, error) {
	f, err := os.Open(a.Path)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer f.Close()
	if _, err := f.Seek(mark, io.SeekStart); err != nil {
		return nil, time.Time{}, err
	}
	requests, last := Requests{}, time.Time{}
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // a line that is being written is not over
			return requests, last, nil
		}
		if err != nil {
			return nil, last, err
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, last, fmt.Errorf("%s: %w", a.Path, err)
		}
		if strings.HasPrefix(e.UserAgent, a.Ours) || !e.counts() {
			continue
		}
		requests[e.request()]++
		if e.ObjectRef.Resource != quiet && e.RequestReceivedTimestamp.After(last) {
			last = e.RequestReceivedTimestamp
		}
	}
}

// counts reports whether the entry is the one of its request: those of watches
// have one for the beginning, and one for the end.
func (e entry) counts() bool { return (e.Verb == "watch") == (e.Stage == "ResponseStarted") }

// request names the kind as the API server's metrics do.
func (e entry) request() Request {
	verbs := map[string]string{"create": "POST", "update": "PUT"}
	r := Request{Verb: verbs[e.Verb], Resource: e.ObjectRef.Resource}
	if r.Verb == "" {
		r.Verb = strings.ToUpper(e.Verb)
	}
	if e.Verb == "watch" && strings.Contains(e.RequestURI, "sendInitialEvents=true") {
		r.Verb = WatchList
	}
	if e.ObjectRef.Subresource != "" {
		r.Resource += "/" + e.ObjectRef.Subresource
	}
	if r.Resource == "" {
		r.Resource, _, _ = strings.Cut(e.RequestURI, "?")
	}
	return r
}
