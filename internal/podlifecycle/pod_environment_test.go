package podlifecycle

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1informers "k8s.io/client-go/informers/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

// needs has a pod take a variable from a ConfigMap and one from a Secret.
func needs(optional bool) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Env = []corev1.EnvVar{
			{Name: "COLOR", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "colors"}, Key: "main", Optional: &optional,
			}}},
			{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "tokens"}, Key: "main", Optional: &optional,
			}}},
			{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}},
		}
	}
}

func object(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name}
}

// Invariant 9: a pod that waits for its configuration says so, once, in the
// kubelet's words; and it waits no longer than it has to: within a second of the
// appearance of what it needs it is created, however long the delays by then.
func TestMandatoryObjectsThatAppearLater(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var env []corev1.EnvVar
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(_ context.Context, p *corev1.Pod) error { env = p.Spec.Containers[0].Env; return nil }
		})
		r.start()
		r.api.AddPod(aPod("web", needs(false)))
		pass(time.Hour)
		wantList(t, "calls", r.provider.TakeCalls("create"))
		waiting := r.api.Pod("web").Status.ContainerStatuses[0].State.Waiting
		if waiting == nil || waiting.Reason != "CreateContainerConfigError" || waiting.Message == "" {
			t.Errorf("waiting: %+v, want the kubelet's reason, and a message", waiting)
		}
		want(t, "phase", r.phase("web"), corev1.PodPending)
		wantList(t, "writes", r.api.Written(), "patch pods/status web")
		events := r.events.recorded()
		if len(events) != 2 || !strings.HasPrefix(events[0], "Warning MandatoryConfigMapNotFound: ") || !strings.HasPrefix(events[1], "Warning MandatorySecretNotFound: ") {
			t.Errorf("events: %q, want one for each object", events)
		}

		mustCreate(t, r, &corev1.ConfigMap{ObjectMeta: object("colors"), Data: map[string]string{"other": "red"}})
		pass(time.Hour)
		wantList(t, "calls", r.provider.TakeCalls("create"))
		events = r.events.recorded()
		if len(events) != 1 || !strings.HasPrefix(events[0], "Warning MandatoryConfigMapKeyNotFound: ") {
			t.Errorf("events: %q, want one for the key", events)
		}
		mustCreate(t, r, &corev1.Secret{ObjectMeta: object("tokens"), Data: map[string][]byte{"main": []byte("s3cret")}})
		pass(time.Hour)
		wantList(t, "calls", r.provider.TakeCalls("create"))
		if _, err := r.api.CoreV1().ConfigMaps("default").Update(t.Context(), &corev1.ConfigMap{ObjectMeta: object("colors"), Data: map[string]string{"main": "blue"}}, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
		want(t, "env", env, []corev1.EnvVar{{Name: "COLOR", Value: "blue"}, {Name: "TOKEN", Value: "s3cret"}, {Name: "NODE", Value: "vk"}})
		for _, text := range append(r.events.recorded(), r.api.Patches...) {
			if strings.Contains(text, "s3cret") {
				t.Errorf("a secret got out: %s", text)
			}
		}
	})
}

// Invariant 9: an object that appears while the pod's environment is being
// resolved, too late for that and too early to wake a pod that waits, is noticed
// as soon.
func TestObjectThatAppearsWhileItIsLookedFor(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var now atomic.Bool
		r.start(func(cfg *Config) {
			cfg.ConfigMapInformer = slowConfigMaps{cfg.ConfigMapInformer, func() {
				if now.CompareAndSwap(true, false) {
					mustCreate(t, r, &corev1.ConfigMap{ObjectMeta: object("colors"), Data: map[string]string{"main": "blue"}})
					time.Sleep(time.Millisecond) // the event comes, and finds nobody waiting
				}
			}}
		})
		mustCreate(t, r, &corev1.Secret{ObjectMeta: object("tokens"), Data: map[string][]byte{"main": []byte("s3cret")}})
		r.api.AddPod(aPod("web", needs(false)))
		pass(time.Hour)
		record := r.record("web")
		record.mu.Lock()
		record.waitsFor = nil // as at the first time, but without its short delay
		record.mu.Unlock()
		now.Store(true)
		r.api.ChangePod("web", func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, "a", "b") })
		pass(time.Second)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
	})
}

// slowConfigMaps calls a function after each look for a ConfigMap.
type slowConfigMaps struct {
	corev1informers.ConfigMapInformer
	looked func()
}

func (s slowConfigMaps) Lister() corev1listers.ConfigMapLister {
	return slowConfigMapLister{s.ConfigMapInformer.Lister(), s.looked}
}

type slowConfigMapLister struct {
	corev1listers.ConfigMapLister
	looked func()
}

func (s slowConfigMapLister) ConfigMaps(namespace string) corev1listers.ConfigMapNamespaceLister {
	return slowConfigMapNamespaceLister{s.ConfigMapLister.ConfigMaps(namespace), s.looked}
}

type slowConfigMapNamespaceLister struct {
	corev1listers.ConfigMapNamespaceLister
	looked func()
}

