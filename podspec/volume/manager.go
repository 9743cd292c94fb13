package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podobjects"
	"github.com/virtual-kubelet/virtual-kubelet/internal/turns"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// Options are what a Manager needs.
type Options struct {
	// Root is where volumes are kept, below pods/UID/volumes.
	Root string
	// Boot identifies the run of the machine since it was booted, by a name that a file can have; it
	// may be empty. What local volumes are given once, they are given once in each run.
	Boot string
	// Objects has the ConfigMaps and Secrets. Its owner sets which
	// pods the node has (Follow, Forget); a pod controller does.
	Objects node.ObjectSource
	// Tokens requests service account tokens. Without, they are unsupported.
	Tokens TokenRequester
	// Contents has what is in volumes, tokens included, in place of Objects and Tokens; nil
	// means that these have it.
	Contents ContentSource
	// Claims resolves persistent volume claims. Without, they are unsupported.
	Claims Claims
	// NodeLabels returns the labels of the node, which may change: a claimed volume of other
	// nodes, by its node affinity, is not set up. Without, the affinity does not matter.
	NodeLabels func(ctx context.Context) (map[string]string, error)
	// Images provides the images of image volumes. Without, these are
	// unsupported.
	Images Images
	// AllowHostPath decides whether a pod may have a path of the host, by a
	// hostPath volume or by a claim of such a volume; nil is yes. Without, none
	// may. It is also asked of what is above a path, to learn whether pods may
	// have that: it decides, and does nothing else.
	AllowHostPath func(HostAccess) error
	// Event records an event about a pod; container is empty. May be nil.
	Event func(pod *corev1.Pod, container, eventType, reason, message string)
	// NodeAllocatable limits volumes in memory, and is in the downward API
	// where a pod has no limit of its own.
	NodeAllocatable corev1.ResourceList
	// NoLinksFollowed says that the containers' runtime follows no link in a path that
	// it gets, or opens it with a container's own rights. Without, a path of the host
	// below one that is allowed, and a subPath of one, is a mount of its own, so that no
	// pod can lead the runtime elsewhere, and cannot be had if the process may not mount.
	NoLinksFollowed bool
	// NoMounts keeps volumes in plain directories, for a process whose mounts
	// the containers' runtime does not see. Without, volumes of medium Memory
	// and those with secrets are in memory, and subPaths bind mounts, if the
	// process may mount.
	NoMounts bool
}

// Images provides the images of image volumes. What such a volume looks like is
// the runtime's matter: it mounts the image itself (Mount.image of the CRI).
type Images interface {
	// Image pulls the image of an image volume, as its pull policy says, and
	// returns the reference by which the runtime knows it.
	Image(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (ref string, err error)
}

// Manager sets up the volumes of pods and keeps them fresh. It has no goroutines:
// its caller calls Refresh for each pod when it is due. It is safe for concurrent
// use, but calls for the same pod must not overlap.
type Manager struct {
	opts   Options
	pods   string // the directory of all pods, without links
	tokens *Tokens

	warnOnce sync.Once
	locals   turns.Turns // by the name of the PersistentVolume

	mu     sync.Mutex
	states map[types.UID]*state
	users  map[podenv.Object]map[types.UID]bool // the pods with volumes of an object
}

// state is what is remembered of a pod. All of it can be found out again by
// Prepare; Teardown needs nothing of it.
type state struct {
	objects map[podenv.Object]struct{}
	places  map[string]place  // of claimed volumes, by the volume's name
	images  map[string]string // references, by the volume's name
	due     time.Time
	// restored says that the pod has had its volumes: see Restore.
	restored bool
}

// New makes a Manager, and the directory for its pods if there is none.
func New(opts Options) (*Manager, error) {
	pods := filepath.Join(opts.Root, "pods")
	if err := os.MkdirAll(pods, podMode); err != nil {
		return nil, fmt.Errorf("make the directory for volumes: %w", err)
	}
	pods, err := filepath.EvalSymlinks(pods) // as mounts are listed
	if err == nil {
		pods, err = filepath.Abs(pods)
	}
	if err != nil {
		return nil, fmt.Errorf("find the directory for volumes: %w", err)
	}
	m := &Manager{opts: opts, pods: pods, states: map[types.UID]*state{}, users: map[podenv.Object]map[types.UID]bool{}}
	if opts.Tokens != nil {
		m.tokens = NewTokens(opts.Tokens)
	}
	return m, nil
}

// Check returns an error that names all volumes of pod that this Manager cannot
// set up, as far as the pod itself shows. It is to be asked before anything
// is created for the pod.
func (m *Manager) Check(pod *corev1.Pod) error {
	return Check(pod, Support{
		HostPath: m.opts.AllowHostPath != nil,
		Claims:   m.opts.Claims != nil,
		Images:   m.opts.Images != nil,
		Tokens:   m.opts.Tokens != nil || m.opts.Contents != nil,
	})
}

// Subscribe has wake called with the UID of each pod that has a volume of
// a ConfigMap or Secret that appeared or changed: its Refresh is due. The
// calls must not block.
func (m *Manager) Subscribe(wake func(types.UID)) (unsubscribe func()) {
	return m.opts.Objects.Subscribe(func(kind, namespace, name string) {
		for _, uid := range m.usersOf(podenv.Object{Kind: kind, Namespace: namespace, Name: name}) {
			wake(uid)
		}
	})
}

func (m *Manager) usersOf(o podenv.Object) []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	uids := make([]types.UID, 0, len(m.users[o]))
	for uid := range m.users[o] {
		uids = append(uids, uid)
	}
	return uids
}

