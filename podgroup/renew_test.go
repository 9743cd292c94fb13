package podgroup_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podobjects"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// renewing is a provider whose units may be updated at any time.
type renewing struct {
	world   *grouptest.World
	cluster *grouptest.Cluster
	p       nodeutil.Provider
	source  node.ObjectSource // instead of the cluster's
	blind   bool              // the service does not show files
}

// blind is a listing whose service does not show files, if the rig says so.
type blind struct {
	listing
	rig *renewing
}

func (b blind) List(ctx context.Context, filter map[string]string, page string) (podgroup.Page, error) {
	found, err := b.listing.List(ctx, filter, page)
	for i := range found.Units {
		if b.rig.blind {
			found.Units[i].Files = nil
		}
	}
	return found, err
}

// whileRenewing runs a test in virtual time.
func whileRenewing(t *testing.T, test func(t *testing.T, r *renewing)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &renewing{world: grouptest.New(0), cluster: grouptest.NewCluster("home")}
		r.start(t)
		test(t, r)
	})
}

// start makes a provider without state.
func (r *renewing) start(t *testing.T) {
	t.Helper()
	config := r.cluster.Config()
	config.Objects = cmp.Or(r.source, config.Objects)
	p, _, err := podgroup.New(config, blind{listing{memory{r.world}}, r}, options())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.(io.Closer).Close() })
	r.p = p
}

// restart closes the provider, and makes another without state.
func (r *renewing) restart(t *testing.T) {
	t.Helper()
	grouptest.Close(t, r.p)
	r.start(t)
}

func (r *renewing) create(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	create(t, r.cluster, r.p, pod)
	time.Sleep(time.Millisecond)
	return pod
}

// goOn lets time pass, in which the controller lists the pods each minute.
func (r *renewing) goOn(t *testing.T, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); ; time.Sleep(min(time.Minute, time.Until(end))) {
		if _, err := r.p.GetPods(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !time.Now().Before(end) {
			return
		}
	}
}

// podWithToken is a pod with the volume that Kubernetes mounts into all pods, but
// without its ConfigMap.
func podWithToken(name string) *corev1.Pod {
	pod := grouptest.NewPod(name)
	pod.Spec.Volumes = []corev1.Volume{{Name: "access", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
	}}}}
	return pod
}

// podWithSettings is a pod with the ConfigMap settings as files, and a volume of another kind
// before them.
func podWithSettings(name string) *corev1.Pod {
	pod := grouptest.NewPod(name)
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "conf", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "settings"},
		}}},
	}
	return pod
}

func (r *renewing) paint(colour string) {
	r.cluster.SetConfigMap("settings", map[string]string{"colour": colour})
}

// file returns a file in a volume of the pod's unit.
func (r *renewing) file(t *testing.T, pod, volume, path string) string {
	t.Helper()
	u, err := r.world.OfPod(pod)
	if err != nil {
		t.Fatal(err)
	}
	return string(u.Files[volume][path].Data)
}

// waitForFile waits until a file in a volume of the pod's unit has a content.
func (r *renewing) waitForFile(t *testing.T, pod, volume, path, want string) {
	t.Helper()
	for range 60 {
		if r.file(t, pod, volume, path) == want {
			return
		}
		time.Sleep(time.Second)
	}
	t.Fatalf("pod %s has %q in %s/%s, want %q", pod, r.file(t, pod, volume, path), volume, path, want)
}

