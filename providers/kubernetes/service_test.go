package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// newServiceRig returns a rig of a service, whose older provider has annotated pods with the
// UID and node of their home pods.
func newServiceRig(t *testing.T, home, remote *fake.Clientset, change func(*Service), homePods ...*corev1.Pod) *rig {
	t.Helper()
	service := &Service{
		PrepareNamespace: func(ctx context.Context, client clientset.Interface, name string) error {
			_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			if err != nil && !strings.Contains(err.Error(), "already exists") {
				return err
			}
			return nil
		},
		CompletePod: func(pod *corev1.Pod) error {
			if pod.Spec.Containers[0].Image == "huge" {
				return errdefs.AsPermanent(errors.New("ProviderNotSupported: too large"))
			}
			pod.Annotations["size"] = "small"
			return nil
		},
		Adopt: func(remote metav1.Object) (types.NamespacedName, types.UID, string) {
			has := remote.GetAnnotations()
			return types.NamespacedName{Namespace: "shop", Name: has["of"]}, types.UID(has["uid"]), has["node"]
		},
	}
	if change != nil {
		change(service)
	}
	return newRigOfService(t, home, "namespaces: {mapping: fixed, name: guests, create: true}\n", remote, service, func(*nodeutil.ProviderConfig) {}, homePods...)
}

// A service has no kube-system and no /readyz: the node is ready if its namespace is there.
func TestService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := fake.NewClientset()
		r := newServiceRig(t, newHome("home"), remote, nil)
		if err := r.Ping(t.Context()); err != nil {
			t.Errorf("ping: %v", err)
		}
		if far := r.create(named("one")); far.Namespace != "guests" || far.Annotations["size"] != "small" {
			t.Errorf("the remote pod is %+v", far.ObjectMeta)
		}
		huge := named("two")
		huge.Spec.Containers[0].Image = "huge"
		r.setHomePod(huge)
		if err := r.CreatePod(t.Context(), huge); !errdefs.IsPermanent(err) {
			t.Errorf("a pod that the service does not have: %v", err)
		}
		if err := remote.CoreV1().Namespaces().Delete(t.Context(), "guests", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := r.Ping(t.Context()); !errdefs.IsUnavailable(err) {
			t.Errorf("ping without the namespace: %v", err)
		}
	})
}

// A namespace that cannot be prepared is retried, and no pod is created meanwhile.
func TestServiceWithoutNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newServiceRig(t, newHome("home"), fake.NewClientset(), func(s *Service) {
			s.PrepareNamespace = func(context.Context, clientset.Interface, string) error { return errors.New("no network") }
		})
		if err := r.Ping(t.Context()); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "no network") {
			t.Errorf("ping: %v", err)
		}
		pod := named("one")
		r.setHomePod(pod)
		if err := r.CreatePod(t.Context(), pod); !errdefs.IsUnavailable(err) || errdefs.IsPermanent(err) {
			t.Errorf("created with %v", err)
		}
	})
}

// older returns a remote pod of an older provider.
func older(name, of, uid, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "guests", Name: name, UID: types.UID("far-" + name), Annotations: map[string]string{"of": of, "uid": uid, "node": node}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/app:1"}}},
	}
}

// Pods of an older provider are adopted under their names if the node has their pods at home,
// also after another restart. A later pod of the same name gets the usual one.
func TestAdoptionFromAnOlderProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := fake.NewClientset(
			older("guests-web", "web", "uid-web", "far"), older("guests-gone", "gone", "uid-gone", "far"), older("guests-again", "again", "before", "far"),
			older("guests-near", "near", "uid-near", "near"), older("guests-foreign", "", "", ""))
		web, again, near := named("web"), named("again"), named("near")
		near.Spec.NodeName = "near"
		home := newHome("home", web, again, near)
		for range 2 {
			r := newServiceRig(t, home, remote, nil, web, again, near)
			synctest.Wait()
			s, err := r.GetPodStatusByUID(t.Context(), web.Namespace, web.Name, web.UID)
			if err != nil || s == nil {
				t.Errorf("the adopted pod: %v, %v", s, err)
			}
			if _, err := r.GetPodByUID(t.Context(), again.Namespace, again.Name, again.UID); !errdefs.IsNotFound(err) {
				t.Errorf("a pod whose home pod is another: %v", err)
			}
			pods, err := r.GetPods(t.Context())
			if err != nil || len(pods) != 1 {
				t.Errorf("there are %d pods, %v", len(pods), err)
			}
			_ = r.Close()
		}
		list, err := remote.CoreV1().Pods("guests").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, pod := range list.Items {
			if adopted := pod.Name == "guests-web"; adopted != (pod.Labels[translate.LabelClusterUID] == "home") {
				t.Errorf("%s has the labels %v", pod.Name, pod.Labels)
			}
		}
		r := newServiceRig(t, home, remote, nil, web, again, near)
		if err := r.DeletePod(t.Context(), web); err != nil {
			t.Fatal(err)
		}
		next := named("web")
		next.UID = "next"
		if far := r.create(next); !strings.HasPrefix(far.Name, "web-") {
			t.Errorf("the next pod of the name is %s", far.Name)
		}
	})
}

