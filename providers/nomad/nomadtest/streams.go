package nomadtest

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// maxVariable is the size of a variable, and variablePath its path.
const maxVariable = 64 << 10

var variablePath = regexp.MustCompile(`^[a-zA-Z0-9-_~/]{1,128}$`)

func (s *Server) putVar(w http.ResponseWriter, r *http.Request) (any, error) {
	path := r.PathValue("path")
	var v api.Variable
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&v); err != nil {
		return nil, bad("%v", err)
	}
	size := 0
	for key, item := range v.Items {
		size += len(key) + len(item)
	}
	if !variablePath.MatchString(path) || v.Path != path || len(v.Items) == 0 {
		return nil, bad("invalid path %q", path)
	}
	if size > maxVariable {
		return nil, bad("variables are limited to %d bytes in total size", maxVariable)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v.ModifyTime = s.World.Now().UnixNano()
	s.vars[path] = &v
	for id, j := range s.jobs { // clients write the files again
		if strings.HasPrefix(path, "nomad/jobs/"+id+"/") && !j.gone {
			files := s.render(j.spec)
			_ = s.World.Change(j.spec.Meta[podgroup.TagPodName], func(u *grouptest.Unit) { u.Files = files }) // it may be gone
		}
	}
	setIndex(w, s.next())
	return v, nil
}

func (s *Server) listVars(w http.ResponseWriter, r *http.Request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []*api.VariableMetadata{}
	for path := range s.vars {
		if strings.HasPrefix(path, r.URL.Query().Get("prefix")) {
			all = append(all, &api.VariableMetadata{Namespace: s.Namespace, Path: path, ModifyTime: s.vars[path].ModifyTime})
		}
	}
	return page(w, r, s.index, all, func(v *api.VariableMetadata) string { return v.Path })
}

func (s *Server) getVar(w http.ResponseWriter, r *http.Request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.vars[r.PathValue("path")]
	if v == nil {
		return nil, notFound("variable")
	}
	setIndex(w, s.index)
	return v, nil
}

func (s *Server) deleteVar(w http.ResponseWriter, r *http.Request) (any, error) {
	path := r.PathValue("path")
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.vars, path)
	setIndex(w, s.next())
	w.WriteHeader(http.StatusNoContent)
	return nil, nil
}

// Variables are the paths of all variables.
func (s *Server) Variables() (paths []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for path := range s.vars {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}

// item is an item of a variable, as templates see it: no text.
type item struct{ Key, Value string }

// execute executes a template of a task, with the variables that it may read.
func (s *Server) execute(id, task, text string) []byte {
	may := []string{"nomad/jobs", "nomad/jobs/" + id, "nomad/jobs/" + id + "/pod", "nomad/jobs/" + id + "/pod/" + task}
	t, err := template.New("").Funcs(template.FuncMap{
		"base64Decode": func(text string) (string, error) {
			decoded, err := base64.StdEncoding.DecodeString(text)
			return string(decoded), err
		},
		"nomadVar": func(path string) map[string]item {
			v := s.vars[path]
			if v == nil || !slices.Contains(may, path) {
				return nil
			}
			items := map[string]item{}
			for key, value := range v.Items {
				items[key] = item{key, value}
			}
			return items
		},
	}).Parse(text)
	var b strings.Builder
	if err == nil {
		err = t.Execute(&b, nil)
	}
	if err != nil {
		return []byte("template failed: " + err.Error())
	}
	return []byte(b.String())
}

// streamEvents sends events from an index on, as far as it has them, and heartbeats.
func (s *Server) streamEvents(w http.ResponseWriter, r *http.Request) (any, error) {
	from, err := strconv.ParseUint(r.URL.Query().Get("index"), 10, 64)
	if err != nil {
		return nil, bad("index: %v", err)
	}
	topics := r.URL.Query()["topic"]
	broken, stop := s.World.Subscribe()
	defer stop()
	s.mu.Lock()
	s.look()
	at := max(0, len(s.events)-s.keep)
	for at < len(s.events) && s.events[at].Index < from {
		at++
	}
	s.mu.Unlock()
	tick, heartbeat := time.NewTicker(200*time.Millisecond), time.NewTicker(30*time.Second)
	defer tick.Stop()
	defer heartbeat.Stop()
	encoder, flush := json.NewEncoder(w), w.(http.Flusher).Flush
	w.WriteHeader(http.StatusOK)
	flush()
	for {
		select {
		case <-r.Context().Done():
			return nil, nil
		case _, ok := <-broken:
			if !ok {
				panic(http.ErrAbortHandler)
			}
			continue // the clock shows it soon enough
		case <-heartbeat.C:
			if err := encoder.Encode(struct{}{}); err != nil {
				return nil, nil
			}
		case <-tick.C:
		}
		s.mu.Lock()
		s.look()
		fresh := slices.Clone(s.events[at:])
		at = len(s.events)
		s.mu.Unlock()
		for _, b := range fresh {
			if slices.Contains(topics, string(b.Events[0].Topic)) {
				if err := encoder.Encode(b); err != nil {
					return nil, nil
				}
			}
		}
		flush()
	}
}
