package volume

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

type contentsCase struct {
	Name                              string
	Volume                            corev1.VolumeSource
	FSGroup, RunAsUser, InitRunAsUser *int64
	Files                             map[string]struct {
		Data string
		Mode *fs.FileMode
		UID  *int64
	}
	Error     string
	Permanent bool
}

func TestContents(t *testing.T) {
	text, err := os.ReadFile("testdata/contents.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var cases []contentsCase
	if err := yaml.UnmarshalStrict(text, &cases); err != nil {
		t.Fatal(err)
	}
	for _, tc := range cases {
		t.Run(tc.Name, func(t *testing.T) {
			objects := objectsOfContents()
			s := Sources{Objects: objects, Tokens: NewTokens(objects), NodeAllocatable: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}}
			v := &corev1.Volume{Name: "v", VolumeSource: tc.Volume}
			files, _, err := s.Contents(t.Context(), podOfContents(&tc), v)
			expectError(t, err, tc.Error)
			expect(t, "permanence", errdefs.IsPermanent(err), tc.Permanent)
			expect(t, "class NotFound", errdefs.IsNotFound(err), false)
			expect(t, "the number of files", len(files), len(tc.Files))
			for name, want := range tc.Files {
				expect(t, name, string(files[name].Data), want.Data)
				expect(t, "the mode of "+name, files[name].Mode, ptr.Deref(want.Mode, DefaultMode))
				expect(t, "the owner of "+name, ptr.Deref(files[name].UID, -1), ptr.Deref(want.UID, -1))
			}
		})
	}
}

func objectsOfContents() *fakeObjects {
	objects := newObjects()
	objects.configMaps["cm"] = &corev1.ConfigMap{Data: map[string]string{"a": "1", "b": "2"}, BinaryData: map[string][]byte{"raw": {1, 2}}}
	objects.secrets["s"] = &corev1.Secret{Data: map[string][]byte{"user": []byte("me"), "password": []byte("x")}}
	return objects
}

func podOfContents(tc *contentsCase) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace, pod.UID = "pod", "ns", "uid-1"
	pod.Labels = map[string]string{"zone": "a", "app": "web"}
	pod.Annotations = map[string]string{"example.com/note": "two\nlines and \"quotes\""}
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: tc.FSGroup, RunAsUser: tc.RunAsUser}
	pod.Spec.InitContainers = []corev1.Container{{Name: "init"}}
	if tc.InitRunAsUser != nil {
		pod.Spec.InitContainers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: tc.InitRunAsUser}
	}
	pod.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1250m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
	}}}
	return pod
}

// An object that cannot be read says how soon to try again.
func TestContentsWhenTheAPIIsAway(t *testing.T) {
	objects := newObjects()
	objects.err = errdefs.AsUnavailable(errors.New("away"))
	for _, v := range []string{"{configMap: {name: cm}}", "{configMap: {name: cm, optional: true}}", "{secret: {secretName: s}}"} {
		volume := decode[corev1.Volume](t, v)
		_, _, err := Sources{Objects: objects}.Contents(t.Context(), &corev1.Pod{}, volume)
		expectError(t, err, "failed to read")
		expect(t, "the class", errdefs.ClassOf(err), errdefs.UnavailableClass)
	}
}

// A service account that does not exist is not the pod that does not.
func TestContentsWithoutServiceAccount(t *testing.T) {
	objects := newObjects()
	_, objects.tokenErr = objects.Secret(t.Context(), "ns", "robot")
	volume := decode[corev1.Volume](t, "{projected: {sources: [{serviceAccountToken: {path: t}}]}}")
	_, _, err := Sources{Objects: objects, Tokens: NewTokens(objects)}.Contents(t.Context(), &corev1.Pod{}, volume)
	expectError(t, err, `failed to fetch token: secrets "robot" not found`)
	expect(t, "the class", errdefs.ClassOf(err), errdefs.UnknownClass)

	volume.Name = "v"
	_, _, err = Sources{Objects: objects}.Contents(t.Context(), &corev1.Pod{}, volume)
	expectError(t, err, "ProviderNotSupported: volume v of kind projected (serviceAccountToken)")
}

func TestCleanPath(t *testing.T) {
	for path, want := range map[string]string{
		"a": "a", "a/b": "a/b", "./a": "a", "a//b/": "a/b", "a/./b": "a/b", "a..b": "a..b", "a/..b": "a/..b", "...": "", // starts with ..
		"": "", "/a": "", "..": "", "../a": "", "a/..": "", "a/../b": "", "..a": "", "./..data": "", ".": "", "./": "", "a\x00b": "",
		string(make([]byte, 5000)): "",
	} {
		got, err := CleanPath(path)
		expect(t, "the path of "+path, got, want)
		expect(t, "permanence", errdefs.IsPermanent(err), want == "")
	}
	long := ""
	for range 256 {
		long += "a"
	}
	_, err := CleanPath("x/" + long)
	expectError(t, err, "longer than 255")
	for len(long) < maxPath {
		long += "/a"
	}
	_, err = CleanPath(long + "/a")
	expectError(t, err, "longer than 4096")
}

func TestValidateFiles(t *testing.T) {
	expectError(t, Files{"a": {}, "b/c": {}, "b/d/e": {}}.Validate(), "")
	expectError(t, Files{"a": {}, "a/b/c": {}}.Validate(), "conflicting paths")
	expectError(t, Files{"a/": {}}.Validate(), `write "a"`)
	expectError(t, Files{"..x": {}}.Validate(), "reserved")
}

func FuzzCleanPath(f *testing.F) {
	for _, seed := range []string{"a", "../a", "a/../../b", "./..data", "/x", "a//b", ".", "a/./.."} {
		f.Add(seed)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, path string) {
		clean, err := CleanPath(path)
		if err != nil {
			return
		}
		if again, err := CleanPath(clean); err != nil || again != clean {
			t.Errorf("%q becomes %q, which becomes %q, %v", path, clean, again, err)
		}
		if clean[0] == '/' || clean == "." || !fs.ValidPath(clean) && isText(clean) {
			t.Errorf("%q becomes %q", path, clean)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		if _, err := root.Lstat(clean); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q becomes %q: %v", path, clean, err)
		}
	})
}

// isText reports whether a path is UTF-8, which fs.ValidPath demands.
func isText(s string) bool {
	for _, r := range s {
		if r == '\uFFFD' {
			return false
		}
	}
	return true
}
