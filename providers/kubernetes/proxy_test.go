package kubernetes

import (
	"errors"
	"net/http"
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
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

// behindProxy makes a proxy answer all requests of one verb with a code while the
// returned value is set.
func behindProxy(remote *fake.Clientset, verb string, code int) *atomic.Bool {
	var down atomic.Bool
	fakeapi.React(&remote.Fake, verb, "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return down.Load(), nil, apierrors.NewGenericServerResponse(code, verb, corev1.Resource("pods"), "one", "no backend", 0, true)
	})
	return &down
}

// The 404 of a proxy does not mean that a pod is deleted.
func TestNotFoundByAProxy(t *testing.T) {
	for _, verb := range []string{"get", "delete", "patch"} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				remote := newRemote()
				down := behindProxy(remote, verb, http.StatusNotFound)
				r := newRig(t, "", remote)
				pod := named("one")
				r.change(r.create(pod), running)
				down.Store(true)
				pod = pod.DeepCopy()
				pod.Labels["color"] = "red"
				if err := r.UpdatePod(t.Context(), pod); verb != "delete" && (!errdefs.IsUnavailable(err) || errdefs.IsNotFound(err)) {
					t.Errorf("updated with %v", err)
				}
				if verb == "get" {
					if _, err := r.GetPodByUID(t.Context(), pod.Namespace, pod.Name, "another"); !errdefs.IsUnavailable(err) || errdefs.IsNotFound(err) {
						t.Errorf("asked for with %v", err)
					}
					pod.UID = "another" // what the cache has is not read before it is deleted
				}
				if err := r.DeletePod(t.Context(), pod); verb != "patch" && (!errdefs.IsUnavailable(err) || errdefs.IsNotFound(err)) {
					t.Errorf("deleted with %v", err)
				}
			})
		})
	}
}

// The 400 of a proxy does not mean that a pod is invalid, that of the API server does.
func TestRefusedByAProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		down := behindProxy(remote, "create", http.StatusBadRequest)
		r := newRig(t, "", remote)
		down.Store(true)
		pod := named("one")
		r.setHomePod(pod)
		if err := r.CreatePod(t.Context(), pod); err == nil || errdefs.IsPermanent(err) {
			t.Errorf("created with %v", err)
		}
		down.Store(false)
		if err := r.CreatePod(t.Context(), pod); err != nil {
			t.Errorf("tried again: %v", err)
		}
	})
}

// What admission in the remote cluster refuses waits, regardless of the code of the answer;
// a pod that its API server finds invalid fails.
func TestRefusedByAdmission(t *testing.T) {
	kind := corev1.SchemeGroupVersion.WithKind("Pod").GroupKind()
	byField := func() *apierrors.StatusError {
		return apierrors.NewInvalid(kind, "one", field.ErrorList{field.Required(field.NewPath("spec", "containers").Index(0).Child("image"), "")})
	}
	webhook := func(code int32, reason metav1.StatusReason) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: `admission webhook "w.io" denied the request: no`}}
	}
	invalid := byField()
	invalid.ErrStatus.Message = `admission webhook "w.io" denied the request: ` + invalid.ErrStatus.Message
	// As the API server makes it: see validating/dispatcher.go of its admission.
	policy := apierrors.NewForbidden(corev1.Resource("pods"), "one", errors.New("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"))
	policy.ErrStatus.Reason, policy.ErrStatus.Code = metav1.StatusReasonInvalid, http.StatusUnprocessableEntity
	policy.ErrStatus.Details.Causes = []metav1.StatusCause{{Message: "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"}}
	for what, c := range map[string]struct {
		err   error
		final bool
	}{
		"a webhook without a code":    {webhook(http.StatusBadRequest, ""), false},
		"a webhook's BadRequest":      {webhook(http.StatusBadRequest, metav1.StatusReasonBadRequest), false},
		"a webhook's Forbidden":       {webhook(http.StatusForbidden, metav1.StatusReasonForbidden), false},
		"a webhook's 422":             {webhook(http.StatusUnprocessableEntity, ""), false},
		"a webhook that names fields": {invalid, false},
		"a policy":                    {policy, false},
		"a quota":                     {apierrors.NewForbidden(corev1.Resource("pods"), "one", errors.New("exceeded quota: small")), false},
		"a field that is not valid":   {byField(), true},
		"what cannot be decoded":      {apierrors.NewBadRequest("Pod in version \"v1\" cannot be handled as a Pod"), true},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				remote := newRemote()
				var refuses atomic.Bool
				fakeapi.React(&remote.Fake, "create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return refuses.Load(), nil, c.err })
				r := newRig(t, "", remote)
				pod := named("one")
				r.setHomePod(pod)
				refuses.Store(true)
				err := r.CreatePod(t.Context(), pod)
				if err == nil || errdefs.IsPermanent(err) != c.final || !strings.Contains(err.Error(), c.err.Error()) {
					t.Errorf("created with %v, of class %v", err, errdefs.ClassOf(err))
				}
				refuses.Store(false)
				if err := r.CreatePod(t.Context(), pod); err != nil {
					t.Errorf("tried again: %v", err)
				}
			})
		})
	}
}

