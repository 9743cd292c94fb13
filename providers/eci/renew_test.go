package eci

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podobjects"
)

// podWithToken is a pod with the volume that Kubernetes mounts into all pods, but
// without its ConfigMap.
func podWithToken(name string) *corev1.Pod {
	pod := newPod(name)
	pod.Spec.Volumes = []corev1.Volume{{Name: "access", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
	}}}}
	return pod
}

// goOn lets time pass, in which the controller lists the pods each minute.
func (r *rig) goOn(t *testing.T, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); ; time.Sleep(min(time.Minute, time.Until(end))) {
		if _, err := r.GetPods(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !time.Now().Before(end) {
			return
		}
	}
}

// restart closes the provider, and creates another without state.
func (r *rig) restart(t *testing.T) {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r.Provider = r.newProvider(t, r.cfg)
}

// tokenOf returns which of the issued tokens the group of a pod has.
func (r *rig) tokenOf(t *testing.T, pod string) string {
	t.Helper()
	token := r.file(t, pod, "access", "token")
	claims, err := base64.RawURLEncoding.DecodeString(strings.Split(token+"..", ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	_, id, _ := strings.Cut(string(claims), `"jti":"`)
	return strings.TrimSuffix(id, `"}`)
}

func (r *rig) expectUpdates(t *testing.T, when string, want int) {
	t.Helper()
	if calls := r.api.Calls("UpdateContainerGroup"); calls != want {
		t.Fatalf("%s there were %d updates, want %d", when, calls, want)
	}
}

func TestTokensAreRenewedAtFourFifthsOfTheirLife(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.paint("blue")
		r.create(t, podWithToken("a"))
		r.create(t, podWithSettings("without"))
		r.goOn(t, 45*time.Minute)
		r.expectUpdates(t, "before a renewal is due", 0)
		r.goOn(t, 3*time.Minute+time.Second)
		r.expectUpdates(t, "when the renewal is due", 1)
		if got := r.tokenOf(t, "a"); got != "2" {
			t.Errorf("the group has token %q, want the second", got)
		}
		r.goOn(t, 24*time.Hour)
		updates := r.api.Calls("UpdateContainerGroup")
		if updates < 30 || updates > 33 {
			t.Errorf("in a day there were %d updates, want one each 48 minutes, or a little less", updates)
		}
		if asked := r.tokens.count(); asked != updates+1 {
			t.Errorf("%d tokens were asked for %d updates", asked, updates)
		}
	})
}

// After a restart a token is as old as before.
func TestARestartRenewsTokensWhenTheyAreDue(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.create(t, podWithToken("a"))
		r.goOn(t, 30*time.Minute)
		r.restart(t)
		r.goOn(t, 15*time.Minute)
		r.expectUpdates(t, "before the renewal is due, after a restart,", 0)
		if asked := r.tokens.count(); asked != 1 {
			t.Errorf("the restart asks for %d tokens", asked-1)
		}
		r.goOn(t, 4*time.Minute)
		r.expectUpdates(t, "when the renewal is due", 1)
		r.restart(t)
		r.goOn(t, 40*time.Minute)
		r.expectUpdates(t, "before the next is due, after another restart,", 1)
		r.goOn(t, 10*time.Minute)
		r.expectUpdates(t, "when the next is due", 2)
	})
}

func TestARestartThatTookTooLongRenewsTokensAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.create(t, podWithToken("a"))
		r.goOn(t, time.Second)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		r.Provider = r.newProvider(t, r.cfg)
		r.goOn(t, time.Second)
		if got := r.tokenOf(t, "a"); got != "2" {
			t.Errorf("the group has token %q, want the second", got)
		}
	})
}

// If the listing reports no files of a group, the age of its token is unknown: it is
// renewed once. That takes no more listings than the controller's.
func TestTokensOfUnknownAgeAreRenewedOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		const count = 5
		var pods []*corev1.Pod
		for i := range count {
			pods = append(pods, r.create(t, podWithToken(fmt.Sprintf("pod-%d", i))))
		}
		r.api.HideFiles()
		r.goOn(t, 30*time.Minute)
		r.expectUpdates(t, "before the restart", 0)
		r.restart(t)
		before := r.lists()
		r.goOn(t, 0)
		r.expectUpdates(t, "after the restart", count)
		if lists := r.lists() - before; lists != 1 {
			t.Errorf("%d lists were asked for, want 1", lists)
		}
		if err := r.UpdatePod(t.Context(), pods[0]); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.expectUpdates(t, "after a change of a pod that is none of its files", count)
		r.goOn(t, 45*time.Minute)
		r.expectUpdates(t, "before a renewal is due", count)
		r.goOn(t, 4*time.Minute)
		r.expectUpdates(t, "when the renewals are due", 2*count)
	})
}

// If one pod is throttled, all others wait, too: it is the account that is throttled.
func TestRenewalsRespectThrottling(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		for _, name := range []string{"a", "b", "c"} {
			r.create(t, podWithToken(name))
		}
		r.goOn(t, time.Minute)
		r.restart(t)
		r.refuse("UpdateContainerGroup", 1, http.StatusBadRequest, "Throttling.User", "too many")
		time.Sleep(2 * time.Hour) // the tokens have expired, and nothing was sent
		if _, err := r.GetPods(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(9 * time.Second)
		synctest.Wait()
		r.expectUpdates(t, "within ten seconds of the first, which is throttled,", 1)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		r.expectUpdates(t, "after them", 4)
		select {
		case event := <-r.events.Events:
			if strings.Contains(event, "ProviderUpdateFailed") {
				t.Errorf("throttling, which passes, is the event %q", event)
			}
		default:
		}
	})
}