func (s slowConfigMapNamespaceLister) Get(name string) (*corev1.ConfigMap, error) {
	found, err := s.ConfigMapNamespaceLister.Get(name)
	s.looked()
	return found, err
}

func mustCreate(t *testing.T, r *rig, obj any) {
	t.Helper()
	var err error
	switch obj := obj.(type) {
	case *corev1.ConfigMap:
		_, err = r.api.CoreV1().ConfigMaps("default").Create(t.Context(), obj, metav1.CreateOptions{})
	case *corev1.Secret:
		_, err = r.api.CoreV1().Secrets("default").Create(t.Context(), obj, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	r.api.Written()
}

// Invariant 9: what is optional holds nothing up, but is an event, once.
func TestOptionalObjects(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.api.AddPod(aPod("web", needs(true)))
		pass(time.Hour)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
		events := r.events.recorded()
		slices.Sort(events)
		want(t, "events", len(events), 3)
		for i, prefix := range []string{"Normal ProviderCreateSuccess: ", "Warning OptionalConfigMapNotFound: ", "Warning OptionalSecretNotFound: "} {
			if i < len(events) && !strings.HasPrefix(events[i], prefix) {
				t.Errorf("event %q, want %s", events[i], prefix)
			}
		}
	})
}

// Invariant 9: an optional object is left out only if it does not exist. Where that is
// not known the pod waits, says so once, and gets the object as soon as it can be read;
// also where the read comes too early for the node authorizer.
func TestOptionalObjectsThatCannotBeRead(t *testing.T) {
	configMaps := schema.GroupResource{Resource: "configmaps"}
	for name, failure := range map[string]error{
		"403":     apierrors.NewForbidden(configMaps, "colors", errors.New("no relationship found between node 'vk' and this object")),
		"401":     apierrors.NewUnauthorized("the token has expired"),
		"429":     apierrors.NewTooManyRequests("too many requests", 1),
		"500":     apierrors.NewInternalError(errors.New("etcdserver: leader changed")),
		"503":     apierrors.NewServiceUnavailable("starting"),
		"404":     apierrors.NewGenericServerResponse(http.StatusNotFound, "list", configMaps, "", "404 page not found", 0, true),
		"refused": &url.Error{Op: "Get", URL: "https://api/", Err: syscall.ECONNREFUSED},
	} {
		for _, exists := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, exists: %v", name, exists), func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					_, use := withObjects(r)
					var env []corev1.EnvVar
					r.provider.Script(func(s *nodetest.Script) {
						s.OnCreate = func(_ context.Context, p *corev1.Pod) error { env = p.Spec.Containers[0].Env; return nil }
					})
					if exists {
						mustCreate(t, r, &corev1.ConfigMap{ObjectMeta: object("colors"), Data: map[string]string{"main": "blue"}})
					}
					r.api.Fail("list configmaps", failure)
					r.start(use)
					r.api.AddPod(aPod("web", needs(true)))
					pass(10 * time.Minute)
					want(t, "phase", r.phase("web"), corev1.PodPending)
					wantList(t, "calls", r.provider.TakeCalls("create"))
					if waiting := r.api.Pod("web").Status.ContainerStatuses[0].State.Waiting; waiting == nil || waiting.Reason != "CreateContainerConfigError" {
						t.Errorf("waiting: %+v, want the kubelet's reason", waiting)
					}
					events := r.events.recorded()
					slices.Sort(events)
					if len(events) != 2 || !strings.HasPrefix(events[0], "Warning FailedToReadOptionalConfigMap: ") || !strings.HasPrefix(events[1], "Warning OptionalSecretNotFound: ") {
						t.Errorf("events: %q, want one for each object", events)
					}

					r.api.Fail("list configmaps", nil)
					pass(4 * time.Minute)
					want(t, "phase", r.phase("web"), corev1.PodRunning)
					wanted := []corev1.EnvVar{{Name: "COLOR", Value: "blue"}, {Name: "NODE", Value: "vk"}}
					if !exists {
						wanted = wanted[1:]
					}
					want(t, "env", env, wanted)
				})
			})
		}
	}
}

// An API server that does not answer about an object holds up the pod that names it,
// and says so, but no others.
func TestObjectsThatAreNotAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		_, use := withObjects(r)
		answer := make(chan struct{})
		r.start(use, func(cfg *Config) { cfg.Objects = silentObjects{cfg.Objects, answer} })
		for _, name := range []string{"a", "b", "c", "d", "e"} { // more than there are workers
			r.api.AddPod(aPod(name, needs(true)))
		}
		pass(time.Second)
		r.api.AddPod(aPod("other"))
		pass(20 * time.Second)
		want(t, "phase of the other", r.phase("other"), corev1.PodRunning)
		waiting := r.api.Pod("a").Status.ContainerStatuses
		if len(waiting) == 0 || !strings.Contains(waiting[0].State.Waiting.Message, "the API server has not answered in 10s") {
			t.Errorf("containers: %+v", waiting)
		}
		close(answer)
		pass(2 * time.Minute)
		want(t, "phase", r.phase("a"), corev1.PodRunning)
	})
}

