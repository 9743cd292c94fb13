package eci

import (
	"encoding/base64"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
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

// Renewals, which are tested in package podgroup, over HTTP with a fake that verifies requests.
func TestATokenThatIsDueIsRenewedOverHTTP(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.create(t, podWithToken("a"))
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Minute)
		r.restart(t)
		r.goOn(t, time.Minute)
		if token := r.tokenOf(t, "a"); token != "2" {
			t.Errorf("the pod has token %s", token)
		}
		r.expectUpdates(t, "for it", 1)
	})
}

// stale returns the events of files that are not up to date.
func (r *rig) stale() (found []string) {
	for {
		select {
		case event := <-r.home.Events.Events:
			if strings.Contains(event, "ProviderUpdateFailed") {
				found = append(found, event)
			}
		default:
			return found
		}
	}
}