// An adopted pod that is still there and a later one of its name are distinguished by their
// UIDs: neither counts as lost, and the adopted one can be deleted, also after a restart, and
// if nothing but its labels is left of the adoption.
func TestAdoptedPodAndLaterOneOfItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		if _, err := remote.CoreV1().Pods("guests").Create(t.Context(), older("guests-web", "web", "uid-web", "far"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		web, next := named("web"), named("web")
		next.UID = "next"
		home := newHome("home", web)
		r := newServiceRig(t, home, remote, nil, web)
		far := r.create(next)
		wantBoth := func(when string) {
			t.Helper()
			for uid, want := range map[types.UID]string{web.UID: "guests-web", next.UID: far.Name, "": far.Name} {
				if found, err := r.find(t.Context(), "shop", "web", uid); err != nil || found.Name != want {
					t.Errorf("%s: the remote pod of %q is %v, %v, want %s", when, uid, found, err, want)
				}
			}
		}
		wantBoth("after the creation")
		r.change(r.remotePod(web), func(pod *corev1.Pod) { delete(pod.Annotations, "uid") })
		_ = r.Close()
		r = newServiceRig(t, home, remote, nil, next)
		wantBoth("after a restart")
		if err := r.DeletePod(t.Context(), web); err != nil {
			t.Fatal(err)
		}
		if left := r.remotePod(web); left != nil || r.remotePod(next) == nil {
			t.Errorf("after the deletion there is %v", left)
		}
	})
}

// Who has the annotations of a pod that has a remote pod already is not adopted in its place.
func TestForgedAdoption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote, web := newRemote(), named("web")
		home := newHome("home", web)
		r := newServiceRig(t, home, remote, nil, web)
		far := r.create(web)
		_ = r.Close()
		if _, err := remote.CoreV1().Pods("guests").Create(t.Context(), older("forged", "web", "uid-web", "far"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		r = newServiceRig(t, home, remote, nil, web)
		if found, err := r.find(t.Context(), "shop", "web", web.UID); err != nil || found.Name != far.Name {
			t.Errorf("the remote pod is %v, %v", found, err)
		}
		forged, err := remote.CoreV1().Pods("guests").Get(t.Context(), "forged", metav1.GetOptions{})
		if err != nil || len(forged.Labels) > 0 {
			t.Errorf("the other one is %v, %v", forged, err)
		}
	})
}

// A list may lack a pod of the older provider: it is asked for by its name before its home pod
// counts as lost.
func TestAdoptionOfAPodThatTheListLacked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote, web := newRemote(), named("web")
		web.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main"}}
		r := newServiceRig(t, newHome("home", web), remote, func(s *Service) {
			s.OlderName = func(home types.NamespacedName) string { return "guests-" + home.Name }
		}, web)
		if _, err := r.find(t.Context(), "shop", "web", web.UID); !errdefs.IsNotFound(err) {
			t.Errorf("before there is one: %v", err)
		}
		if _, err := remote.CoreV1().Pods("guests").Create(t.Context(), older("guests-web", "web", "uid-web", "far"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if found, err := r.find(t.Context(), "shop", "web", web.UID); err != nil || found.Name != "guests-web" {
			t.Errorf("found %v, %v", found, err)
		}
		never := named("never") // it has not run yet: no request is made for it
		r.setHomePod(never)
		fakeapi.React(&remote.Fake, "get", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if get, ok := action.(clienttesting.GetAction); ok && get.GetName() == "guests-never" {
				t.Error("a pod that has not run is asked for by its older name")
			}
			return false, nil, nil
		})
		if _, err := r.find(t.Context(), "shop", "never", never.UID); !errdefs.IsNotFound(err) {
			t.Error(err)
		}
	})
}

