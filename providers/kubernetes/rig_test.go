package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	corev1listers "k8s.io/client-go/listers/core/v1"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

func init() {
	utilruntime.ErrorHandlers = nil // they sleep outside of a test's time
}

// rig is a provider between a fake home cluster and a fake remote cluster.
type rig struct {
	*Provider
	t      *testing.T
	home   *fake.Clientset // which has only what is read from it
	remote *fake.Clientset
	pods   cache.Indexer // at home
	events *record.FakeRecorder

	beginning []string // the requests until the remote pods were known

	mu       sync.Mutex
	notified []*corev1.Pod
}

// newRig returns a rig whose node is "far". It must be called in a synctest bubble.
func newRig(t *testing.T, more string, remote *fake.Clientset, homePods ...*corev1.Pod) *rig {
	t.Helper()
	return newRigAt(t, newHome("home-uid"), more, remote, homePods...)
}

// identifyAs lets a provider start without a search for other homes.
func (p *Provider) identifyAs(uid types.UID) {
	p.translate.Home.UID = uid
	close(p.identity.known)
}

// newHome returns a home cluster, with what is read from its API server.
func newHome(uid types.UID, pods ...runtime.Object) *fake.Clientset {
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: uid}}
	return fake.NewClientset(append(pods, system)...)
}

// newRigAt is newRig for one of several homes.
func newRigAt(t *testing.T, home *fake.Clientset, more string, remote *fake.Clientset, homePods ...*corev1.Pod) *rig {
	t.Helper()
	return newRigWith(t, home, more, remote, func(*nodeutil.ProviderConfig) {}, homePods...)
}

// newRigWith is newRigAt with changes to the provider's parameters.
func newRigWith(t *testing.T, home *fake.Clientset, more string, remote *fake.Clientset, with func(*nodeutil.ProviderConfig), homePods ...*corev1.Pod) *rig {
	t.Helper()
	return newRigOfService(t, home, more, remote, nil, with, homePods...)
}

// newRigOfService is newRigWith for a service, unless that is nil.
func newRigOfService(t *testing.T, home *fake.Clientset, more string, remote *fake.Clientset, service *Service, with func(*nodeutil.ProviderConfig), homePods ...*corev1.Pod) *rig {
	t.Helper()
	cfg, err := ParseConfig([]byte(header + "cluster: home\nremote: {kubeconfig: testdata/kubeconfig}\n" + more))
	if err != nil {
		t.Fatal(err)
	}
	options, err := cfg.translation("far")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, home: home, remote: remote, pods: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}), events: record.NewFakeRecorder(100)}
	for _, pod := range homePods {
		r.setHomePod(pod)
	}
	services := corev1listers.NewServiceLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}))
	made := nodeutil.ProviderConfig{
		Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "far"}},
		Pods: corev1listers.NewPodLister(r.pods), Services: services, Objects: secretsOfHome{}, Client: r.home, Events: r.events,
		HostIPs: func() []string { return nil }, NodeAllocatable: func() corev1.ResourceList { return nil },
	}
	with(&made)
	r.Provider, err = newProvider(t.Context(), made, cfg, options, clients{remote: remote, metadata: metadataOf(t, remote)}, service)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	r.NotifyPods(t.Context(), func(pod *corev1.Pod) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.notified = append(r.notified, pod)
	})
	time.Sleep(time.Second) // caches are polled
	r.beginning = r.requests()
	return r
}

// newRemote returns a remote cluster that sets UIDs, and whose watches obey their
// selectors.
func newRemote() *fake.Clientset { return newRemoteAs("remote-uid") }

