package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

const allKinds = `
- {name: cm, configMap: {name: cm}}
- {name: s, secret: {secretName: s, defaultMode: 0o400}}
- {name: d, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
- {name: p, projected: {sources: [{serviceAccountToken: {path: token}}, {configMap: {name: cm}}]}}
- {name: e}
- {name: m, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
`

func fill(r *rig) {
	r.objects.setConfigMap("cm", map[string]string{"a": "1"})
	r.objects.secrets["s"] = &corev1.Secret{Data: map[string][]byte{"key": []byte("x")}}
}

// layout are the directories of allKinds, below that of the pod.
var layout = map[string]string{
	"cm": "kubernetes.io~configmap/cm", "s": "kubernetes.io~secret/s", "d": "kubernetes.io~downward-api/d",
	"p": "kubernetes.io~projected/p", "e": "kubernetes.io~empty-dir/e", "m": "kubernetes.io~empty-dir/m",
}

func TestPrepare(t *testing.T) {
	needRoot(t)
	for name, tc := range map[string]struct {
		group    *int64
		noMounts bool
		want     map[string]string
	}{
		"plain": {want: map[string]string{
			"cm": "0777 0:0", "s": "1777+t 0:0", "e": "0777 0:0", "m": "1777+t 0:0", "d": "1777+t 0:0", "p": "1777+t 0:0",
			"cm/a": "0644 0:0", "s/key": "0400 0:0", "p/token": "0644 0:0",
		}},
		"fsGroup": {group: ptr.To[int64](2000), want: map[string]string{
			"cm": "2777 0:2000", "s": "3777+t 0:2000", "e": "2777 0:2000", "m": "3777+t 0:2000", "d": "3777+t 0:2000", "p": "3777+t 0:2000",
			"cm/a": "0644 0:2000", "s/key": "0440 0:2000", "p/token": "0640 0:2000", "d/labels": "0644 0:2000",
		}},
		"no mounts": {noMounts: true, group: ptr.To[int64](2000), want: map[string]string{"m": "2777 0:2000", "s/key": "0440 0:2000"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.NoMounts = tc.noMounts })
			fill(r)
			pod := podWith(t, allKinds)
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: tc.group}
			for range 2 { // it may be repeated
				r.prepare(t, pod)
				for path, want := range tc.want {
					volume, rest, _ := cut(path)
					expect(t, path, ls(t, filepath.Join(r.root, "pods/uid-1/volumes", layout[volume], rest)), want)
				}
			}
			for volume, dir := range layout {
				path, readOnly, err := r.HostPath(pod, &corev1.VolumeMount{Name: volume})
				expectError(t, err, "")
				expect(t, "the path", path, filepath.Join(r.root, "pods/uid-1/volumes", dir))
				expect(t, "readOnly of "+volume, readOnly, volume != "e" && volume != "m")
				mounted, err := isMountPoint(path)
				expectError(t, err, "")
				expect(t, volume+" is in memory", mounted, !tc.noMounts && volume != "cm" && volume != "e")
			}
			write(t, filepath.Join(r.path(t, pod, "e"), "kept"), "x")
			write(t, filepath.Join(r.path(t, pod, "m"), "kept"), "x")
			again := *r
			again.Manager, _ = New(r.opts) // a restart of the process
			again.prepare(t, pod)
			expect(t, "a file in an emptyDir", content(t, filepath.Join(again.path(t, pod, "e"), "kept")), "x")
			expect(t, "a file in memory", content(t, filepath.Join(again.path(t, pod, "m"), "kept")), "x")
			if points, _ := mountPoints(r.root); len(points) > 4 {
				t.Errorf("there are mounts upon mounts: %v", points)
			}
		})
	}
}

func cut(path string) (first, rest string, ok bool) {
	for i := range path {
		if path[i] == '/' {
			return path[:i], path[i+1:], true
		}
	}
	return path, "", false
}

// The limit of an emptyDir in memory is kept by the kernel.
func TestMemoryIsLimited(t *testing.T) {
	needRoot(t)
	r := newRig(t)
	pod := podWith(t, `[{name: m, emptyDir: {medium: Memory, sizeLimit: 64Ki}}]`)
	r.prepare(t, pod)
	file := filepath.Join(r.path(t, pod, "m"), "f")
	expectError(t, os.WriteFile(file, make([]byte, 32<<10), 0o644), "")
	expectError(t, os.WriteFile(file, make([]byte, 128<<10), 0o644), "no space left")
}