// A configuration of another place does not have the pods run again there.
func TestServiceAtAnotherPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home, pod := newHome("home"), named("one")
		at := func(place string) *rig {
			return newServiceRig(t, home, newRemote(), func(s *Service) { s.ID = place }, pod)
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "far"}}
		if _, err := home.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		r := at("cci.a/guests")
		if err := r.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = r.Close()
		r = at("cci.b/guests")
		if err := r.Ping(t.Context()); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "leads to cci.b/guests, and the pods of this node are in cci.a/guests") {
			t.Errorf("ping: %v", err)
		}
		if err := r.CreatePod(t.Context(), pod); !errdefs.IsUnavailable(err) {
			t.Errorf("creation: %v", err)
		}
	})
}

// Credentials of another tenant lead to another namespace of the same name, whose pods are others. It may
// have to be made first.
func TestServiceOfAnotherTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home, pod := newHomeWithNode(), named("one")
		as := func(tenant string, exists bool) *rig {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "guests", Annotations: map[string]string{"tenant": tenant}}}
			remote := fake.NewClientset()
			if exists {
				remote = fake.NewClientset(namespace)
			}
			return newServiceRig(t, home, remote, func(s *Service) {
				s.ID = "cci/guests"
				s.Tenant = func(n *corev1.Namespace) string { return n.Annotations["tenant"] }
				s.PrepareNamespace = func(ctx context.Context, client clientset.Interface, _ string) error {
					_, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
					if apierrors.IsAlreadyExists(err) {
						return nil
					}
					return err
				}
			}, pod)
		}
		record := func(place string) {
			patch := []byte(`{"metadata": {"annotations": {"` + AnnotationRemoteUID + `": "` + place + `"}}}`)
			if _, err := home.CoreV1().Nodes().Patch(t.Context(), "far", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for _, step := range []struct {
			recorded, tenant string
			exists           bool
			refused          bool
		}{
			{"", "a", false, false},
			{"cci/guests/a", "a", true, false},
			{"cci/guests", "a", true, false},  // by an earlier version
			{"cci/guests/a", "", true, false}, // it is not shown any more
			{"cci/guests/a", "a", false, false},
			{"cci/guests/a", "b", true, true},
			{"cci/guests/a", "b", false, true},
		} {
			record(step.recorded)
			r := as(step.tenant, step.exists)
			err := r.Ping(t.Context())
			if step.refused != (err != nil) || err != nil && !strings.Contains(err.Error(), "leads to cci/guests/b, and the pods of this node are in cci/guests/a") {
				t.Errorf("%+v: ping: %v", step, err)
			}
			if err := r.CreatePod(t.Context(), pod); step.refused != errdefs.IsUnavailable(err) {
				t.Errorf("%+v: creation: %v", step, err)
			}
			if got := annotated(t, home); got != "cci/guests/a" {
				t.Errorf("%+v: the node has %q", step, got)
			}
			_ = r.Close()
		}
	})
}

// docs/providers.md shows how many requests 1000 pods take of the service that there is, with those
// for the Secret of each, and none that they share. Each takes the same, and fake clients are slow: a hundred
// stand for them.
func TestRequestsOfAService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pods []*corev1.Pod
		for i := range 100 {
			pod := named(fmt.Sprintf("many-%d", i))
			pod.Spec.Volumes = nil
			pods = append(pods, pod)
		}
		r := newServiceRig(t, newHome("home"), newRemote(), nil, pods...)
		each := func(f func(context.Context, *corev1.Pod) error) (requests int) {
			for _, pod := range pods {
				if err := f(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // for who watches
			}
			return 10 * len(r.requests())
		}
		calls := grouptest.Calls{Create: len(r.beginning) + each(r.CreatePod)}
		for range 12 {
			time.Sleep(5 * time.Second)
			if all, err := r.GetPods(t.Context()); err != nil || len(all) != len(pods) {
				t.Fatalf("there are %d pods, %v", len(all), err)
			}
			if err := r.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		calls.Minute = len(r.requests())
		calls.Delete = each(r.DeletePod)
		if left, err := r.remote.CoreV1().Pods("guests").List(t.Context(), metav1.ListOptions{}); err != nil || len(left.Items) > 0 {
			t.Errorf("%d pods are left, %v", len(left.Items), err)
		}
		calls.Compare(t, filepath.Join("..", "huaweicci", grouptest.CallsFile))
	})
}