// newRemoteAs is newRemote for one of several clusters.
func newRemoteAs(uid types.UID) *fake.Clientset {
	remote := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: uid}})
	remote.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		var options metav1.ListOptions
		asked, ok := action.(clienttesting.WatchActionImpl)
		if ok {
			options = asked.ListOptions
		}
		all, err := remote.Tracker().Watch(action.GetResource(), action.GetNamespace(), options)
		if err != nil || !ok {
			return true, all, err
		}
		shown := map[types.UID]runtime.Object{}
		return true, watch.Filter(all, func(event watch.Event) (watch.Event, bool) {
			object, ok := event.Object.(metav1.Object)
			if !ok || asked.WatchRestrictions.Labels == nil {
				return event, true
			}
			was := shown[object.GetUID()]
			if asked.WatchRestrictions.Labels.Matches(labels.Set(object.GetLabels())) {
				shown[object.GetUID()] = event.Object
				return event, true
			}
			delete(shown, object.GetUID())
			return watch.Event{Type: watch.Deleted, Object: was}, was != nil // it has lost the labels
		}), nil
	})
	var count atomic.Int32
	fakeapi.React(&remote.Fake, "create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if create, ok := action.(clienttesting.CreateActionImpl); ok {
			if object, ok := create.Object.(metav1.Object); ok {
				object.SetUID(types.UID(fmt.Sprint("far-", count.Add(1))))
			}
		}
		return false, nil, nil
	})
	fakeapi.React(&remote.Fake, "patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch, ok := action.(clienttesting.PatchActionImpl)
		if !ok || patch.GetPatchType() != types.ApplyPatchType {
			return false, nil, nil
		}
		var object map[string]any
		if err := json.Unmarshal(patch.Patch, &object); err != nil {
			return true, nil, err
		}
		if meta, ok := object["metadata"].(map[string]any); ok {
			if _, err := remote.Tracker().Get(patch.GetResource(), patch.Namespace, patch.Name); err == nil && meta["resourceVersion"] != nil { // objects of the fake have none
				return true, nil, apierrors.NewConflict(patch.GetResource().GroupResource(), patch.Name, errors.New("the object has been modified"))
			}
			delete(meta, "resourceVersion")
			meta["uid"] = "far-" + patch.Name
		}
		var err error
		if patch.Patch, err = json.Marshal(object); err != nil {
			return true, nil, err
		}
		return clienttesting.ObjectReaction(remote.Tracker())(patch)
	})
	return remote
}

// metadataOf returns a metadata client of remote, which can also patch labels.
func metadataOf(t *testing.T, remote *fake.Clientset) *metadatafake.FakeMetadataClient {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	client := metadatafake.NewSimpleMetadataClient(scheme)
	kinds := map[string]string{
		"pods": "Pod", "secrets": "Secret", "configmaps": "ConfigMap", "persistentvolumeclaims": "PersistentVolumeClaim",
		"services": "Service", "endpointslices": "EndpointSlice",
	}
	fakeapi.React(&client.Fake, "list", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		list := &metav1.List{}
		resource := action.GetResource()
		all, err := remote.Tracker().List(resource, resource.GroupVersion().WithKind(kinds[resource.Resource]), action.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		err = meta.EachListItem(all, func(object runtime.Object) error {
			header, err := meta.Accessor(object)
			if err == nil {
				list.Items = append(list.Items, runtime.RawExtension{Object: meta.AsPartialObjectMetadata(header)})
			}
			return err
		})
		return true, list, err
	})
	fakeapi.React(&client.Fake, "patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		object, err := remote.Invokes(action, &corev1.Pod{})
		if err != nil {
			return true, nil, err
		}
		header, err := meta.Accessor(object)
		if err != nil {
			return true, nil, err
		}
		return true, meta.AsPartialObjectMetadata(header), nil
	})
	return client
}

// setHomePod creates or updates a pod in the cache of home pods.
func (r *rig) setHomePod(pod *corev1.Pod) {
	r.t.Helper()
	if err := r.pods.Update(pod); err != nil {
		r.t.Fatal(err)
	}
}

// last returns the status that was reported last, or an empty one.
func (r *rig) last() corev1.PodStatus {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.notified) == 0 {
		return corev1.PodStatus{}
	}
	return r.notified[len(r.notified)-1].Status
}

// requests returns the requests to the remote cluster since the last call, in their
// order.
func (r *rig) requests() (all []string) {
	synctest.Wait()
	for _, action := range r.remote.Actions() {
		resource := action.GetResource().Resource
		if sub := action.GetSubresource(); sub != "" {
			resource += "/" + sub
		}
		all = append(all, action.GetVerb()+" "+resource)
	}
	r.remote.ClearActions()
	return all
}