// recordReferences records which objects the volumes of a pod refer to.
func (m *Manager) recordReferences(pod *corev1.Pod) {
	volumes := &corev1.Pod{Spec: corev1.PodSpec{Volumes: pod.Spec.Volumes}}
	volumes.Namespace = pod.Namespace
	objects := podobjects.References(volumes)
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.states[pod.UID]
	if s == nil {
		s = &state{places: map[string]place{}, images: map[string]string{}}
		m.states[pod.UID] = s
	}
	m.unfollow(pod.UID)
	s.objects = objects
	for o := range objects {
		if m.users[o] == nil {
			m.users[o] = map[types.UID]bool{}
		}
		m.users[o][pod.UID] = true
	}
}

// unfollow undoes follow. m.mu is held.
func (m *Manager) unfollow(uid types.UID) {
	for o := range m.states[uid].objects {
		delete(m.users[o], uid)
		if len(m.users[o]) == 0 {
			delete(m.users, o)
		}
	}
}

// forget drops all that is remembered of a pod.
func (m *Manager) forget(uid types.UID) {
	if m.tokens != nil {
		m.tokens.Forget(uid)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.states[uid] != nil {
		m.unfollow(uid)
		delete(m.states, uid)
	}
}

// withState calls f with the state of a pod, if it is followed.
func (m *Manager) withState(uid types.UID, f func(*state)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.states[uid]; s != nil {
		f(s)
	}
}

// podDir returns the directory of a pod.
func (m *Manager) podDir(uid types.UID) (string, error) {
	if !isElement(string(uid)) {
		return "", fmt.Errorf("%q is no UID of a pod", uid)
	}
	return filepath.Join(m.pods, string(uid)), nil
}

// isElement reports whether a name can be that of one directory entry.
func isElement(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\\\x00")
}

// plugins are the kubelet's names of the kinds of volumes that have a directory.
var plugins = map[string]string{
	"configMap": "configmap", "secret": "secret", "downwardAPI": "downward-api", "projected": "projected",
	"emptyDir": "empty-dir",
}

var errNoDirectory = errors.New("the volume has no directory of its own")

// volumeDir returns the directory of a volume in the kubelet's layout.
func (m *Manager) volumeDir(pod *corev1.Pod, v *corev1.Volume) (string, error) {
	dir, err := m.podDir(pod.UID)
	if err != nil {
		return "", err
	}
	if !isElement(v.Name) {
		return "", permanentf("%q is no name of a volume", v.Name)
	}
	plugin := plugins[Kind(v)]
	if plugin == "" {
		return "", errNoDirectory
	}
	return filepath.Join(dir, volumesDir, "kubernetes.io~"+plugin, v.Name), nil
}