// What a service does not have is named before anything is created, with what CompletePod refuses.
func TestPodsThatAServiceDoesNotHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newServiceRig(t, newHome("home"), newRemote(), nil)
		for want, change := range map[string]func(*corev1.Pod){
			"":            func(*corev1.Pod) {},
			"hostNetwork": func(p *corev1.Pod) { p.Spec.HostNetwork = true },
			"too large":   func(p *corev1.Pod) { p.Spec.Containers[0].Image = "huge" },
		} {
			pod := named("one")
			change(pod)
			if missing, _ := r.Unsupported(pod); (len(missing) > 0) != (want != "") || !strings.Contains(strings.Join(missing, ""), want) {
				t.Errorf("of a pod with %q %q is missing", want, missing)
			}
		}
		if made := r.requests(); slices.ContainsFunc(made, func(request string) bool { return strings.HasPrefix(request, "create pods") }) {
			t.Errorf("it has made %q", made)
		}
	})
}

// A service without a subresource to resize pods gets the labels all the same.
func TestServiceWithoutResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		r := newServiceRig(t, newHome("home"), remote, nil)
		fakeapi.React(&remote.Fake, "patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if action.GetSubresource() != "resize" {
				return false, nil, nil
			}
			return true, nil, apierrors.NewGenericServerResponse(http.StatusNotFound, "patch", schema.GroupResource{}, "", "API not found", 0, true)
		})
		pod := named("one")
		r.create(pod)
		pod.Labels["color"] = "red"
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		if err := r.UpdatePod(t.Context(), pod); !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), "ProviderNotSupported") {
			t.Errorf("updated with %v", err)
		}
		if far := r.remotePod(pod); far.Labels["color"] != "red" {
			t.Errorf("the labels are %v", far.Labels)
		}
	})
}

// A service without a subresource for ephemeral containers is asked for that once.
func TestServiceWithoutEphemeralContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		r := newServiceRig(t, newHome("home"), remote, nil)
		var asked atomic.Int32
		fakeapi.React(&remote.Fake, "patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if action.GetSubresource() != "ephemeralcontainers" {
				return false, nil, nil
			}
			asked.Add(1)
			return true, nil, apierrors.NewGenericServerResponse(http.StatusNotFound, "patch", schema.GroupResource{}, "", "API not found", 0, true)
		})
		pod := named("one")
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{ephemeral("debug")}
		r.setHomePod(pod)
		if err := r.CreatePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if n := asked.Load(); n != 1 {
			t.Errorf("it was asked %d times", n)
		}
	})
}

// A pod of a service need not show its node, and what the service adds to pods is not sent back.
func TestPodsThatAServiceChanges(t *testing.T) {
	remote := &corev1.Pod{}
	if !isUnscheduled(remote) {
		t.Error("a new pod")
	}
	remote.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
	if isUnscheduled(remote) {
		t.Error("one that was scheduled, without the name of a node")
	}
	synctest.Test(t, func(t *testing.T) {
		r := newServiceRig(t, newHome("home"), newRemote(), nil)
		pod := named("one")
		r.create(pod)
		r.setHomePod(pod)
		far := r.remotePod(pod)
		far.Spec.SchedulerName, far.Annotations["added"] = "other", "yes"
		far.UID = "gone"
		next, err := r.prepareSuccessor(t.Context(), pod, far)
		if err != nil || next.Spec.SchedulerName == "other" || next.Annotations["added"] != "" || next.Annotations["size"] != "small" {
			t.Errorf("the next pod is %+v, %v", next, err)
		}
	})
}
