package podlifecycle

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podobjects"
)

// withObjects has the controller read what pods name, and nothing else.
func withObjects(r *rig) (*podobjects.Cache, func(*Config)) {
	objects := podobjects.New(r.api)
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); objects.Run(ctx) }()
	r.t.Cleanup(func() { cancel(); <-done })
	return objects, func(cfg *Config) {
		cfg.ConfigMapInformer, cfg.SecretInformer, cfg.Objects = nil, nil, objects
	}
}

// reads returns what was asked of the API about ConfigMaps and Secrets.
func (r *rig) reads() (all []string) {
	for _, action := range r.api.Actions() {
		if watch, ok := action.(clienttesting.WatchAction); ok {
			switch resource := action.GetResource().Resource; resource {
			case "configmaps", "secrets":
				all = append(all, resource+" "+watch.GetWatchRestrictions().Fields.String())
			}
		}
	}
	slices.Sort(all)
	return all
}

// A node sees the ConfigMaps and Secrets that its pods name, no others, and none
// after its pods; a pod that waits for one is created as soon as it is there.
func TestOnlyWhatPodsNameIsRead(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		objects, use := withObjects(r)
		mustCreate(t, r, &corev1.Secret{ObjectMeta: object("tokens"), Data: map[string][]byte{"main": []byte("s3cret")}})
		mustCreate(t, r, &corev1.Secret{ObjectMeta: object("others"), Data: map[string][]byte{"main": []byte("s3cret")}})
		r.start(use)
		r.api.AddPod(aPod("web", needs(false)))
		pass(time.Minute)
		want(t, "phase", r.phase("web"), corev1.PodPending)
		mustCreate(t, r, &corev1.ConfigMap{ObjectMeta: object("colors"), Data: map[string]string{"main": "blue"}})
		pass(time.Second)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
		wantList(t, "reads", r.reads(), "configmaps metadata.name=colors", "secrets metadata.name=tokens")

		r.api.DeletePod("web", 0)
		pass(time.Minute)
		if held, err := objects.Secrets().List(labels.Everything()); err != nil || len(held) > 0 {
			t.Errorf("secrets are still held: %v, %v", held, err)
		}
	})
}

// following records what is followed.
type following struct {
	ObjectSource
	uids map[types.UID]bool
}

func (f *following) Follow(pod *corev1.Pod) { f.uids[pod.UID] = true; f.ObjectSource.Follow(pod) }
func (f *following) Forget(uid types.UID)   { delete(f.uids, uid); f.ObjectSource.Forget(uid) }

// What a pod names is let go of with the pod, not with its name; also where the
// provider resolves the environment.
func TestObjectsAreFollowedForEachPod(t *testing.T) {
	for _, skip := range []bool{false, true} {
		bubble(t, func(t *testing.T, r *rig) {
			objects, use := withObjects(r)
			f := &following{objects, map[types.UID]bool{}}
			r.start(use, func(cfg *Config) {
				cfg.Objects = f
				cfg.SkipEnvironment = skip
			})
			first := r.api.AddPod(aPod("web", needs(true)))
			pass(time.Second)
			if !f.uids[first.UID] || len(f.uids) != 1 {
				t.Errorf("followed: %v, want the pod", f.uids)
			}
			r.api.DeletePod("web", 0)
			second := r.api.AddPod(aPod("web", needs(true)))
			pass(time.Minute)
			if !f.uids[second.UID] || len(f.uids) != 1 {
				t.Errorf("followed: %v, want the second pod only", f.uids)
			}
			r.api.DeletePod("web", 0)
			pass(time.Minute)
			if len(f.uids) != 0 {
				t.Errorf("followed: %v, want nothing", f.uids)
			}
		})
	}
}

// So is what the pods name that run when the agent is started.
func TestObjectsOfPodsThatRunAreFollowed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		objects, use := withObjects(r)
		r.start(use)
		pod := r.api.AddPod(aPod("web", needs(true)))
		pass(time.Minute)
		r.end()

		f := &following{objects, map[types.UID]bool{}}
		r.start(use, func(cfg *Config) { cfg.Objects = f })
		pass(time.Second)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
		if !f.uids[pod.UID] {
			t.Errorf("followed: %v, want the pod", f.uids)
		}
	})
}
