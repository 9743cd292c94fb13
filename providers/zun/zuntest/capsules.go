package zuntest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/zun/internal/wire"
)

// fields are the names that Zun's schema has. Others are refused.
var fields = grouptest.Schema{
	"template": "kind capsuleVersion metadata restartPolicy spec availabilityZone nets", "metadata": "name labels annotations",
	"spec":       "containers initContainers restartPolicy volumes",
	"containers": containerFields, "initContainers": containerFields,
	"ports": "name containerPort hostPort protocol", "resources": "requests", "requests": "cpu memory", "volumeMounts": "name mountPath readOnly",
	"volumes": "name cinder", "cinder": "volumeID size autoRemove", "nets": "network port v4-fixed-ip v6-fixed-ip",
}

const containerFields = "name image command args resources ports volumeMounts env workDir imagePullPolicy stdin tty"

// nameRule is that of names of capsules and volumes.
var nameRule = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{1,254}$`)

// maxCPUs is the most that a container may have, by Zun's configuration.
const maxCPUs = 96

// wrong returns what the schema refuses; empty if nothing.
func wrong(t *wire.Template) string {
	mounts := map[string]bool{}
	for _, c := range slices.Concat(t.Spec.InitContainers, t.Spec.Containers) {
		switch {
		case len(c.Image) < 2 || len(c.Image) > 255:
			return "image"
		case !slices.Contains([]string{"", "never", "always", "ifnotpresent"}, c.ImagePullPolicy):
			return "imagePullPolicy " + c.ImagePullPolicy
		case c.Resources != nil && (c.Resources.Requests.CPU > maxCPUs || c.Resources.Requests.Memory < 0):
			return "resources"
		}
		for _, p := range c.Ports {
			if p.Protocol != "TCP" && p.Protocol != "UDP" || p.ContainerPort <= 0 {
				return "ports"
			}
		}
		for _, m := range c.VolumeMounts {
			mounts[m.Name] = true
		}
	}
	for _, v := range t.Spec.Volumes {
		switch {
		case !nameRule.MatchString(v.Name) || !mounts[v.Name]:
			return "volume mount parameters is invalid: " + v.Name
		case (v.Cinder.VolumeID == "") == (v.Cinder.Size == 0) || v.Cinder.VolumeID != "" && len(v.Cinder.VolumeID) != 36:
			return "cinder of volume " + v.Name
		}
		delete(mounts, v.Name)
	}
	switch {
	case t.Kind != "capsule" && t.Kind != "Capsule":
		return "kind"
	case t.Metadata.Name != "" && !nameRule.MatchString(t.Metadata.Name):
		return "metadata.name"
	case !slices.Contains([]string{"Always", "OnFailure", "Never"}, t.Spec.RestartPolicy):
		return "restartPolicy"
	case len(t.Spec.Containers) == 0:
		return "containers"
	case len(mounts) > 0:
		return "a mount of no volume"
	}
	return ""
}

// create takes the template as an object, or as the text of one.
func (s *Server) create(w http.ResponseWriter, r *http.Request) (any, error) {
	var request struct {
		Template json.RawMessage `json:"template"`
	}
	var t wire.Template
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		return nil, err
	}
	if text := ""; json.Unmarshal(request.Template, &text) == nil {
		request.Template = []byte(text)
	}
	if _, err := fields.Decode(bytes.NewReader(request.Template), "template", &t); err != nil {
		return nil, err
	}
	if wrong := wrong(&t); wrong != "" {
		return nil, refuse(http.StatusBadRequest, "Invalid input for field/attribute "+wrong)
	}
	for _, v := range t.Spec.Volumes {
		if used := s.World.Units(func(u *grouptest.Unit) bool { return v.Cinder.VolumeID != "" && uses(u, v.Cinder.VolumeID) }); len(used) > 0 {
			return nil, refuse(http.StatusBadRequest, "Volume "+v.Cinder.VolumeID+" is still in use.")
		}
	}
	spec := grouptest.Spec{Tags: t.Metadata.Labels, RestartPolicy: t.Spec.RestartPolicy, Data: &t}
	for i, c := range slices.Concat(t.Spec.InitContainers, t.Spec.Containers) {
		named := podgroup.Container{Name: cmp.Or(c.Env[wire.EnvName], "container-"+strconv.Itoa(i)), Image: c.Image}
		if i < len(t.Spec.InitContainers) {
			spec.InitContainers = append(spec.InitContainers, named)
		} else {
			spec.Containers = append(spec.Containers, named)
		}
	}
	u, err := s.World.Create(spec)
	if err == nil && s.NoHosts {
		pod := u.Tags[podgroup.TagPodName]
		if err = s.World.FailUnit(pod, "NoValidHost", "There are not enough hosts available."); err == nil {
			u, err = s.World.OfPod(pod)
		}
	}
	if err != nil {
		return nil, err
	}
	w.WriteHeader(http.StatusAccepted)
	return s.view(&u), nil
}

// uses reports whether a capsule has a volume.
func uses(u *grouptest.Unit, volume string) bool {
	return slices.ContainsFunc(u.Spec.Data.(*wire.Template).Spec.Volumes, func(v wire.Volume) bool { return v.Cinder.VolumeID == volume })
}

// policyOf is the restart policy of a container as Zun makes it: from the first init container
// of a capsule that is always started again, it is another one, also for those that follow.
func policyOf(u *grouptest.Unit, ofCapsule bool) map[string]string {
	if u.Spec.RestartPolicy == "Always" && len(u.Spec.InitContainers) > 0 && !ofCapsule {
		return map[string]string{"Name": "on-failure", "MaximumRetryCount": "10"}
	}
	return map[string]string{"Name": map[string]string{"Always": "always", "OnFailure": "on-failure", "Never": "no"}[u.Spec.RestartPolicy], "MaximumRetryCount": "0"}
}

// The UUIDs of capsules and containers have the number of the unit, and that of the container.
const capsuleUUID, containerUUID = "5a0c1e5e-0000-4000-8000-%012d", "c0000000-0000-4000-8%03d-%012d"

func numberOf(unit string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(unit, "unit-"))
	return n
}

// find returns a capsule by its UUID or its name, as Zun does.
func (s *Server) find(ident string) (grouptest.Unit, error) {
	found := s.World.Units(func(u *grouptest.Unit) bool {
		return ident == fmt.Sprintf(capsuleUUID, numberOf(u.ID)) || ident == u.Spec.Data.(*wire.Template).Metadata.Name
	})
	switch len(found) {
	case 0:
		return grouptest.Unit{}, grouptest.ErrNotFound
	case 1:
		return found[0], nil
	}
	return grouptest.Unit{}, refuse(http.StatusConflict, "Multiple capsules exist with same name. Please use the capsule uuid instead.")
}

func (s *Server) get(_ http.ResponseWriter, r *http.Request) (any, error) {
	u, err := s.find(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return s.view(&u), nil
}

func (s *Server) delete(w http.ResponseWriter, r *http.Request) (any, error) {
	u, err := s.find(r.PathValue("id"))
	if err == nil {
		err = s.World.Delete(u.ID)
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return nil, err
}

// list has pages with markers, which are UUIDs of capsules that exist. Next is a link with an
// address that a client may not reach.
func (s *Server) list(_ http.ResponseWriter, r *http.Request) (any, error) {
	q := r.URL.Query()
	limit, err := strconv.Atoi(q.Get("limit"))
	if err != nil || limit <= 0 {
		return nil, refuse(http.StatusBadRequest, "Limit must be positive")
	}
	units := s.World.Units(nil)
	if marker := q.Get("marker"); marker != "" {
		last, err := s.find(marker)
		if err != nil {
			return nil, err
		}
		for len(units) > 0 && numberOf(units[0].ID) <= numberOf(last.ID) {
			units = units[1:]
		}
	}
	limit = min(limit, s.MaxLimit)
	list, next := []any{}, any(nil)
	for i := range units[:min(limit, len(units))] {
		list = append(list, s.view(&units[i]))
	}
	if len(list) == limit {
		next = "http://192.0.2.1:9517/v1/capsules?limit=" + strconv.Itoa(limit)
	}
	return map[string]any{"capsules": list, "next": next}, nil
}

func timeOf(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

// view is what Zun shows of a capsule. Its status is that of the container with the network, or
// Error if it could not be created; containers that were started before run on.
func (s *Server) view(u *grouptest.Unit) map[string]any {
	t := u.Spec.Data.(*wire.Template)
	status, reason := "Creating", any(nil)
	started := slices.ContainsFunc(u.Containers, func(c podgroup.Container) bool { return c.Now.State != podgroup.Waiting })
	runsOn := slices.ContainsFunc(u.Containers, func(c podgroup.Container) bool { return c.Now.State == podgroup.Executing })
	switch {
	case u.Phase == podgroup.Stopping:
		status = "Deleting"
	case u.Over() && (!started || runsOn):
		status, reason = "Error", u.Events[len(u.Events)-1].Message
	case u.Phase != podgroup.Pending:
		status = "Running"
	}
	addresses := map[string]any{}
	for _, ip := range u.IPs {
		addresses["86f0b398-414f-4e6a-b569-21d3452eb769"] = []any{map[string]any{"addr": ip, "version": 4, "preserve_on_delete": false, "port": "p", "subnet_id": "s"}}
	}
	all := []any{}
	for i := range u.Containers {
		all = append(all, containerView(u, i))
	}
	inits := len(u.Spec.InitContainers)
	updated := u.Ended
	if updated.IsZero() {
		updated = u.Created
	}
	return map[string]any{
		"uuid": fmt.Sprintf(capsuleUUID, numberOf(u.ID)), "name": t.Metadata.Name, "labels": u.Tags, "status": status, "status_reason": reason,
		"restart_policy": policyOf(u, true),
		"created_at":     timeOf(u.Created), "updated_at": timeOf(updated), "addresses": addresses, "init_containers": all[:inits], "containers": all[inits:],
		"cpu": 1.0, "memory": "512", "user_id": "u", "project_id": "p", "links": []any{},
	}
}

// containerView is what lists show of a container: how it ended is not among it.
func containerView(u *grouptest.Unit, i int) map[string]any {
	t, c := u.Spec.Data.(*wire.Template), u.Containers[i]
	of := slices.Concat(t.Spec.InitContainers, t.Spec.Containers)[i]
	status := map[podgroup.State]string{podgroup.Waiting: "Creating", podgroup.Executing: "Running", podgroup.Terminated: "Stopped"}[c.Now.State]
	return map[string]any{
		"uuid": fmt.Sprintf(containerUUID, i, numberOf(u.ID)), "name": fmt.Sprintf("capsule-%s-zeta-%d", t.Metadata.Name, i), "image": c.Image, "environment": of.Env,
		"status": status, "status_detail": nil, "status_reason": nil, "started_at": timeOf(c.Now.Started), "command": slices.Concat(of.Command, of.Args),
		"restart_policy": policyOf(u, false),
	}
}

// container returns the container with a UUID.
func (s *Server) container(uuid string) (u grouptest.Unit, i int, err error) {
	if !s.HideContainers {
		for _, u := range s.World.Units(nil) {
			for i := range u.Containers {
				if uuid == fmt.Sprintf(containerUUID, i, numberOf(u.ID)) {
					return u, i, nil
				}
			}
		}
	}
	return u, 0, refuse(http.StatusNotFound, "Not found; the container you requested does not exist.")
}

func (s *Server) show(_ http.ResponseWriter, r *http.Request) (any, error) {
	u, i, err := s.container(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	view := containerView(&u, i)
	if now := u.Containers[i].Now; now.State == podgroup.Terminated {
		view["status_detail"] = fmt.Sprintf("Exited(%d) 3 seconds ago ", now.ExitCode)
	}
	return view, nil
}

func (s *Server) logs(_ http.ResponseWriter, r *http.Request) (any, error) {
	u, i, err := s.container(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	q := r.URL.Query()
	for name := range q {
		if !slices.Contains([]string{"stdout", "stderr", "timestamps", "tail", "since"}, name) {
			return nil, refuse(http.StatusBadRequest, "Additional properties are not allowed: "+name)
		}
	}
	query := podgroup.LogQuery{Timestamps: q.Get("timestamps") == "true"}
	query.Tail, _ = strconv.Atoi(q.Get("tail")) // "all" is no number
	if since := q.Get("since"); since != "" {
		seconds, err := strconv.ParseInt(since, 10, 64)
		if err != nil {
			return nil, refuse(http.StatusBadRequest, "since")
		}
		query.Since = time.Unix(seconds, 0)
	}
	return s.World.LogText(u.ID, u.Containers[i].Name, query)
}

// running returns the container of a request, which has to run.
func (s *Server) running(r *http.Request, action string) (u grouptest.Unit, i int, err error) {
	u, i, err = s.container(r.PathValue("id"))
	if err == nil && u.Containers[i].Now.State != podgroup.Executing {
		err = refuse(http.StatusConflict, fmt.Sprintf("Cannot %s container %s in %s state", action, r.PathValue("id"), containerView(&u, i)["status"]))
	}
	return u, i, err
}

// stats are made as by Zun's driver for Docker: its percentage of CPU is that of the time that all
// CPUs of the host had since its start.
func (s *Server) stats(_ http.ResponseWriter, r *http.Request) (any, error) {
	u, i, err := s.running(r, "stats")
	if err != nil {
		return nil, err
	}
	const mib = 1 << 20
	return map[string]any{
		"CONTAINER": containerView(&u, i)["name"], "CPU %": 0.00021, "BLOCK I/O(B)": "4096/0", "NET I/O(B)": fmt.Sprintf("%d/%d", s.Usage.Received, s.Usage.Sent),
		"MEM USAGE(MiB)": float64(s.Usage.Memory) / mib, "MEM LIMIT(MiB)": float64(s.Usage.Limit) / mib, "MEM %": float64(s.Usage.Memory) / float64(max(1, s.Usage.Limit)) * 100,
	}, nil
}

func (s *Server) execute(_ http.ResponseWriter, r *http.Request) (any, error) {
	u, i, err := s.running(r, "execute")
	if err != nil {
		return nil, err
	}
	q := r.URL.Query()
	if q.Get("run") != "true" || q.Get("interactive") != "false" || q.Get("command") == "" {
		return nil, errors.New("the fake runs commands without a terminal only")
	}
	// Commands come quoted, with '"'"' for a quote.
	command := strings.ReplaceAll(q.Get("command"), `'"'"'`, "\x00")
	if !strings.HasPrefix(command, "'") || !strings.HasSuffix(command, "'") {
		return nil, refuse(http.StatusBadRequest, "a command that is not quoted: "+command)
	}
	words := strings.Split(strings.ReplaceAll(command[1:len(command)-1], "\x00", "'"), "' '")
	output, code := strings.Join(words, "|"), 0
	if s.Shell != nil {
		output, code = s.Shell(u.Containers[i].Name, words)
	}
	return map[string]any{"output": output, "exit_code": code, "exec_id": nil, "url": nil}, nil
}
