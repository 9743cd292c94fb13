package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const private = "registry.test/team/app:1"

// pullSecret is a secret for registry.test; password is what counts.
func pullSecret(namespace, name, uid, password string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)},
		Type:       corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: fmt.Appendf(nil,
			`{"auths":{"registry.test":{"username":%q,"password":%q}}}`, password, password)},
	}
}

// secured is a rig with records, whose registry accepts the password "good".
func secured(t *testing.T, dir string) *pullRig {
	r := newPullRig(t, 0)
	records, err := OpenRecords(dir)
	if err != nil {
		t.Fatal(err)
	}
	r.Puller.opts.Records, r.Puller.flights.records = records, records
	r.answer = func(image, user string) error {
		if image == private && user != "good" {
			return errors.New("unauthorized")
		}
		return nil
	}
	return r
}

// again is the rig after a restart of the process.
func (r *pullRig) again(dir string) *pullRig {
	next := secured(r.t, dir)
	next.fakeImages = r.fakeImages
	next.Puller.opts.Images, next.Puller.flights.images = r.fakeImages, r.fakeImages
	return next
}

func (r *pullRig) ensure(image string, policy corev1.PullPolicy, secrets ...*corev1.Secret) string {
	_, err := r.Ensure(r.t.Context(), request(fmt.Sprint("p", time.Now().UnixNano()), image, policy, secrets...))
	r.fakeImages.mu.Lock()
	pulls := len(r.pulls)
	r.pulls = nil
	r.fakeImages.mu.Unlock()
	time.Sleep(time.Second) // another pod the next time
	var failed *Error
	switch {
	case errors.As(err, &failed):
		return failed.Reason
	case err != nil:
		return err.Error()
	case pulls > 0:
		return "pulled"
	}
	return "there"
}

// An image that was pulled with one pod's credentials is not given to a pod without
// them because it is there, regardless of the pull policy; also after a restart.
func TestCredentialsAreNotShared(t *testing.T) {
	for name, restart := range map[string]bool{"at once": false, "after a restart": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				r := secured(t, dir)
				owner := pullSecret("a", "s", "1", "good")
				if got := r.ensure(private, corev1.PullIfNotPresent, owner); got != "pulled" {
					t.Fatal(got)
				}
				if restart {
					r = r.again(dir)
				}
				for _, test := range []struct {
					what    string
					image   string
					policy  corev1.PullPolicy
					secrets []*corev1.Secret
					want    string
				}{
					{"the same secret", private, corev1.PullIfNotPresent, []*corev1.Secret{owner}, "there"},
					{"the same secret, Never", private, corev1.PullNever, []*corev1.Secret{owner}, "there"},
					{"no secret", private, corev1.PullIfNotPresent, nil, "ErrImagePull"},
					{"no secret, Never", private, corev1.PullNever, nil, "ErrImageNeverPull"},
					{"no secret, Always", private, corev1.PullAlways, nil, "ErrImagePull"},
					{"a wrong secret", private, corev1.PullIfNotPresent, []*corev1.Secret{pullSecret("b", "s", "2", "bad")}, "ErrImagePull"},
					{"a wrong secret, Never", private, corev1.PullNever, []*corev1.Secret{pullSecret("b", "s", "2", "bad")}, "ErrImageNeverPull"},
					{"a secret made again under its name", private, corev1.PullNever, []*corev1.Secret{pullSecret("a", "s", "3", "bad")}, "ErrImageNeverPull"},
					{"the same credentials elsewhere", private, corev1.PullNever, []*corev1.Secret{pullSecret("c", "t", "4", "good")}, "there"},
					{"the secret with new credentials", private, corev1.PullIfNotPresent, []*corev1.Secret{pullSecret("a", "s", "1", "rotated")}, "there"},
				} {
					if got := r.ensure(test.image, test.policy, test.secrets...); got != test.want {
						t.Errorf("%s: %s, want %s", test.what, got, test.want)
					}
				}
			})
		})
	}
}

