package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// localRig has a local volume with a file, and pods that claim it with a group.
type localRig struct {
	*rig
	dir, file string
	events    []string
}

func newLocalRig(t *testing.T) *localRig {
	t.Helper()
	dir := tempDir(t)
	r := &localRig{rig: claimRig(t, "local: {path: "+dir+"}"), dir: dir, file: filepath.Join(dir, "file")}
	r.opts.Event = func(pod *corev1.Pod, _, eventType, reason, message string) {
		r.events = append(r.events, fmt.Sprintf("%s %s %s %s", pod.UID, eventType, reason, message))
	}
	write(t, r.file, "x")
	return r
}

func (r *localRig) pod(t *testing.T, uid types.UID, group int64) *corev1.Pod {
	t.Helper()
	pod := podWith(t, claimVolume)
	pod.UID = uid
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr.To(group)}
	return pod
}

// restart is a restart of the process.
func (r *localRig) restart(t *testing.T) {
	t.Helper()
	var err error
	if r.Manager, err = New(r.opts); err != nil {
		t.Fatal(err)
	}
}

// giveAway is what a container does with the volume.
func (r *localRig) giveAway(t *testing.T, group int) {
	t.Helper()
	if err := errors.Join(os.Chown(r.file, 5, group), os.Chmod(r.file, 0o600)); err != nil {
		t.Fatal(err)
	}
}

func TestLocalVolumesGetTheGroupOnce(t *testing.T) {
	needRoot(t)
	r := newLocalRig(t)
	pod := r.pod(t, "uid-1", 2000)
	r.prepare(t, pod)
	expect(t, "the file", ls(t, r.file), "0664 0:2000")
	r.giveAway(t, 5)
	r.prepare(t, pod)
	expect(t, "the file, for another sandbox", ls(t, r.file), "0600 5:5")
	r.restart(t)
	r.prepare(t, pod)
	expect(t, "the file after a restart", ls(t, r.file), "0600 5:5")
	expectError(t, r.Teardown(pod.UID), "")
	expect(t, "the pod's directory", isThere(filepath.Join(r.root, "pods/uid-1")), false)
	r.prepare(t, pod)
	expect(t, "the file for the next pod", ls(t, r.file), "0660 5:2000")
}

// A volume on a disk that is made again when the machine boots is the group's again.
func TestLocalVolumesGetTheGroupAgainAfterABoot(t *testing.T) {
	needRoot(t)
	r := newLocalRig(t)
	boot := func(id string) {
		r.opts.Boot = id
		r.restart(t)
	}
	boot("one")
	first, second := r.pod(t, "uid-1", 2000), r.pod(t, "uid-2", 2000)
	r.prepare(t, first)
	r.prepare(t, second)
	expectError(t, errors.Join(os.RemoveAll(r.dir), os.Mkdir(r.dir, 0o755)), "")
	boot("one")
	r.prepare(t, first)
	expect(t, "the volume after a restart", ls(t, r.dir), "0755 0:0")
	boot("two")
	r.prepare(t, first)
	expect(t, "the volume after a boot", ls(t, r.dir), "2775 0:2000")
	write(t, r.file, "x")
	r.giveAway(t, 5)
	r.prepare(t, second)
	expect(t, "the file, for the second pod", ls(t, r.file), "0600 5:5")
}

// A pod whose volume others have gets it as it is, as from a kubelet.
func TestLocalVolumesOfSeveralPods(t *testing.T) {
	needRoot(t)
	r := newLocalRig(t)
	first := r.pod(t, "uid-1", 2000)
	r.prepare(t, first)
	r.giveAway(t, 5)
	r.restart(t)
	r.prepare(t, r.pod(t, "uid-2", 2000))
	expect(t, "the number of events", len(r.events), 0)
	r.prepare(t, r.pod(t, "uid-3", 3000))
	r.prepare(t, r.pod(t, "uid-3", 3000)) // which warns no more
	expect(t, "the file", ls(t, r.file), "0600 5:5")
	if want := []string{"uid-3 Warning AlreadyMountedVolume The requested fsGroup is 3000, but the volume pv has GID 2000. The volume may not be shareable."}; !slices.Equal(r.events, want) {
		t.Errorf("the events are %q, want %q", r.events, want)
	}
	for _, uid := range []types.UID{"uid-1", "uid-2"} {
		expectError(t, r.Teardown(uid), "")
	}
	r.prepare(t, r.pod(t, "uid-4", 4000))
	expect(t, "the file, while the third pod has it", ls(t, r.file), "0600 5:5")
	for _, uid := range []types.UID{"uid-3", "uid-4"} {
		expectError(t, r.Teardown(uid), "")
	}
	r.prepare(t, r.pod(t, "uid-5", 5000))
	expect(t, "the file, when none has it", ls(t, r.file), "0660 5:5000")
}

// The process before, of an earlier version, did not record which pods have the volume.
func TestRestoredLocalVolumes(t *testing.T) {
	needRoot(t)
	r := newLocalRig(t)
	expectError(t, r.Restore(t.Context(), r.pod(t, "uid-1", 2000)), "")
	r.prepare(t, r.pod(t, "uid-1", 2000))
	r.prepare(t, r.pod(t, "uid-2", 2000))
	expect(t, "the file", ls(t, r.file), "0644 0:0")
}

// A volume that could not be given to the group to the end is so at the next attempt.
func TestLocalVolumesWhoseGroupIsCutOff(t *testing.T) {
	needRoot(t)
	r := newLocalRig(t)
	pod := r.pod(t, "uid-1", 2000)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	expectError(t, r.Prepare(ctx, pod), "context canceled")
	expect(t, "the file", ls(t, r.file), "0644 0:0")
	r.prepare(t, pod)
	expect(t, "the file after another attempt", ls(t, r.file), "0664 0:2000")
}

func TestLocalVolumesThatAreReadOnlyKeepTheirGroup(t *testing.T) {
	needRoot(t)
	r := newLocalRig(t)
	pod := r.pod(t, "uid-1", 2000)
	pod.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	r.prepare(t, pod)
	expect(t, "the file", ls(t, r.file), "0644 0:0")
}
