package interlinktest

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink/internal/wire"
)

// The actions of Plugin. A ping is a status of no pods, which the World knows by a path of its own.
const (
	ActionCreate, ActionDelete, ActionStatus, ActionLogs, ActionPing = "POST /create", "POST /delete", "GET /status", "GET /getLogs", "GET /ping"
)

// Plugin is a plugin that runs pods in World. As others do, it creates a job for each
// creation, also of a pod that has one.
type Plugin struct {
	World *grouptest.World
	// Unknown is how it reports a pod that it does not know: by leaving it out, as an error
	// for all (404), or as containers without a state, as the Slurm plugin does, which breaks off the
	// deletion of one.
	Unknown Unknown
	// ListAnswer has it answer a creation with a list of one.
	ListAnswer bool
	// Ping is what it answers a ping with. Defaults to a text.
	Ping string
}

// Unknown is how a plugin reports a pod that it does not know.
type Unknown int

// The ways to report it.
const (
	LeftOut Unknown = iota
	AsError
	AsStateless
)

// ServeHTTP implements http.Handler.
func (p *Plugin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := bufio.NewReader(r.Body)
	if begin, _ := body.Peek(2); r.URL.Path == "/status" && string(begin) == "[]" {
		r.URL.Path = "/ping"
	}
	r.Body = io.NopCloser(body)
	api := grouptest.API{
		World: p.World, Failed: http.StatusInternalServerError,
		Calls:  map[string]grouptest.Call{ActionCreate: p.create, ActionDelete: p.delete, ActionStatus: p.status, ActionLogs: p.logs, ActionPing: p.ping},
		Refuse: func(w http.ResponseWriter, status int, err error) { http.Error(w, err.Error(), status) },
	}
	api.ServeHTTP(w, r)
}

func (p *Plugin) create(_ http.ResponseWriter, r *http.Request) (any, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var list []wire.PluginCreate
	if json.Unmarshal(body, &list) != nil {
		list = make([]wire.PluginCreate, 1)
		if err := json.Unmarshal(body, &list[0]); err != nil {
			return nil, err
		}
	}
	if len(list) != 1 || list[0].Pod == nil {
		return nil, errors.New("there has to be one pod")
	}
	pod := list[0].Pod
	files, err := filesOf(&list[0])
	if err != nil {
		return nil, err
	}
	spec := grouptest.Spec{
		Tags: map[string]string{podgroup.TagPodName: pod.Name, "uid": string(pod.UID)}, RestartPolicy: string(pod.Spec.RestartPolicy),
		InitContainers: names(pod.Spec.InitContainers), Containers: names(pod.Spec.Containers), Files: files, Data: &list[0],
	}
	u, err := p.World.Create(spec)
	if err != nil {
		return nil, err
	}
	created := wire.Created{UID: string(pod.UID), JobID: u.ID}
	if p.ListAnswer {
		return []wire.Created{created}, nil
	}
	return created, nil
}

func names(containers []corev1.Container) (made []podgroup.Container) {
	for i := range containers {
		made = append(made, podgroup.Container{Name: containers[i].Name, Image: containers[i].Image})
	}
	return made
}

// filesOf does what plugins do with volumes: each key of an object is a file, with the
// volume's mode, which has to be there; data that is no text is only in Secrets.
func filesOf(in *wire.PluginCreate) (map[string]volume.Files, error) {
	all := map[string]volume.Files{}
	for _, c := range append(append([]corev1.Container{}, in.Pod.Spec.InitContainers...), in.Pod.Spec.Containers...) {
		got := first(in.Containers, func(o *wire.Container) bool { return o.Name == c.Name })
		for _, mount := range c.VolumeMounts {
			v := first(in.Pod.Spec.Volumes, func(v *corev1.Volume) bool { return v.Name == mount.Name })
			if len(v) == 0 || len(got) == 0 {
				return nil, fmt.Errorf("could not find volume %s in pod %s", mount.Name, in.Pod.Name)
			}
			var mode *int32
			data := map[string][]byte{}
			switch v := v[0]; {
			case v.ConfigMap != nil || v.Projected != nil:
				objects, name := got[0].ConfigMaps, ""
				if v.Projected != nil {
					objects, name, mode = got[0].Projected, v.Name, v.Projected.DefaultMode
				} else {
					name, mode = v.ConfigMap.Name, v.ConfigMap.DefaultMode
				}
				found := first(objects, func(o *corev1.ConfigMap) bool { return o.Name == name })
				if len(found) == 0 {
					return nil, fmt.Errorf("could not find configMap %s in container %s", name, c.Name)
				}
				for key, text := range found[0].Data {
					data[key] = []byte(text)
				}
			case v.Secret != nil:
				mode = v.Secret.DefaultMode
				found := first(got[0].Secrets, func(o *corev1.Secret) bool { return o.Name == v.Secret.SecretName })
				if len(found) == 0 {
					return nil, fmt.Errorf("could not find secret %s in container %s", v.Secret.SecretName, c.Name)
				}
				data = found[0].Data
			default:
				continue
			}
			if mode == nil {
				return nil, errors.New("a volume has no mode") // where others crash
			}
			files := volume.Files{}
			for key, text := range data {
				files[key] = volume.File{Data: text, Mode: fs.FileMode(*mode)} // #nosec G115 -- nine bits
			}
			all[mount.Name] = files
		}
	}
	return all, nil
}