// What was pulled without credentials is everybody's, and what was there before is
// unless the policy says otherwise.
func TestWhatNeedsNoCredentials(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := secured(t, dir)
		const public = "registry.test/public:1"
		if got := r.ensure(public, corev1.PullIfNotPresent); got != "pulled" {
			t.Fatal(got)
		}
		if got := r.ensure(public, corev1.PullNever); got != "there" {
			t.Errorf("public: %s", got)
		}
		r.present["preloaded:1"] = &runtimeapi.Image{Id: "sha256:preloaded"}
		for policy, want := range map[Verification]string{
			"": "there", NeverVerify: "there", NeverVerifyPreloadedImages: "there", AlwaysVerify: "ErrImageNeverPull", NeverVerifyAllowlistedImages: "ErrImageNeverPull",
		} {
			r.Puller.opts.Verification = policy
			if got := r.ensure("preloaded:1", corev1.PullNever); got != want {
				t.Errorf("preloaded, %s: %s, want %s", policy, got, want)
			}
		}
		for allowed, want := range map[string]string{
			"docker.io/library/preloaded": "there", "docker.io/library/*": "there", "docker.io/lib/*": "ErrImageNeverPull", "docker.io/library/pre": "ErrImageNeverPull",
		} {
			r.Puller.opts.Verification, r.Puller.opts.Allowed = NeverVerifyAllowlistedImages, []string{allowed}
			if got := r.ensure("preloaded:1", corev1.PullNever); got != want {
				t.Errorf("allowed are %s: %s, want %s", allowed, got, want)
			}
		}
	})
}

// A process that is killed during a pull, or before it could record the puller, has
// made nothing free; neither has a pull that was given up, which may end well all
// the same, nor a record that cannot be read.
func TestPullsThatWereInterrupted(t *testing.T) {
	for name, interrupt := range map[string]func(r *pullRig, dir string) *pullRig{
		"killed": func(r *pullRig, dir string) *pullRig {
			if err := r.opts.Records.begin(private); err != nil {
				r.t.Fatal(err)
			}
			return r.again(dir)
		},
		"given up": func(r *pullRig, _ string) *pullRig {
			ctx, cancel := context.WithTimeout(r.t.Context(), time.Millisecond)
			defer cancel()
			_, err := r.Ensure(ctx, request("p", private, corev1.PullIfNotPresent, pullSecret("a", "s", "1", "good")))
			if !errors.Is(err, context.DeadlineExceeded) {
				r.t.Fatal(err)
			}
			synctest.Wait()
			return r
		},
		"unreadable": func(r *pullRig, dir string) *pullRig {
			if err := os.WriteFile(fileOf(filepath.Join(dir, "pulled"), "sha256:"+private), []byte("{"), 0o600); err != nil {
				r.t.Fatal(err)
			}
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				r := interrupt(secured(t, dir), dir)
				r.present[private] = &runtimeapi.Image{Id: "sha256:" + private} // the runtime has gone on
				r.pulls = nil
				if got := r.ensure(private, corev1.PullNever); got != "ErrImageNeverPull" {
					t.Errorf("Never: %s", got)
				}
				for range 2 { // a refusal does not make it free
					if got := r.ensure(private, corev1.PullIfNotPresent); got != "ErrImagePull" {
						t.Errorf("without credentials: %s", got)
					}
				}
				if got := r.ensure(private, corev1.PullIfNotPresent, pullSecret("a", "s", "1", "good")); got != "pulled" {
					t.Errorf("with credentials: %s", got)
				}
				if got := r.ensure(private, corev1.PullNever, pullSecret("a", "s", "1", "good")); got != "there" {
					t.Errorf("with credentials, Never: %s", got)
				}
			})
		})
	}
}

// A pull that fails leaves nothing behind that would have others pull what is there.
func TestAPullThatFailsLeavesNoRecord(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := secured(t, dir)
		if got := r.ensure(private, corev1.PullIfNotPresent); got != "ErrImagePull" {
			t.Fatal(got)
		}
		entries, err := os.ReadDir(filepath.Join(dir, "pulling"))
		if err != nil || len(entries) > 0 {
			t.Errorf("%v (%v)", entries, err)
		}
	})
}

// Records go with their images, but not because a runtime that restarts shows none
// for a while: the images would be free then.
func TestRecordsArePruned(t *testing.T) {
	r, err := OpenRecords(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err = r.begin("a"); err == nil {
		err = r.succeeded("a", "sha256:a", "a", access{Everyone: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour)
	known := func() bool { _, allowed, _ := r.known("a", "sha256:a", "a", nil); return allowed }
	r.Prune(nil, later)
	r.Prune(nil, later)
	r.Prune([]string{"sha256:a"}, later)
	r.Prune(nil, later)
	r.Prune(nil, later)
	if !known() {
		t.Fatal("the record has gone, though the image was there in between")
	}
	r.Prune(nil, time.Now().Add(-time.Hour)) // it was written since
	if !known() {
		t.Fatal("a newer record has gone")
	}
	for range prunedAfter {
		r.Prune(nil, later)
	}
	if known() {
		t.Error("the record of an image that has gone is still there")
	}
}