func (r *rig) stale() (found []string) {
	for {
		select {
		case event := <-r.events.Events:
			if strings.Contains(event, "ProviderUpdateFailed") {
				found = append(found, event)
			}
		default:
			return found
		}
	}
}

// If ECI refuses a renewal, an event is recorded and it is retried although nothing
// else changes: the token in the group expires.
func TestARefusedRenewalIsAnEventAndTriedAgain(t *testing.T) {
	for _, code := range []string{"InvalidParameter.Volume", "Forbidden.RAM"} {
		t.Run(code, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, r *rig) {
				r.create(t, podWithToken("a"))
				r.refuse("UpdateContainerGroup", 2, http.StatusBadRequest, code, "no")
				r.goOn(t, 48*time.Minute)
				if events := r.stale(); len(events) != 1 || !strings.HasPrefix(events[0], "Warning") || !strings.Contains(events[0], code) {
					t.Errorf("the events are %q, want one with %s", events, code)
				}
				r.goOn(t, 11*time.Minute)
				if got := r.tokenOf(t, "a"); got != "2" {
					t.Errorf("before the end of the first token the group has %q, want the second", got)
				}
				r.expectUpdates(t, "with two that are refused", 3)
				if events := r.stale(); len(events) != 0 {
					t.Errorf("there are more events: %q", events)
				}
			})
		})
	}
}

// While the API server issues no token, the group keeps the one that it has, and is not
// updated with it again.
func TestWithoutAnotherTokenNothingIsSent(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.create(t, podWithToken("a"))
		r.tokens.fail(errors.New("away"))
		r.goOn(t, 55*time.Minute)
		r.expectUpdates(t, "without another token", 0)
		r.tokens.fail(nil)
		r.goOn(t, time.Minute)
		r.expectUpdates(t, "with one", 1)
	})
}

// The files of an object that was deleted stay, and tokens are renewed.
func TestAMissingObjectKeepsNoTokenFromBeingRenewed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.paint("blue")
		pod := podWithToken("a")
		pod.Spec.Volumes = append(podWithSettings("a").Spec.Volumes, pod.Spec.Volumes...)
		r.create(t, pod)
		r.objects.change("ConfigMap", "settings", func() { delete(r.objects.configMaps, "settings") })
		r.goOn(t, 54*time.Minute)
		if got := r.tokenOf(t, "a"); got != "2" {
			t.Errorf("the group has token %q, want the second", got)
		}
		r.waitForFile(t, "a", "conf", "colour", "blue")
		if events := r.stale(); len(events) != 1 || !strings.Contains(events[0], `configmap "settings" not found`) {
			t.Errorf("the events are %q, want one that names the ConfigMap", events)
		}
		r.paint("red")
		synctest.Wait()
		r.waitForFile(t, "a", "conf", "colour", "red")
	})
}

// A change of an object arrives hours after the pod was created, and after a restart,
// too, and nothing else is sent in that time.
func TestChangesArriveForAsLongAsThePodRuns(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		client := fake.NewClientset(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings"}, Data: map[string]string{"colour": "blue"},
		})
		objects := podobjects.New(client)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { objects.Run(ctx) })
		defer running.Wait()
		defer stop()
		r.source = objects
		r.restart(t)
		pod := podWithSettings("a")
		objects.Follow(pod) // as the pod controller does
		r.create(t, pod)
		for i, colour := range []string{"red", "green"} {
			r.goOn(t, 3*time.Hour)
			r.expectUpdates(t, "without a change", i)
			_, err := client.CoreV1().ConfigMaps("default").Update(t.Context(), &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings"}, Data: map[string]string{"colour": colour},
			}, metav1.UpdateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			r.waitForFile(t, "a", "conf", "colour", colour)
			r.restart(t)
		}
	})
}

// An update whose response was lost is undone by the next one.
func TestAnUpdateWhoseAnswerWasLostIsNotReliedOn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.paint("blue")
		r.create(t, podWithSettings("a"))
		r.goOn(t, time.Minute)
		r.api.Lose("UpdateContainerGroup", 1)
		r.paint("red")
		synctest.Wait()
		r.waitForFile(t, "a", "conf", "colour", "red")
		r.paint("blue")
		r.goOn(t, time.Minute)
		r.waitForFile(t, "a", "conf", "colour", "blue")
	})
}

func TestAPodThatIsGoneIsForgotten(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		pod := r.create(t, podWithToken("a"))
		r.goOn(t, time.Minute)
		if err := r.DeletePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if err := r.pods.Delete(pod); err != nil {
			t.Fatal(err)
		}
		r.goOn(t, time.Minute)
		r.goOn(t, 2*time.Hour)
		r.expectUpdates(t, "of a pod that is gone", 0)
		if asked := r.tokens.count(); asked != 1 {
			t.Errorf("%d tokens were asked for", asked)
		}
	})
}

// The same over HTTP, with a fake that verifies requests.
func TestATokenThatIsDueIsRenewedOverHTTP(t *testing.T) {
	r := newRig(t, 0)
	r.tokens.setAge(50 * time.Minute)
	r.create(t, podWithToken("a"))
	r.tokens.setAge(0)
	r.restart(t)
	if _, err := r.GetPods(t.Context()); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for ; r.tokenOf(t, "a") != "2"; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the token is not renewed")
		}
	}
	r.expectUpdates(t, "for it", 1)
}
