package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/filetree"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

// handler is the name of the only runtime handler, besides the empty one.
const handler = "process"

// Files of a sandbox's directory.
const (
	sandboxFile  = "sandbox.json"
	resolvFile   = "resolv.conf"
	hostnameFile = "hostname"
)

// sandbox is a directory: the network is the machine's, and no process holds what the
// containers share (see pinShared).
type sandbox struct {
	id, dir string
	config  *runtimeapi.PodSandboxConfig
	created time.Time
	handler string
	// user is whom its containers run as if they ask for nobody.
	user account

	mu sync.Mutex
	// stopped is also true after the machine was booted again.
	stopped bool
	// recorded is set once stopped is on disk.
	recorded bool
}

// tolerant reads records of other versions, which may have more fields.
var tolerant = protojson.UnmarshalOptions{DiscardUnknown: true}

// sandboxRecord is what is written of a sandbox.
type sandboxRecord struct {
	ID      string          `json:"id"`
	Config  json.RawMessage `json:"config"`
	Created time.Time       `json:"created"`
	Handler string          `json:"handler,omitempty"`
	BootID  string          `json:"bootID"`
	Stopped bool            `json:"stopped,omitempty"`
	// User and Group are the pod's own; zero is those of all pods.
	User  int64 `json:"user,omitempty"`
	Group int64 `json:"group,omitempty"`
}

func (b *sandbox) path(name string) string { return filepath.Join(b.dir, name) }

func (b *sandbox) isStopped() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stopped
}

func sandboxName(m *runtimeapi.PodSandboxMetadata) string {
	return fmt.Sprintf("sandbox %s/%s/%s/%d", m.GetNamespace(), m.GetName(), m.GetUid(), m.GetAttempt())
}

// RunPodSandbox implements the CRI: it makes a directory for the pod.
func (r *Runtime) RunPodSandbox(_ context.Context, config *runtimeapi.PodSandboxConfig, runtimeHandler string) (string, error) {
	switch {
	case runtimeHandler != "" && runtimeHandler != handler:
		return "", invalid("there is no runtime handler %q on this node: leave the runtime class out, or let its handler be %q", runtimeHandler, handler)
	case config.GetMetadata().GetName() == "":
		return "", invalid("the sandbox has no metadata")
	case config.GetLinux().GetSecurityContext().GetPrivileged() && !r.policy.privileged:
		return "", denied("privileged pods are not allowed on this node: its operator may set allowPrivileged")
	}
	if err := errors.Join(refuseSandbox(config), r.policy.checkNamespaces(config)); err != nil {
		return "", err
	}
	box := &sandbox{id: newID(), config: proto.CloneOf(config), created: time.Now(), handler: runtimeHandler}
	box.dir = filepath.Join(r.cfg.Root, "sandboxes", box.id)
	if err := r.reserve(sandboxName(config.GetMetadata()), box.id); err != nil {
		return "", err
	}
	err := r.giveUser(box)
	if err == nil {
		err = r.makeSandbox(box)
	}
	if err != nil {
		r.release(sandboxName(config.GetMetadata()))
		return "", fmt.Errorf("sandbox of %s/%s: %w", config.GetMetadata().GetNamespace(), config.GetMetadata().GetName(), err)
	}
	r.mu.Lock()
	r.sandboxes[box.id] = box
	r.mu.Unlock()
	r.publish(box, box.id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	r.publish(box, box.id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return box.id, nil
}

func (r *Runtime) makeSandbox(box *sandbox) error {
	return r.makeDir(box.dir, box.user, func(dir string) error {
		if dns := box.config.GetDnsConfig(); dns != nil && len(dns.GetServers())+len(dns.GetSearches())+len(dns.GetOptions()) > 0 {
			if err := writeShared(filepath.Join(dir, resolvFile), resolvConf(dns)); err != nil {
				return err
			}
		}
		if name := box.config.GetHostname(); name != "" {
			if err := writeShared(filepath.Join(dir, hostnameFile), name+"\n"); err != nil {
				return err
			}
		}
		return r.writeSandbox(dir, box)
	})
}

func (r *Runtime) writeSandbox(dir string, box *sandbox) error {
	config, err := protojson.Marshal(box.config)
	if err != nil {
		return err
	}
	return shim.WriteRecord(dir, sandboxFile, sandboxRecord{
		ID: box.id, Config: config, Created: box.created, Handler: box.handler, BootID: r.bootID, Stopped: box.stopped,
		User: box.user.uid, Group: box.user.gid,
	})
}

// makeDir makes a directory with what fill puts into it, all or nothing: it has
// another name until it is whole. Where there is no isolation the pod's group may
// pass through it, and nobody else ever.
func (r *Runtime) makeDir(dir string, user account, fill func(dir string) error) error {
	parent, name := filepath.Split(dir)
	tmp := filepath.Join(parent, ".new-"+name)
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return err
	}
	err := fill(tmp)
	if err == nil && r.policy.root && r.isolation == IsolationNone {
		err = errors.Join(os.Lchown(tmp, -1, int(user.gid)), os.Chmod(tmp, 0o710))
	}
	if err == nil {
		err = os.Rename(tmp, dir)
	}
	if err != nil {
		return errors.Join(err, removeAll(tmp))
	}
	return shim.SyncDir(parent)
}

// removeDir removes a directory such that it is there as a whole or not at all.
func removeDir(dir string) error {
	parent, name := filepath.Split(dir)
	gone := filepath.Join(parent, ".old-"+name)
	if err := os.Rename(dir, gone); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return removeAll(gone)
}

// removeAll removes a directory, also one that containers have made hard to remove.
func removeAll(dir string) error {
	return filetree.Remove(filepath.Dir(dir), filepath.Base(dir))
}

// writeShared writes a file that all users may read.
func writeShared(path, text string) error {
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Chmod(path, 0o644)
}

func resolvConf(dns *runtimeapi.DNSConfig) string {
	var b strings.Builder
	for _, server := range dns.GetServers() {
		fmt.Fprintf(&b, "nameserver %s\n", server)
	}
	if len(dns.GetSearches()) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(dns.GetSearches(), " "))
	}
	if len(dns.GetOptions()) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(dns.GetOptions(), " "))
	}
	return b.String()
}