// tokenOf returns which of the issued tokens the unit of a pod has.
func (r *renewing) tokenOf(t *testing.T, pod string) string {
	t.Helper()
	claims, err := base64.RawURLEncoding.DecodeString(strings.Split(r.file(t, pod, "access", "token")+"..", ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	_, id, _ := strings.Cut(string(claims), `"jti":"`)
	return strings.TrimSuffix(id, `"}`)
}

func (r *renewing) expectUpdates(t *testing.T, when string, want int) {
	t.Helper()
	if calls := r.world.Calls(string(podgroup.ActionUpdate)); calls != want {
		t.Fatalf("%s there were %d updates, want %d", when, calls, want)
	}
}

// stale returns the events of files that are not up to date.
func (r *renewing) stale() (found []string) {
	for _, event := range events(r.cluster) {
		if strings.Contains(event, "ProviderUpdateFailed") {
			found = append(found, event)
		}
	}
	return found
}

func TestTokensAreRenewedAtFourFifthsOfTheirLife(t *testing.T) {
	whileRenewing(t, func(t *testing.T, r *renewing) {
		r.paint("blue")
		r.create(t, podWithToken("a"))
		r.create(t, podWithSettings("without"))
		r.goOn(t, 45*time.Minute)
		r.expectUpdates(t, "before a renewal is due", 0)
		r.goOn(t, 3*time.Minute+time.Second)
		r.expectUpdates(t, "when the renewal is due", 1)
		if got := r.tokenOf(t, "a"); got != "2" {
			t.Errorf("the unit has token %q, want the second", got)
		}
		r.goOn(t, 24*time.Hour)
		updates := r.world.Calls(string(podgroup.ActionUpdate))
		if updates < 30 || updates > 33 {
			t.Errorf("in a day there were %d updates, want one each 48 minutes, or a little less", updates)
		}
		if asked := r.cluster.Tokens(); asked != updates+1 {
			t.Errorf("%d tokens were asked for %d updates", asked, updates)
		}
	})
}

// After a restart a token is as old as before.
func TestARestartRenewsTokensWhenTheyAreDue(t *testing.T) {
	whileRenewing(t, func(t *testing.T, r *renewing) {
		r.create(t, podWithToken("a"))
		r.goOn(t, 30*time.Minute)
		r.restart(t)
		r.goOn(t, 15*time.Minute)
		r.expectUpdates(t, "before the renewal is due, after a restart,", 0)
		if asked := r.cluster.Tokens(); asked != 1 {
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
	whileRenewing(t, func(t *testing.T, r *renewing) {
		r.create(t, podWithToken("a"))
		r.goOn(t, time.Second)
		grouptest.Close(t, r.p)
		time.Sleep(2 * time.Hour)
		r.start(t)
		r.goOn(t, time.Second)
		if got := r.tokenOf(t, "a"); got != "2" {
			t.Errorf("the unit has token %q, want the second", got)
		}
	})
}

// If the listing reports no files of a unit, the age of its token is unknown: it is
// renewed once. That takes no more listings than the controller's.
func TestTokensOfUnknownAgeAreRenewedOnce(t *testing.T) {
	whileRenewing(t, func(t *testing.T, r *renewing) {
		const count = 5
		var pods []*corev1.Pod
		for i := range count {
			pods = append(pods, r.create(t, podWithToken(fmt.Sprintf("pod-%d", i))))
		}
		r.blind = true
		r.goOn(t, 30*time.Minute)
		r.expectUpdates(t, "before the restart", 0)
		r.restart(t)
		before := r.world.Calls(string(podgroup.ActionList))
		r.goOn(t, 0)
		r.expectUpdates(t, "after the restart", count)
		if lists := r.world.Calls(string(podgroup.ActionList)) - before; lists != 1 {
			t.Errorf("%d lists were asked for, want 1", lists)
		}
		if err := r.p.UpdatePod(t.Context(), pods[0]); err != nil {
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
	whileRenewing(t, func(t *testing.T, r *renewing) {
		for _, name := range []string{"a", "b", "c"} {
			r.create(t, podWithToken(name))
		}
		r.goOn(t, time.Minute)
		r.restart(t)
		r.world.Refuse(string(podgroup.ActionUpdate), 1, grouptest.ErrQuota)
		time.Sleep(2 * time.Hour) // the tokens have expired, and nothing was sent
		if _, err := r.p.GetPods(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(9 * time.Second)
		synctest.Wait()
		r.expectUpdates(t, "within ten seconds of the first, which is throttled,", 1)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		r.expectUpdates(t, "after them", 4)
		select {
		case event := <-r.cluster.Events.Events:
			if strings.Contains(event, "ProviderUpdateFailed") {
				t.Errorf("throttling, which passes, is the event %q", event)
			}
		default:
		}
	})
}

// If the service refuses a renewal, an event is recorded and it is retried although nothing
// else changes: the token in the unit expires.
func TestARefusedRenewalIsAnEventAndTriedAgain(t *testing.T) {
	for _, code := range []string{"Invalid", "Denied"} {
		t.Run(code, func(t *testing.T) {
			whileRenewing(t, func(t *testing.T, r *renewing) {
				r.create(t, podWithToken("a"))
				r.world.Refuse(string(podgroup.ActionUpdate), 2, &grouptest.Refusal{Code: code})
				r.goOn(t, 48*time.Minute)
				if events := r.stale(); len(events) != 1 || !strings.HasPrefix(events[0], "Warning") || !strings.Contains(events[0], code) {
					t.Errorf("the events are %q, want one with %s", events, code)
				}
				r.goOn(t, 11*time.Minute)
				if got := r.tokenOf(t, "a"); got != "2" {
					t.Errorf("before the end of the first token the unit has %q, want the second", got)
				}
				r.expectUpdates(t, "with two that are refused", 3)
				if events := r.stale(); len(events) != 0 {
					t.Errorf("there are more events: %q", events)
				}
			})
		})
	}
}

// While the API server issues no token, the unit keeps the one that it has, and is not
// updated with it again.
func TestWithoutAnotherTokenNothingIsSent(t *testing.T) {
	whileRenewing(t, func(t *testing.T, r *renewing) {
		r.create(t, podWithToken("a"))
		r.cluster.FailTokens(errors.New("away"))
		r.goOn(t, 55*time.Minute)
		r.expectUpdates(t, "without another token", 0)
		r.cluster.FailTokens(nil)
		r.goOn(t, time.Minute)
		r.expectUpdates(t, "with one", 1)
	})
}

// The files of an object that was deleted stay, and tokens are renewed.
func TestAMissingObjectKeepsNoTokenFromBeingRenewed(t *testing.T) {
	whileRenewing(t, func(t *testing.T, r *renewing) {
		r.paint("blue")
		pod := podWithToken("a")
		pod.Spec.Volumes = append(podWithSettings("a").Spec.Volumes, pod.Spec.Volumes...)
		r.create(t, pod)
		r.cluster.RemoveConfigMap("settings")
		r.goOn(t, 54*time.Minute)
		if got := r.tokenOf(t, "a"); got != "2" {
			t.Errorf("the unit has token %q, want the second", got)
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
	whileRenewing(t, func(t *testing.T, r *renewing) {
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
	whileRenewing(t, func(t *testing.T, r *renewing) {
		r.paint("blue")
		r.create(t, podWithSettings("a"))
		r.goOn(t, time.Minute)
		r.world.Lose(string(podgroup.ActionUpdate), 1)
		r.paint("red")
		synctest.Wait()
		r.waitForFile(t, "a", "conf", "colour", "red")
		r.paint("blue")
		r.goOn(t, time.Minute)
		r.waitForFile(t, "a", "conf", "colour", "blue")
	})
}

func TestAPodThatIsGoneIsForgotten(t *testing.T) {
	whileRenewing(t, func(t *testing.T, r *renewing) {
		pod := r.create(t, podWithToken("a"))
		r.goOn(t, time.Minute)
		if err := r.p.DeletePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		r.cluster.RemovePod(pod)
		r.goOn(t, time.Minute)
		r.goOn(t, 2*time.Hour)
		r.expectUpdates(t, "of a pod that is gone", 0)
		if asked := r.cluster.Tokens(); asked != 1 {
			t.Errorf("%d tokens were asked for", asked)
		}
	})
}
