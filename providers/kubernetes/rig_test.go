package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/translate"
)

func init() {
	utilruntime.ErrorHandlers = nil // they sleep outside of a test's time
}

// rig is a provider between a home and a remote cluster that are not there. Remote
// requests are in the order in which they were made.
type rig struct {
	*Provider
	t      *testing.T
	home   *fake.Clientset // which has but what is asked of it
	remote *fake.Clientset
	pods   cache.Indexer // at home
	events *record.FakeRecorder

	beginning []string // the requests until the remote pods were known

	mu   sync.Mutex
	told []*corev1.Pod
}

// newRig makes one of a node "far". It has to be in a synctest bubble.
func newRig(t *testing.T, more string, remote *fake.Clientset, homePods ...*corev1.Pod) *rig {
	t.Helper()
	return newRigAt(t, newHome("home-uid"), more, remote, homePods...)
}

// identifyAs spares a provider the search for those who have the same names.
func (p *Provider) identifyAs(uid types.UID) {
	p.translate.Home.UID = uid
	close(p.identity.known)
}

// newHome is a home cluster, as far as it is asked itself.
func newHome(uid types.UID, pods ...runtime.Object) *fake.Clientset {
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: uid}}
	return fake.NewClientset(append(pods, system)...)
}

// newRigAt is newRig for one home of several.
func newRigAt(t *testing.T, home *fake.Clientset, more string, remote *fake.Clientset, homePods ...*corev1.Pod) *rig {
	t.Helper()
	return newRigWith(t, home, more, remote, func(*nodeutil.ProviderConfig) {}, homePods...)
}

// newRigWith is newRigAt with more of what a provider is made with.
func newRigWith(t *testing.T, home *fake.Clientset, more string, remote *fake.Clientset, with func(*nodeutil.ProviderConfig), homePods ...*corev1.Pod) *rig {
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
		r.atHome(pod)
	}
	services := corev1listers.NewServiceLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}))
	made := nodeutil.ProviderConfig{
		Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "far"}},
		Pods: corev1listers.NewPodLister(r.pods), Services: services, Objects: secretsOfHome{}, Client: r.home, Events: r.events,
		HostIPs: func() []string { return nil }, NodeAllocatable: func() corev1.ResourceList { return nil },
	}
	with(&made)
	r.Provider, err = newProvider(t.Context(), made, cfg, options, clients{remote: remote, metadata: metadataOf(t, remote)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	r.NotifyPods(t.Context(), func(pod *corev1.Pod) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.told = append(r.told, pod)
	})
	time.Sleep(time.Second) // caches are asked about now and then
	r.beginning = r.requests()
	return r
}

// newRemote is a remote cluster that gives objects a UID, as each does, and whose
// watches are of what they ask for.
func newRemote() *fake.Clientset {
	remote := fake.NewClientset()
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
		return true, watch.Filter(all, func(event watch.Event) (watch.Event, bool) {
			object, ok := event.Object.(metav1.Object)
			return event, !ok || asked.WatchRestrictions.Labels == nil || asked.WatchRestrictions.Labels.Matches(labels.Set(object.GetLabels()))
		}), nil
	})
	var count atomic.Int32
	remote.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if create, ok := action.(clienttesting.CreateActionImpl); ok {
			if object, ok := create.Object.(metav1.Object); ok {
				object.SetUID(types.UID(fmt.Sprint("far-", count.Add(1))))
			}
		}
		return false, nil, nil
	})
	remote.PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch, ok := action.(clienttesting.PatchActionImpl)
		if !ok || patch.GetPatchType() != types.ApplyPatchType {
			return false, nil, nil
		}
		var object map[string]any
		if err := json.Unmarshal(patch.Patch, &object); err != nil {
			return true, nil, err
		}
		if meta, ok := object["metadata"].(map[string]any); ok {
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

// metadataOf is the client that asks for names and labels alone, and changes them.
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
	client.PrependReactor("list", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
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
	client.PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
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

// atHome has the home cluster have a pod.
func (r *rig) atHome(pod *corev1.Pod) {
	r.t.Helper()
	if err := r.pods.Update(pod); err != nil {
		r.t.Fatal(err)
	}
}

// last is what was told of last; of a pod of which nothing was it has no phase.
func (r *rig) last() corev1.PodStatus {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.told) == 0 {
		return corev1.PodStatus{}
	}
	return r.told[len(r.told)-1].Status
}

// requests returns what was asked of the remote cluster since the last call.
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

// remotePod returns the remote pod of one at home, or nil.
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

// create creates a pod that home has, and has it run.
func (r *rig) create(pod *corev1.Pod) *corev1.Pod {
	r.t.Helper()
	r.atHome(pod)
	if err := r.CreatePod(r.t.Context(), pod); err != nil {
		r.t.Fatal(err)
	}
	remote := r.remotePod(pod)
	if remote == nil {
		r.t.Fatal("there is no remote pod")
	}
	return remote
}

// named makes a pod at home that needs the Secret keys, and has an environment.
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