// silentObjects has no answer about ConfigMaps until the channel is closed.
type silentObjects struct {
	ObjectSource
	answer <-chan struct{}
}

func (s silentObjects) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	select {
	case <-s.answer:
		return s.ObjectSource.ConfigMap(ctx, namespace, name)
	case <-ctx.Done():
		return nil, fmt.Errorf("no answer yet: %w", context.Cause(ctx))
	}
}

// A read that comes a moment too early for the node authorizer, which learns of the
// pod later than the node does, costs a second at most.
func TestOptionalObjectsThatAreReadTooEarly(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		_, use := withObjects(r)
		mustCreate(t, r, &corev1.ConfigMap{ObjectMeta: object("colors"), Data: map[string]string{"main": "blue"}})
		var env []corev1.EnvVar
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(_ context.Context, p *corev1.Pod) error { env = p.Spec.Containers[0].Env; return nil }
		})
		r.api.Fail("list configmaps", apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "colors", nil))
		r.start(use)
		r.api.AddPod(aPod("web", needs(true)))
		pass(300 * time.Millisecond)
		r.api.Fail("list configmaps", nil)
		pass(700 * time.Millisecond)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
		if len(env) == 0 || env[0].Value != "blue" {
			t.Errorf("env: %v", env)
		}
	})
}

// With SkipEnvironment pods arrive as they are, and no ConfigMap,
// Secret or Service is read.
func TestSkipEnvironment(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var given corev1.PodSpec
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(_ context.Context, p *corev1.Pod) error { given = p.Spec; return nil }
		})
		r.start(func(cfg *Config) {
			cfg.SkipEnvironment = true
			cfg.ConfigMapInformer, cfg.SecretInformer, cfg.ServiceInformer = nil, nil, nil
		})
		r.api.AddPod(aPod("web", needs(false), func(p *corev1.Pod) {
			p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{Prefix: "P_"}}
			p.Spec.EnableServiceLinks = ptr.To(true)
		}))
		synctest.Wait()
		want(t, "spec", given, r.api.Pod("web").Spec)
		for _, action := range r.api.Actions() {
			if action.GetResource().Resource != "pods" {
				t.Errorf("%s %s", action.GetVerb(), action.GetResource().Resource)
			}
		}
	})
}

// UpdatePod gets a resolved environment as well.
func TestEnvironmentOfUpdates(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var env []corev1.EnvVar
		r.provider.Script(func(s *nodetest.Script) {
			s.OnUpdate = func(_ context.Context, p *corev1.Pod) error { env = p.Spec.Containers[0].Env; return nil }
		})
		r.start()
		r.api.AddPod(aPod("web", func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "$(A)2"}}
		}))
		synctest.Wait()
		r.api.ChangePod("web", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "nginx:2" })
		synctest.Wait()
		want(t, "env", env, []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "12"}})
	})
}

// An update of a running pod reaches the provider although what it started with is
// gone, by which nothing is lost: the container has it. What a container that has not
// started yet needs is waited for.
func TestUpdateAfterItsObjectsAreGone(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var updated *corev1.Pod
		r.provider.Script(func(s *nodetest.Script) {
			s.OnUpdate = func(_ context.Context, p *corev1.Pod) error { updated = p; return nil }
		})
		maps, secrets := r.api.CoreV1().ConfigMaps("default"), r.api.CoreV1().Secrets("default")
		if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: object("colors"), Data: map[string]string{"main": "blue"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: object("tokens"), Data: map[string][]byte{"main": []byte("xyz")}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		r.start()
		from := corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "colors"}}}
		pod := aPod("web", needs(false), func(p *corev1.Pod) { p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{from} })
		r.api.AddPod(pod)
		pass(time.Second)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
		if err := maps.Delete(t.Context(), "colors", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		pass(time.Second) // the watches of the ConfigMap and of the pod are two
		r.api.ChangePod("web", func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, "a", "b") })
		pass(time.Second)
		if updated == nil {
			t.Fatal("the update did not reach the provider")
		}
		want(t, "label", updated.Labels["a"], "b")
		env := updated.Spec.Containers[0]
		want(t, "sources that are gone", env.EnvFrom, []corev1.EnvFromSource{from})
		want(t, "variables", env.Env, []corev1.EnvVar{pod.Spec.Containers[0].Env[0], {Name: "TOKEN", Value: "xyz"}, {Name: "NODE", Value: "vk"}})
		want(t, "phase", r.phase("web"), corev1.PodRunning)

		updated = nil
		r.api.ChangePod("web", func(p *corev1.Pod) {
			debug := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", EnvFrom: []corev1.EnvFromSource{from}}}
			p.Spec.EphemeralContainers = []corev1.EphemeralContainer{debug}
		})
		pass(time.Minute)
		want(t, "updates with a container that cannot start yet", updated, nil)
		if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: object("colors"), Data: map[string]string{"main": "red"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if updated == nil {
			t.Fatal("the update did not reach the provider when what it waits for was there")
		}
		want(t, "sources that are gone", len(updated.Spec.Containers[0].EnvFrom), 0)
	})
}