// job returns the last job of a pod, or ErrNotFound.
func (p *Plugin) job(uid types.UID) (*grouptest.Unit, error) {
	jobs := p.World.Units(func(u *grouptest.Unit) bool { return u.Tags["uid"] == string(uid) })
	if len(jobs) == 0 {
		return nil, grouptest.ErrNotFound
	}
	return &jobs[len(jobs)-1], nil
}

func (p *Plugin) delete(_ http.ResponseWriter, r *http.Request) (any, error) {
	var pod corev1.Pod
	if err := json.NewDecoder(r.Body).Decode(&pod); err != nil {
		return nil, err
	}
	u, err := p.job(pod.UID)
	if err != nil && p.Unknown == AsStateless {
		panic(http.ErrAbortHandler)
	}
	if err != nil {
		return nil, err
	}
	return []byte("All containers for submitted Pods have been deleted"), p.World.Delete(u.ID)
}

func (p *Plugin) ping(http.ResponseWriter, *http.Request) (any, error) {
	return []byte(cmp.Or(p.Ping, "PARTITION AVAIL TIMELIMIT NODES(A/I/O/T) NODELIST\n")), nil
}

func (p *Plugin) status(_ http.ResponseWriter, r *http.Request) (any, error) {
	var pods []*corev1.Pod
	if err := json.NewDecoder(r.Body).Decode(&pods); err != nil {
		return nil, err
	}
	var all []wire.Status
	for _, pod := range pods {
		status := wire.Status{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)}
		switch u, err := p.job(pod.UID); {
		case err == nil:
			inits := len(u.Spec.InitContainers)
			status.InitContainers, status.Containers = statuses(u.Containers[:inits]), statuses(u.Containers[inits:])
		case p.Unknown == AsError:
			return nil, err
		case p.Unknown == AsStateless:
			for _, c := range pod.Spec.Containers {
				status.Containers = append(status.Containers, corev1.ContainerStatus{Name: c.Name})
			}
		default:
			continue
		}
		all = append(all, status)
	}
	return all, nil
}

func statuses(containers []podgroup.Container) (all []corev1.ContainerStatus) {
	for _, c := range containers {
		s := corev1.ContainerStatus{Name: c.Name, State: grouptest.StateOf(c.Now), Ready: c.Now.State == podgroup.Executing, RestartCount: c.Restarts}
		if c.Last.State == podgroup.Terminated {
			s.LastTerminationState = grouptest.StateOf(c.Last)
		}
		all = append(all, s)
	}
	return all
}

// logs streams a log, and follows it until the container has ended. As the Slurm plugin it
// fails for as many of the last lines as there are, and takes a number of bytes for that of
// the end of the log.
func (p *Plugin) logs(w http.ResponseWriter, r *http.Request) (any, error) {
	var in wire.Log
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, err
	}
	for written := 0; ; {
		u, err := p.job(types.UID(in.PodUID))
		if err != nil {
			return nil, nil
		}
		lines, err := p.World.Log(u.ID, in.ContainerName, in.Opts.Previous)
		if err != nil {
			return nil, nil
		}
		if in.Opts.Tail > 0 && in.Opts.Tail == len(lines)+1 { // the text after the last line counts, too
			panic(http.ErrAbortHandler)
		}
		if in.Opts.Bytes > 0 && len(lines) > 0 {
			last := lines[len(lines)-1].Text + "\n"
			return []byte(last[max(0, len(last)-in.Opts.Bytes):]), nil
		}
		if written == 0 && in.Opts.Tail > 0 {
			written = max(0, len(lines)-in.Opts.Tail)
		}
		for ; written < len(lines); written++ {
			line := lines[written]
			if in.Opts.Timestamps {
				_, _ = io.WriteString(w, line.At.UTC().Format(time.RFC3339Nano)+" ")
			}
			_, _ = io.WriteString(w, line.Text+"\n")
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return nil, nil
		}
		c := u.Container(in.ContainerName)
		if !in.Opts.Follow || c == nil || c.Now.State != podgroup.Executing {
			return nil, nil
		}
		select {
		case <-time.After(time.Second):
		case <-r.Context().Done():
			return nil, nil
		}
	}
}