// What is due while a proxy answers 404 is done later.
func TestDueBehindAProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		down := behindProxy(remote, "get", http.StatusNotFound)
		r := newRig(t, "unschedulable: {after: 1m, then: fail}\n", remote)
		taken, unscheduled := named("taken"), named("unscheduled")
		r.change(r.create(taken), func(pod *corev1.Pod) { running(pod); pod.Spec.NodeName = "n" })
		r.create(unscheduled)
		r.change(r.remotePod(taken), deletedThere)
		down.Store(true)
		time.Sleep(10 * time.Minute)
		down.Store(false)
		time.Sleep(2 * time.Minute)
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, pod := range []*corev1.Pod{taken, unscheduled} {
			if !slices.ContainsFunc(r.notified, func(reported *corev1.Pod) bool { return reported.UID == pod.UID && ended(reported) }) {
				t.Errorf("pod %s has not ended", pod.Name)
			}
		}
	})
}

// The deletion of a pod without a node that is refused is retried.
func TestUnscheduledPodIsNotDeletedAtOnce(t *testing.T) {
	for what, failure := range map[string]error{
		"refused":     apierrors.NewForbidden(corev1.Resource("pods"), "one", nil),
		"later":       apierrors.NewTooManyRequests("busy", 1),
		"unavailable": apierrors.NewServiceUnavailable("starting"),
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				remote := newRemote()
				var tries atomic.Int32
				fakeapi.React(&remote.Fake, "delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
					return tries.Add(1) == 1, nil, failure
				})
				r := newRig(t, "unschedulable: {after: 1m, then: fail}\n", remote)
				pod := named("one")
				r.create(pod)
				time.Sleep(5 * time.Minute)
				if s := r.last(); s.Phase != corev1.PodFailed || r.remotePod(pod) != nil {
					t.Errorf("it is %+v", s)
				}
			})
		})
	}
}

// A pod that loses the provider's labels to admission in the remote cluster could never
// be found again.
func TestAdmissionThatRemovesLabels(t *testing.T) {
	for what, remove := range map[string]func(*corev1.Pod){
		"labels":      func(pod *corev1.Pod) { pod.Labels = nil },
		"annotations": func(pod *corev1.Pod) { pod.Annotations = nil },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				remote := newRemote()
				fakeapi.React(&remote.Fake, "create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
					remove(action.(clienttesting.CreateActionImpl).Object.(*corev1.Pod))
					return false, nil, nil
				})
				r := newRig(t, "", remote)
				pod := named("one")
				r.setHomePod(pod)
				err := r.CreatePod(t.Context(), pod)
				if !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), "admission") {
					t.Errorf("created with %v", err)
				}
				list, err := remote.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
				if err != nil || len(list.Items) != 0 {
					t.Errorf("%v: there is %+v", err, list.Items)
				}
			})
		})
	}
}
