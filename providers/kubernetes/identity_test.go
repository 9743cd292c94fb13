package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// present returns the names of the remote pods, ConfigMaps and Secrets, with their home
// UID.
func present(t *testing.T, remote *fake.Clientset) (all []string) {
	t.Helper()
	add := func(kind string, object metav1.Object) {
		all = append(all, fmt.Sprintf("%s %s of %s", kind, object.GetName(), object.GetLabels()[translate.LabelClusterUID]))
	}
	pods, err := remote.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		add("Pod", &pods.Items[i])
	}
	secrets, err := remote.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range secrets.Items {
		add("Secret", &secrets.Items[i])
	}
	slices.Sort(all)
	return all
}

// A second home cluster with a copy of the configuration does nothing, says why, and
// starts once the names are free.
func TestTwoHomesWithOneConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		first := newRigAt(t, newHome("first"), "", remote)
		web := first.create(named("web"))
		before := present(t, remote)

		second := newRigAt(t, newHome("second"), "", remote)
		pod := named("other")
		second.setHomePod(pod)
		time.Sleep(time.Hour)
		for what, err := range map[string]error{
			"Ping":      second.Ping(t.Context()),
			"CreatePod": second.CreatePod(t.Context(), pod),
			"UpdatePod": second.UpdatePod(t.Context(), pod),
			"DeletePod": second.DeletePod(t.Context(), named("web")),
		} {
			if !errdefs.IsUnavailable(err) || errdefs.IsNotFound(err) {
				t.Errorf("%s gives %v", what, err)
				continue
			}
			for _, text := range []string{"first", "second", `"cluster"`, "kubectl delete"} {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%s says %q, without %s", what, err, text)
				}
			}
		}
		if pods, err := second.GetPods(t.Context()); err == nil {
			t.Errorf("the second home sees %d pods", len(pods))
		}
		if after := present(t, remote); !slices.Equal(before, after) {
			t.Errorf("the remote cluster has %q, had %q", after, before)
		}

		if err := first.ensureIdentified(t.Context()); err != nil {
			t.Errorf("the first home is not well: %v", err)
		}
		if err := first.DeletePod(t.Context(), named("web")); err != nil {
			t.Fatal(err)
		}
		if err := remote.CoreV1().Pods(web.Namespace).Delete(t.Context(), web.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if left := present(t, remote); len(left) > 0 {
			t.Errorf("the first home left %q", left)
		}
		if err := second.ensureIdentified(t.Context()); err != nil {
			t.Errorf("the second home has the names for itself: %v", err)
		}
		second.create(pod)
	})
}

// If two homes start at the same time, both have objects there: neither is stopped, and
// neither adopts or deletes the other's.
func TestHomesThatWereThereBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		first, second := newRigAt(t, newHome("first"), "", remote), newRigAt(t, newHome("second"), "", remote)
		first.create(named("a"))
		b := named("b")
		b.Spec.Volumes[0].Secret.SecretName = "other-keys" // the copies of others stay, too
		second.create(b)
		clash := named("a")
		second.setHomePod(clash)
		if err := second.CreatePod(t.Context(), clash); !errdefs.IsConflict(err) || !strings.Contains(err.Error(), "first") {
			t.Errorf("a pod whose place the other home has: %v", err)
		}
		before := present(t, remote)
		again := newRigAt(t, newHome("first"), "", remote, named("a"))
		time.Sleep(time.Hour)
		for what, r := range map[string]*rig{"first": first, "second": second, "first after a restart": again} {
			if err := r.ensureIdentified(t.Context()); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			pods, err := r.GetPods(t.Context())
			if err != nil || len(pods) != 1 {
				t.Errorf("%s has %d pods: %v", what, len(pods), err)
			}
		}
		if after := present(t, remote); !slices.Equal(before, after) {
			t.Errorf("the remote cluster has %q, had %q", after, before)
		}
	})
}

// A home whose UID cannot be read starts, does nothing in the remote cluster, and
// continues when it can be read.
func TestAHomeThatCannotBeRead(t *testing.T) {
	for what, failure := range map[string]error{
		"away":      errors.New("connection refused"),
		"forbidden": apierrors.NewForbidden(corev1.Resource("namespaces"), metav1.NamespaceSystem, errors.New("no rights")),
		"early":     apierrors.NewNotFound(corev1.Resource("namespaces"), metav1.NamespaceSystem),
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				remote := newRemote()
				pod := named("web")
				newRigAt(t, newHome("home-uid"), "", remote).create(pod)
				before := present(t, remote)

				home := newHome("home-uid")
				var well atomic.Bool
				fakeapi.React(&home.Fake, "get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
					return !well.Load(), nil, failure
				})
				r := newRigAt(t, home, "", remote, pod)
				r.requests()
				time.Sleep(time.Hour)
				if _, err := r.GetPodByUID(t.Context(), "shop", "web", pod.UID); !errdefs.IsUnavailable(err) || errdefs.IsNotFound(err) {
					t.Errorf("the pod is asked for: %v", err)
				}
				if err := r.DeletePod(t.Context(), pod); !errdefs.IsUnavailable(err) || errdefs.IsNotFound(err) {
					t.Errorf("the pod is deleted: %v", err)
				}
				if err := r.Ping(t.Context()); err == nil {
					t.Error("the node is well")
				}
				if after := present(t, remote); !slices.Equal(before, after) {
					t.Errorf("the remote cluster has %q, had %q", after, before)
				}
				well.Store(true)
				time.Sleep(10 * time.Second)
				if err := r.ensureIdentified(t.Context()); err != nil {
					t.Errorf("after that: %v", err)
				}
				if pods, err := r.GetPods(t.Context()); err != nil || len(pods) != 1 {
					t.Errorf("after that there are %d pods: %v", len(pods), err)
				}
			})
		})
	}
}

