package eci

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// podWithSettings is a pod with the ConfigMap settings as files, and a volume of
// another kind before them.
func podWithSettings(name string) *corev1.Pod {
	pod := newPod(name)
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "conf", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "settings"},
		}}},
		{Name: "labels", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}},
		}}},
	}
	return pod
}

func (r *rig) paint(colour string) {
	r.home.SetConfigMap("settings", map[string]string{"colour": colour})
}

// file returns a file in a volume of the pod's group.
func (r *rig) file(t *testing.T, pod, volume, path string) string {
	t.Helper()
	u, err := r.api.OfPod(pod)
	if err != nil {
		t.Fatal(err)
	}
	return string(u.Files[volume][path].Data)
}

// waitForFile waits until a file in a volume of the pod's group has a content.
func (r *rig) waitForFile(t *testing.T, pod, volume, path, want string) {
	t.Helper()
	var got string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if got = r.file(t, pod, volume, path); got == want {
			return
		}
	}
	t.Fatalf("pod %s has %q in %s/%s, want %q", pod, got, volume, path, want)
}

// The files of a ConfigMap are updated with it, pods without it are not updated, and no
// other volume is lost.
func TestChangesOfConfigMapsArrive(t *testing.T) {
	r := newRig(t, 0)
	r.paint("blue")
	r.create(t, podWithSettings("a"))
	r.create(t, newPod("other"))
	r.waitForFile(t, "a", "conf", "colour", "blue")
	r.paint("red")
	r.waitForFile(t, "a", "conf", "colour", "red")
	r.waitForFile(t, "a", "labels", "labels", "")
	if calls := r.api.Calls("UpdateContainerGroup"); calls != 1 {
		t.Errorf("the change took %d updates, want 1", calls)
	}
}

// A restart of the node, in which each object is new to it, updates nothing: a token
// that the group has is not requested again.
func TestWhatIsUpToDateIsLeftAlone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.paint("blue")
		pod := podWithSettings("a")
		pod.Spec.Volumes[1] = corev1.Volume{Name: "conf", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}},
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
			},
		}}}
		r.create(t, pod)
		r.restart(t)
		r.goOn(t, 5*time.Minute)
		r.expectUpdates(t, "of what is up to date", 0)
		r.paint("red")
		synctest.Wait()
		r.waitForFile(t, "a", "conf", "colour", "red")
	})
}

// A pod's own labels are in its files, too.
func TestChangesOfLabelsArrive(t *testing.T) {
	r := newRig(t, 0)
	r.paint("blue")
	pod := r.create(t, podWithSettings("a")).DeepCopy()
	pod.Labels = map[string]string{"tier": "front"}
	r.home.SetPod(pod)
	if err := r.UpdatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	r.waitForFile(t, "a", "labels", "labels", `tier="front"`)
}

// If ECI refuses an update for good, an event is recorded; the pod keeps its files.
func TestARefusedChangeIsAnEvent(t *testing.T) {
	r := newRig(t, 0)
	r.paint("blue")
	r.create(t, podWithSettings("a"))
	r.refuse("UpdateContainerGroup", 1, http.StatusBadRequest, "InvalidParameter.Volume", "no")
	r.paint("red")
	for event := range r.home.Events.Events {
		if strings.Contains(event, "ProviderUpdateFailed") {
			if !strings.Contains(event, "InvalidParameter.Volume") || !strings.HasPrefix(event, "Warning") {
				t.Errorf("the event is %q", event)
			}
			break
		}
	}
	r.waitForFile(t, "a", "conf", "colour", "blue")
	r.paint("green") // and a further change is tried
	r.waitForFile(t, "a", "conf", "colour", "green")
}