func TestMemorySize(t *testing.T) {
	limited := func(limits ...string) *corev1.Pod {
		pod := &corev1.Pod{}
		for _, limit := range limits {
			c := corev1.Container{}
			if limit != "" {
				c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit)}
			}
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
		return pod
	}
	podLevel := limited("")
	podLevel.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("10")}}
	for name, tc := range map[string]struct {
		pod         *corev1.Pod
		limit, node string
		want        int64
	}{
		"nothing":              {limited(""), "", "", 0},
		"its own":              {limited(""), "50", "", 50},
		"the node's":           {limited(""), "", "70", 70},
		"its own is less":      {limited(""), "50", "70", 50},
		"the node's is less":   {limited(""), "50", "30", 30},
		"the containers'":      {limited("10", "15"), "50", "30", 25},
		"one is not limited":   {limited("10", ""), "50", "30", 30},
		"the pod's":            {podLevel, "50", "", 10},
		"a limit of nothing":   {limited(""), "0", "30", 30},
		"no containers at all": {limited(), "50", "", 50},
	} {
		source, node := &corev1.EmptyDirVolumeSource{}, corev1.ResourceList{}
		if tc.limit != "" {
			source.SizeLimit = ptr.To(resource.MustParse(tc.limit))
		}
		if tc.node != "" {
			node[corev1.ResourceMemory] = resource.MustParse(tc.node)
		}
		expect(t, name, memorySize(tc.pod, source, node), tc.want)
	}
}

// Each volume that cannot be set up is named; the others are there.
func TestPrepareFails(t *testing.T) {
	r := newRig(t)
	pod := podWith(t, `[{name: x, configMap: {name: "y"}}, {name: e}, {name: z, secret: {secretName: w}}]`)
	err := r.Prepare(t.Context(), pod)
	var failures Failures
	if !errors.As(err, &failures) || len(failures) != 2 {
		t.Fatalf("the error is %v", err)
	}
	expect(t, "the message", failures[0].Error(), `MountVolume.SetUp failed for volume "x" : configmap "y" not found`)
	expect(t, "the message", err.Error(), `MountVolume.SetUp failed for volume "x" : configmap "y" not found; `+
		`MountVolume.SetUp failed for volume "z" : secret "w" not found`)
	expect(t, "the class", errdefs.ClassOf(err), errdefs.UnknownClass)
	expect(t, "the emptyDir", isThere(r.path(t, pod, "e")), true)

	r.objects.setConfigMap("y", nil)
	pod.Spec.Volumes[2].VolumeSource = *decode[corev1.VolumeSource](t, "{csi: {driver: x}}")
	err = r.Prepare(t.Context(), pod)
	expect(t, "the message", err.Error(), `MountVolume.SetUp failed for volume "z" : ProviderNotSupported: volume z of kind csi`)
	expect(t, "permanence", errdefs.IsPermanent(err), true)
	pod.Spec.Volumes[2].VolumeSource = *decode[corev1.VolumeSource](t, "{emptyDir: {medium: HugePages-2Mi}}")
	expectError(t, r.Prepare(t.Context(), pod), "kind emptyDir (medium HugePages-2Mi)")
}

// A volume that no container mounts need not exist.
func TestOnlyMountedVolumesAreSetUp(t *testing.T) {
	r := newRig(t)
	pod := podWith(t, `[{name: x, configMap: {name: none}}, {name: e}]`)
	pod.Spec.Containers[0].VolumeMounts = nil
	r.prepare(t, pod)
	expect(t, "the pod's directory", isThere(filepath.Join(r.root, "pods/uid-1")), false)
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{}}
	pod.Spec.EphemeralContainers[0].VolumeMounts = []corev1.VolumeMount{{Name: "e"}}
	r.prepare(t, pod)
	expect(t, "the volume of an ephemeral container", isThere(r.path(t, pod, "e")), true)
}

// Names that are no names do not lead anywhere else.
func TestNames(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"", ".", "..", "a/b", "../x", "a\\b"} {
		pod := podWith(t, `[{name: e}]`)
		pod.UID = types.UID(name)
		expectError(t, r.Prepare(t.Context(), pod), "is no UID of a pod")
		expectError(t, r.Teardown(pod.UID), "is no UID of a pod")
		pod.UID, pod.Spec.Volumes[0].Name, pod.Spec.Containers[0].VolumeMounts[0].Name = "uid", name, name
		expectError(t, r.Prepare(t.Context(), pod), "is no name of a volume")
	}
}