// unlabel makes the remote objects look like those of an earlier version.
func unlabel(t *testing.T, remote *fake.Clientset) {
	t.Helper()
	pods, err := remote.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		delete(pods.Items[i].Labels, translate.LabelClusterUID)
		if _, err := remote.CoreV1().Pods(pods.Items[i].Namespace).Update(t.Context(), &pods.Items[i], metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	secrets, err := remote.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range secrets.Items {
		delete(secrets.Items[i].Labels, translate.LabelClusterUID)
		if _, err := remote.CoreV1().Secrets(secrets.Items[i].Namespace).Update(t.Context(), &secrets.Items[i], metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// onNode returns a pod as the home API server has it.
func onNode(pod *corev1.Pod) runtime.Object { return pod.DeepCopy() }

// The objects of an earlier version are adopted by the home that has their pods, and
// left alone by another one.
func TestObjectsOfAnEarlierVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		old := newRigAt(t, newHome("home-uid"), "", remote)
		kept, gone := named("kept"), named("gone")
		gone.Spec.Volumes[0].Secret.SecretName = "other-keys"
		old.create(kept)
		old.create(gone)
		_ = old.Close()
		unlabel(t, remote)
		before := present(t, remote)

		stranger := newRigAt(t, newHome("other-uid"), "", remote)
		time.Sleep(time.Hour)
		if err := stranger.ensureIdentified(t.Context()); err != nil {
			t.Errorf("objects of which it is not known whose they are stop a node: %v", err)
		}
		if after := present(t, remote); !slices.Equal(before, after) {
			t.Errorf("a home without their pods made of %q %q", before, after)
		}
		if err := stranger.CreatePod(t.Context(), named("kept")); !errdefs.IsConflict(err) || !strings.Contains(err.Error(), translate.LabelClusterUID+"=other-uid") {
			t.Errorf("a pod in their place: %v", err)
		}
		_ = stranger.Close()

		r := newRigAt(t, newHome("home-uid", onNode(kept)), "", remote, kept)
		if pods, err := r.GetPods(t.Context()); err != nil || len(pods) != 1 || pods[0].Name != "kept" {
			t.Errorf("there are %d pods: %v", len(pods), err)
		}
		time.Sleep(time.Hour)
		after := present(t, remote)
		if len(after) != len(before) {
			t.Errorf("of %q are left %q", before, after)
		}
		for _, object := range after {
			// What belongs to this home's pod is adopted, what the other pod needs is
			// not.
			ours := strings.Contains(object, "kept") || strings.HasPrefix(object, "Secret keys-")
			if strings.HasSuffix(object, "of home-uid") != ours {
				t.Errorf("%s", object)
			}
		}
	})
}

// What an earlier version left without any pod that may need it is deleted, as before.
func TestLeftoversOfAnEarlierVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		old := newRigAt(t, newHome("home-uid"), "", remote)
		web := old.create(named("web"))
		_ = old.Close()
		unlabel(t, remote)
		if err := remote.CoreV1().Pods(web.Namespace).Delete(t.Context(), web.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		newRigAt(t, newHome("home-uid"), "", remote)
		time.Sleep(10 * time.Minute)
		if left := present(t, remote); len(left) > 0 {
			t.Errorf("there is %q", left)
		}
	})
}

// If an earlier version runs beside this one for a while, what it creates meanwhile is
// adopted, too.
func TestAnEarlierVersionGoesOnForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote, pod := newRemote(), named("late")
		home := newHome("home-uid", onNode(pod))
		r := newRigAt(t, home, "", remote)
		old := newRigAt(t, newHome("home-uid"), "", remote)
		old.create(pod)
		_ = old.Close()
		unlabel(t, remote)
		r.setHomePod(pod)
		time.Sleep(6 * time.Minute)
		if found, err := r.GetPodByUID(t.Context(), "shop", "late", pod.UID); err != nil || found.UID != pod.UID {
			t.Errorf("the pod is %v: %v", found, err)
		}
		for _, object := range present(t, remote) {
			if !strings.HasSuffix(object, "of home-uid") {
				t.Errorf("%s", object)
			}
		}
	})
}

// An object that is replaced by another of its name while it is to be labelled does not
// prevent the start.
func TestObjectIsReplacedAsItIsLabelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote, pod := newRemote(), named("web")
		old := newRigAt(t, newHome("home-uid"), "", remote)
		old.create(pod)
		_ = old.Close()
		unlabel(t, remote)
		fakeapi.React(&remote.Fake, "patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "web", nil)
		})
		r := newRigAt(t, newHome("home-uid", onNode(pod)), "", remote, pod)
		if err := r.ensureIdentified(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A remote API server that hangs does not delay a caller longer than its context.
func TestARemoteThatHangsAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "", newRemote())
		r.identity.known = make(chan struct{}) // as if it had just started
		r.identity.turn <- struct{}{}          // and an attempt hung
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := r.find(ctx, "shop", "web", types.UID("uid-web"))
		if took := time.Since(begin); !errdefs.IsUnavailable(err) || took != time.Second {
			t.Errorf("after %v: %v", took, err)
		}
		<-r.identity.turn
		close(r.identity.known)
	})
}