func (r *Runtime) sandbox(id string) (*sandbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if box, ok := r.sandboxes[id]; ok {
		return box, nil
	}
	return nil, notFound("sandbox", id)
}

// StopPodSandbox implements the CRI: it kills what runs in the sandbox.
func (r *Runtime) StopPodSandbox(ctx context.Context, id string) error {
	box, err := r.sandbox(id)
	if err != nil {
		// Removed: nothing is left to stop.
		return nil
	}
	box.mu.Lock()
	first := !box.stopped
	box.stopped = true
	r.recordStop(box)
	box.mu.Unlock()
	if err := r.each(r.containersOf(id), func(c *container) error { return r.stop(ctx, c, 0) }); err != nil {
		return err
	}
	box.mu.Lock()
	err = r.unpinShared(id)
	box.mu.Unlock()
	if err != nil {
		return fmt.Errorf("stop sandbox %s: %w", id, err)
	}
	if first {
		r.publish(box, id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
	return nil
}

// recordStop writes down that a sandbox was stopped, unless that was done. On a full disk
// the sandbox stops all the same, which may make room: after a restart it is one that is
// ready and has nothing in it, until it is stopped again. The caller holds mu.
func (r *Runtime) recordStop(box *sandbox) {
	if box.recorded {
		return
	}
	err := r.writeSandbox(box.dir, box)
	box.recorded = err == nil
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.logger.WithError(err).WithField("sandbox", box.id).Warn("Cannot record that a sandbox was stopped")
	}
}

// each calls f for all containers at the same time.
func (r *Runtime) each(all []*container, f func(*container) error) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, c := range all {
		wg.Go(func() { errs[i] = f(c) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// RemovePodSandbox implements the CRI.
func (r *Runtime) RemovePodSandbox(ctx context.Context, id string) error {
	box, err := r.sandbox(id)
	if err != nil {
		return nil
	}
	if err := r.StopPodSandbox(ctx, id); err != nil {
		return err
	}
	if err := r.each(r.containersOf(id), func(c *container) error { return r.remove(ctx, c) }); err != nil {
		return err
	}
	if err := removeDir(box.dir); err != nil {
		return fmt.Errorf("remove sandbox %s: %w", id, err)
	}
	r.mu.Lock()
	_, was := r.sandboxes[id]
	delete(r.sandboxes, id)
	if was {
		delete(r.names, sandboxName(box.config.GetMetadata()))
	}
	r.mu.Unlock()
	if was {
		r.publish(box, id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	}
	return nil
}

// PodSandboxStatus implements the CRI.
func (r *Runtime) PodSandboxStatus(_ context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	box, err := r.sandbox(id)
	if err != nil {
		return nil, err
	}
	response := &runtimeapi.PodSandboxStatusResponse{
		Status: r.statusOfSandbox(box), ContainersStatuses: r.statusesOf(id), Timestamp: time.Now().UnixNano(),
	}
	if verbose {
		response.Info = map[string]string{"info": fmt.Sprintf(`{"dir":%q,"isolation":%q}`, box.dir, r.isolation)}
	}
	return response, nil
}

func (r *Runtime) statusOfSandbox(box *sandbox) *runtimeapi.PodSandboxStatus {
	network := &runtimeapi.PodSandboxNetworkStatus{Ip: r.cfg.NodeIPs[0]}
	for _, ip := range r.cfg.NodeIPs[1:] {
		network.AdditionalIps = append(network.AdditionalIps, &runtimeapi.PodIP{Ip: ip})
	}
	options := proto.CloneOf(box.config.GetLinux().GetSecurityContext().GetNamespaceOptions())
	return &runtimeapi.PodSandboxStatus{
		Id: box.id, Metadata: proto.CloneOf(box.config.GetMetadata()), State: stateOfSandbox(box),
		CreatedAt: box.created.UnixNano(), Network: network,
		Linux:  &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: options}},
		Labels: maps.Clone(box.config.GetLabels()), Annotations: maps.Clone(box.config.GetAnnotations()),
		RuntimeHandler: box.handler,
	}
}

func stateOfSandbox(box *sandbox) runtimeapi.PodSandboxState {
	if box.isStopped() {
		return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	return runtimeapi.PodSandboxState_SANDBOX_READY
}

// ListPodSandbox implements the CRI.
func (r *Runtime) ListPodSandbox(_ context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	var list []*runtimeapi.PodSandbox
	for _, box := range r.allSandboxes() {
		if filter.GetId() != "" && filter.GetId() != box.id ||
			filter.GetState() != nil && filter.GetState().GetState() != stateOfSandbox(box) ||
			!selects(filter.GetLabelSelector(), box.config.GetLabels()) {
			continue
		}
		list = append(list, &runtimeapi.PodSandbox{
			Id: box.id, Metadata: proto.CloneOf(box.config.GetMetadata()), State: stateOfSandbox(box),
			CreatedAt: box.created.UnixNano(), RuntimeHandler: box.handler,
			Labels: maps.Clone(box.config.GetLabels()), Annotations: maps.Clone(box.config.GetAnnotations()),
		})
	}
	return list, nil
}

// allSandboxes are the sandboxes, the newest first.
func (r *Runtime) allSandboxes() []*sandbox {
	r.mu.Lock()
	all := slices.Collect(maps.Values(r.sandboxes))
	r.mu.Unlock()
	slices.SortFunc(all, func(a, b *sandbox) int { return b.created.Compare(a.created) })
	return all
}

// selects reports whether labels have all that a selector asks for.
func selects(selector, labels map[string]string) bool {
	for key, value := range selector {
		if got, ok := labels[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// UpdatePodSandboxResources implements the CRI: pods have no control group of
// their own.
func (r *Runtime) UpdatePodSandboxResources(_ context.Context, request *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	if _, err := r.sandbox(request.GetPodSandboxId()); err != nil {
		return nil, err
	}
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

func (r *Runtime) readSandbox(dir string) (*sandbox, error) {
	var record sandboxRecord
	if err := shim.ReadRecord(dir, sandboxFile, &record); err != nil {
		return nil, err
	}
	box := &sandbox{
		id: record.ID, dir: dir, config: &runtimeapi.PodSandboxConfig{},
		created: record.Created, handler: record.Handler,
		stopped: record.Stopped || record.BootID != r.bootID, recorded: record.Stopped,
		user: account{record.User, record.Group},
	}
	if record.User == 0 { // of a version that gave all pods the same, or root's by configuration
		box.user = r.policy.defaultUser
	}
	if err := tolerant.Unmarshal(record.Config, box.config); err != nil {
		return nil, status.Errorf(codes.DataLoss, "sandbox %s: %v", record.ID, err)
	}
	if box.id != filepath.Base(dir) {
		return nil, status.Errorf(codes.DataLoss, "sandbox %s has the record of %q", filepath.Base(dir), box.id)
	}
	return box, nil
}