func TestRefresh(t *testing.T) {
	r := newRig(t)
	fill(r)
	pod := podWith(t, allKinds)
	pod.Labels = map[string]string{"a": "1"}
	r.prepare(t, pod)
	r.objects.setConfigMap("cm", map[string]string{"b": "2"})
	pod.Labels["a"] = "2"
	next, err := r.Refresh(t.Context(), pod)
	expectError(t, err, "")
	if left := time.Until(next); left < 40*time.Second || left > 80*time.Second {
		t.Errorf("the next is due in %s, want about a minute", left)
	}
	expect(t, "what is due", r.Due(pod.UID), next)
	expect(t, "the file", content(t, filepath.Join(r.path(t, pod, "cm"), "b")), "2")
	expect(t, "a stale file", isThere(filepath.Join(r.path(t, pod, "cm"), "a")), false)
	expect(t, "the labels", content(t, filepath.Join(r.path(t, pod, "d"), "labels")), `a="2"`)
	expect(t, "the token", content(t, filepath.Join(r.path(t, pod, "p"), "token")), "token1")

	// What is gone or cannot be read stays as it is.
	r.objects.err = errors.New("away")
	_, err = r.Refresh(t.Context(), pod)
	expectError(t, err, `MountVolume.SetUp failed for volume "cm" : failed to read configmap "ns/cm": away`)
	expect(t, "the file", content(t, filepath.Join(r.path(t, pod, "cm"), "b")), "2")

	next, err = r.Refresh(t.Context(), podWith(t, `[{name: e}]`))
	if err != nil || !next.IsZero() {
		t.Errorf("without contents the next is due at %s, %v", next, err)
	}
	expect(t, "what is due of an unknown pod", r.Due("other"), time.Time{})
}

func TestRefreshRenewsTokens(t *testing.T) {
	r := newRig(t, func(o *Options) { o.NoMounts = true })
	synctest.Test(t, func(t *testing.T) {
		r.objects.life = 30 // shorter than the period of refreshing
		pod := podWith(t, `[{name: p, projected: {sources: [{serviceAccountToken: {path: token}}]}}]`)
		if err := r.Prepare(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		for n, want := range []string{"token1", "token2", "token3"} {
			file := filepath.Join(r.path(t, pod, "p"), "token")
			expect(t, "the token", content(t, file), want)
			due := r.Due(pod.UID)
			if left := time.Until(due); left <= 0 || left > 24*time.Second {
				t.Fatalf("refresh %d is due in %s", n, left)
			}
			time.Sleep(time.Until(due))
			if _, err := r.Refresh(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Teardown(pod.UID); err != nil {
			t.Fatal(err)
		}
		expect(t, "the pods with tokens", len(r.tokens.pods), 0)
	})
}

func TestSubscribe(t *testing.T) {
	r := newRig(t)
	r.objects.setConfigMap("cm", nil)
	var woken []types.UID
	unsubscribe := r.Subscribe(func(uid types.UID) { woken = append(woken, uid) })
	a, b := podWith(t, `[{name: x, configMap: {name: cm}}]`), podWith(t, `[{name: x, projected: {sources: [{secret: {name: missing}}, {configMap: {name: cm}}]}}]`)
	b.UID = "uid-2"
	r.prepare(t, a)
	expectError(t, r.Prepare(t.Context(), b), `secret "missing" not found`)
	wantUsers := func(kind, name string, want ...types.UID) {
		t.Helper()
		woken = nil
		r.objects.notify(kind, name)
		slices.Sort(woken)
		if !slices.Equal(woken, want) {
			t.Errorf("%s %s woke %v, want %v", kind, name, woken, want)
		}
	}
	wantUsers("ConfigMap", "cm", "uid-1", "uid-2")
	wantUsers("Secret", "missing", "uid-2") // for which the pod waits
	wantUsers("Secret", "cm")
	wantUsers("ConfigMap", "other")
	if err := r.Teardown("uid-1"); err != nil {
		t.Fatal(err)
	}
	wantUsers("ConfigMap", "cm", "uid-2")
	b.Spec.Volumes = nil
	r.prepare(t, b)
	wantUsers("ConfigMap", "cm")
	expect(t, "the objects that are remembered", len(r.users), 0)
	unsubscribe()
	expect(t, "the subscriptions", len(r.objects.subscribers), 0)
}

// images is an Images of one image.
type images struct{ err error }

func (i images) Image(_ context.Context, _ *corev1.Pod, v *corev1.Volume) (string, error) {
	return "sha256:of-" + v.Image.Reference, i.err
}

func TestImages(t *testing.T) {
	pod := podWith(t, `[{name: i, image: {reference: app}}]`)
	mount := &corev1.VolumeMount{Name: "i"}
	r := newRig(t, func(o *Options) { o.Images = images{} })
	_, ok := r.Image(pod, mount)
	expect(t, "an image before Prepare", ok, false)
	r.prepare(t, pod)
	ref, ok := r.Image(pod, mount)
	expect(t, "an image", ok, true)
	expect(t, "the reference", ref, "sha256:of-app")
	_, _, err := r.HostPath(pod, mount)
	expectError(t, err, "kind image: the volume has no directory")

	expectError(t, newRig(t).Prepare(t.Context(), pod), "ProviderNotSupported: volume i of kind image")
	r = newRig(t, func(o *Options) { o.Images = images{errors.New("no such image")} })
	expectError(t, r.Prepare(t.Context(), pod), "no such image")
}

func TestNewFails(t *testing.T) {
	file := filepath.Join(tempDir(t), "file")
	write(t, file, "x")
	_, err := New(Options{Root: file})
	expectError(t, err, "make the directory for volumes")
}