func (r *rig) wantRequests(what string, want ...string) {
	r.t.Helper()
	got := r.requests()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		r.t.Errorf("%s: the remote cluster was asked to %q, want %q", what, got, want)
	}
}

// remotePod returns the remote pod of a home pod, or nil.
func (r *rig) remotePod(pod *corev1.Pod) *corev1.Pod {
	r.t.Helper()
	synctest.Wait()
	list, err := r.remote.CoreV1().Pods("").List(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range list.Items {
		if translate.UIDOf(&list.Items[i]) == pod.UID {
			return &list.Items[i]
		}
	}
	return nil
}

// change changes a remote pod, as others do there.
func (r *rig) change(remote *corev1.Pod, change func(*corev1.Pod)) {
	r.t.Helper()
	next := remote.DeepCopy()
	change(next)
	if _, err := r.remote.CoreV1().Pods(next.Namespace).Update(r.t.Context(), next, metav1.UpdateOptions{}); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

// create creates a home pod and its remote pod.
func (r *rig) create(pod *corev1.Pod) *corev1.Pod {
	r.t.Helper()
	r.setHomePod(pod)
	if err := r.CreatePod(r.t.Context(), pod); err != nil {
		r.t.Fatal(err)
	}
	remote := r.remotePod(pod)
	if remote == nil {
		r.t.Fatal("there is no remote pod")
	}
	return remote
}

// named returns a home pod that needs the Secret keys, and has an environment.
func named(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), Generation: 1, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeName: "far", RestartPolicy: corev1.RestartPolicyAlways,
			Containers: []corev1.Container{{Name: "main", Image: "app:1", Env: []corev1.EnvVar{{Name: "COLOR", Value: "blue"}}}},
			Volumes:    []corev1.Volume{{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "keys"}}}},
		},
	}
}

// secretsOfHome has each Secret, and no ConfigMap.
type secretsOfHome struct{}

func (secretsOfHome) Follow(*corev1.Pod) {}
func (secretsOfHome) Forget(types.UID)   {}

func (secretsOfHome) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	return nil, errdefs.NotFoundf("configmap %s", name)
}

func (secretsOfHome) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	return &corev1.Secret{Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"name": []byte(name)}}, nil
}

func (secretsOfHome) Subscribe(func(kind, namespace, name string)) func() { return func() {} }

// followedAlone are objects that can be read for pods that are followed.
type followedAlone struct {
	secretsOfHome
	pods map[types.UID]bool
}

func (f followedAlone) Follow(pod *corev1.Pod) { f.pods[pod.UID] = true }
func (f followedAlone) Forget(uid types.UID)   { delete(f.pods, uid) }

func (f followedAlone) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	if len(f.pods) == 0 {
		return nil, apierrors.NewForbidden(corev1.Resource("secrets"), name, nil)
	}
	return f.secretsOfHome.Secret(ctx, namespace, name)
}

// The environment of a pod that the controller has not looked at yet can be read, and a pod
// that goes meanwhile is not followed for ever.
func TestEnvironmentIsReadBeforeTheControllerFollowsThePod(t *testing.T) {
	synctest.Test(t, environmentIsReadBefore)
}

func environmentIsReadBefore(t *testing.T) {
	objects := followedAlone{pods: map[types.UID]bool{}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one", UID: "uid"}}
	pod.Spec.Containers = []corev1.Container{{Name: "main", EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}}}
	r := newRigWith(t, newHome("home"), "", fake.NewClientset(), func(init *nodeutil.ProviderConfig) { init.Objects = objects }, pod)
	if resolved, err := r.resolveEnvironment(t.Context(), pod, nil); err != nil || len(resolved.Spec.Containers[0].Env) != 1 || len(objects.pods) != 1 {
		t.Errorf("got %+v, %v; followed are %v", resolved, err, objects.pods)
	}
	if err := r.pods.Delete(pod); err != nil {
		t.Fatal(err)
	}
	if _, err := r.resolveEnvironment(t.Context(), pod, nil); err != nil || len(objects.pods) != 0 {
		t.Errorf("got %v; followed are %v", err, objects.pods)
	}
}
