package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fakeImages is a runtime whose pulls take a second and do what a script says.
type fakeImages struct {
	cri.ImageManagerService // what is not implemented panics

	mu       sync.Mutex
	present  map[string]*runtimeapi.Image // by name
	pulls    []string                     // image and user, as they began
	now, max int                          // pulls at a time
	gaveUp   int
	answer   func(image, user string) error
	inspect  error
	usage    []*runtimeapi.FilesystemUsage
	removes  []string
	removal  func(image string) error
}

func (f *fakeImages) ImageStatus(_ context.Context, image *runtimeapi.ImageSpec, _ bool) (*runtimeapi.ImageStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &runtimeapi.ImageStatusResponse{Image: f.present[image.Image]}, f.inspect
}

func (f *fakeImages) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	f.mu.Lock()
	f.pulls = append(f.pulls, image.Image+" "+auth.GetUsername())
	f.now++
	f.max = max(f.max, f.now)
	pull := f.answer
	f.mu.Unlock()
	var err error
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		err = ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now--
	if err != nil {
		f.gaveUp++
		return "", err
	}
	if pull != nil {
		if err := pull(image.Image, auth.GetUsername()); err != nil {
			return "", err
		}
	}
	id := "sha256:" + image.Image
	f.present[id] = &runtimeapi.Image{Id: id, Size: 42}
	f.present[image.Image] = f.present[id]
	return id, nil
}

// pullRig is a Puller in a bubble, with what happened.
type pullRig struct {
	*Puller
	*fakeImages
	t *testing.T

	eventMu sync.Mutex
	events  []string
}

func newPullRig(t *testing.T, parallel int) *pullRig {
	r := &pullRig{t: t, fakeImages: &fakeImages{present: map[string]*runtimeapi.Image{}}}
	r.Puller = NewPuller(PullerOptions{
		Images:      r.fakeImages,
		MaxParallel: parallel,
		Event: func(pod *corev1.Pod, container, eventType, reason, message string) {
			r.eventMu.Lock()
			defer r.eventMu.Unlock()
			r.events = append(r.events, fmt.Sprintf("%s/%s %s %s: %s", pod.Name, container, eventType, reason, message))
		},
	})
	t.Cleanup(r.Puller.Close)
	return r
}

func pulling(t *testing.T, parallel int, test func(r *pullRig)) {
	synctest.Test(t, func(t *testing.T) { test(newPullRig(t, parallel)) })
}

func (r *pullRig) wantEvents(want ...string) {
	r.t.Helper()
	r.eventMu.Lock()
	defer r.eventMu.Unlock()
	if !slices.Equal(r.events, want) {
		r.t.Errorf("events\n%q, want\n%q", r.events, want)
	}
	r.events = nil
}

func (r *pullRig) pulled(want ...string) {
	r.t.Helper()
	r.fakeImages.mu.Lock()
	defer r.fakeImages.mu.Unlock()
	if !slices.Equal(r.pulls, want) {
		r.t.Errorf("pulls %q, want %q", r.pulls, want)
	}
	r.pulls = nil
}

func request(pod, image string, policy corev1.PullPolicy, secrets ...*corev1.Secret) Request {
	return Request{
		Pod:       &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod, UID: types.UID(pod)}},
		Container: "c", Image: image, Policy: policy, Secrets: secrets,
	}
}

// wantError checks an Error, and how long after now it asks to be called again.
func wantError(t *testing.T, err error, reason, message string, after time.Duration) {
	t.Helper()
	var failed *Error
	if !errors.As(err, &failed) {
		t.Fatalf("%v is no Error", err)
	}
	if failed.Reason != reason || failed.Message != message || time.Until(failed.RetryAt) != after {
		t.Errorf("%s: %s, again in %v", failed.Reason, failed.Message, time.Until(failed.RetryAt))
	}
}

func TestPolicies(t *testing.T) {
	const (
		there   = `p/c Normal Pulled: Container image "nginx" already present on machine and can be accessed by the pod`
		there1  = `p/c Normal Pulled: Container image "nginx:1" already present on machine and can be accessed by the pod`
		pulls   = `p/c Normal Pulling: Pulling image "nginx"`
		pulls1  = `p/c Normal Pulling: Pulling image "nginx:1"`
		pulled  = `p/c Normal Pulled: Successfully pulled image "nginx" in 1s (1s including waiting). Image size: 42 bytes.`
		pulled1 = `p/c Normal Pulled: Successfully pulled image "nginx:1" in 1s (1s including waiting). Image size: 42 bytes.`
	)
	for name, test := range map[string]struct {
		image   string
		policy  corev1.PullPolicy
		present bool
		events  []string
	}{
		"Always":         {"nginx", corev1.PullAlways, true, []string{pulls, pulled}},
		"IfNotPresent":   {"nginx", corev1.PullIfNotPresent, true, []string{there}},
		"absent":         {"nginx", corev1.PullIfNotPresent, false, []string{pulls, pulled}},
		"Never":          {"nginx", corev1.PullNever, true, []string{there}},
		"latest":         {"nginx", "", true, []string{pulls, pulled}},
		"tagged":         {"nginx:1", "", true, []string{there1}},
		"tagged, absent": {"nginx:1", "", false, []string{pulls1, pulled1}},
	} {
		t.Run(name, func(t *testing.T) {
			pulling(t, 0, func(r *pullRig) {
				full := test.image
				if full == "nginx" {
					full = "nginx:latest"
				}
				if test.present {
					r.present[full] = &runtimeapi.Image{Id: "sha256:" + full}
				}
				got, err := r.Ensure(r.t.Context(), request("p", test.image, test.policy))
				if err != nil || got.Ref != "sha256:"+full || got.Status.Id != got.Ref {
					t.Error(got, err)
				}
				r.wantEvents(test.events...)
			})
		})
	}
}

func TestErrorsWithoutPull(t *testing.T) {
	pulling(t, 0, func(r *pullRig) {
		_, err := r.Ensure(r.t.Context(), request("p", "nginx", corev1.PullNever))
		wantError(t, err, "ErrImageNeverPull", `Container image "nginx" is not present with pull policy of Never`, 10*time.Second)
		r.wantEvents(`p/c Warning ErrImageNeverPull: Container image "nginx" is not present with pull policy of Never`,
			"p/c Warning Failed: Error: ErrImageNeverPull")

		_, err = r.Ensure(r.t.Context(), request("p", "a b", ""))
		text := `Failed to apply default image tag "a b": couldn't parse image name "a b": invalid reference format`
		wantError(t, err, "InvalidImageName", text, 10*time.Second)
		r.wantEvents("p/c Warning InspectFailed: "+text, "p/c Warning Failed: Error: InvalidImageName")

		r.inspect = errors.New("no runtime")
		_, err = r.Ensure(r.t.Context(), request("p", "nginx:1", ""))
		text = `Failed to inspect image "nginx:1": no runtime`
		wantError(t, err, "ImageInspectError", text, 10*time.Second)
		r.wantEvents("p/c Warning InspectFailed: "+text, "p/c Warning Failed: Error: ImageInspectError")
		if !errors.Is(err, r.inspect) || err.Error() != "ImageInspectError: "+text {
			t.Error(err)
		}
		r.pulled()
	})
}

func TestBackOff(t *testing.T) {
	pulling(t, 0, func(r *pullRig) {
		broken := errors.New("rpc error: code = NotFound desc = no such image")
		r.answer = func(string, string) error { return broken }
		asked := request("p", "nginx", corev1.PullAlways)
		for _, delay := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
			delay *= time.Second
			begin := time.Now()
			_, err := r.Ensure(r.t.Context(), asked)
			wantError(t, err, "ErrImagePull", broken.Error(), min(delay/2, 10*time.Second))
			failed := time.Now()
			if failed.Sub(begin) != time.Second {
				t.Error("it was put off")
			}
			r.wantEvents(`p/c Normal Pulling: Pulling image "nginx"`, `p/c Warning Failed: Failed to pull image "nginx": `+broken.Error(),
				"p/c Warning Failed: Error: ErrImagePull")
			r.pulled("nginx:latest ")

			time.Sleep(delay / 2)
			_, err = r.Ensure(r.t.Context(), asked)
			wantError(t, err, "ImagePullBackOff", `Back-off pulling image "nginx": ErrImagePull: `+broken.Error(), delay/2)
			r.wantEvents(`p/c Normal BackOff: Back-off pulling image "nginx"`, "p/c Warning Failed: Error: ImagePullBackOff")
			time.Sleep(delay / 2)
		}
		r.pulled()

		// Another pod and another image are not concerned.
		for _, other := range []Request{request("q", "nginx", corev1.PullAlways), request("p", "busybox", corev1.PullAlways)} {
			_, err := r.Ensure(r.t.Context(), other)
			wantError(t, err, "ErrImagePull", broken.Error(), 5*time.Second)
		}
		// Nor is the pod itself after a success,
		r.answer = nil
		if _, err := r.Ensure(r.t.Context(), asked); err != nil {
			t.Fatal(err)
		}
		r.answer = func(string, string) error { return broken }
		_, err := r.Ensure(r.t.Context(), asked)
		wantError(t, err, "ErrImagePull", broken.Error(), 5*time.Second)
		// a long time,
		time.Sleep(10*time.Second + forgetAfter)
		_, err = r.Ensure(r.t.Context(), asked)
		wantError(t, err, "ErrImagePull", broken.Error(), 5*time.Second)
		// or once it is forgotten.
		r.Forget("p")
		_, err = r.Ensure(r.t.Context(), asked)
		wantError(t, err, "ErrImagePull", broken.Error(), 5*time.Second)
	})
}

func TestErrorsOfTheRuntime(t *testing.T) {
	for text, want := range map[string][2]string{
		"RegistryUnavailable: 503":             {"RegistryUnavailable", "image pull failed for nginx because the registry is unavailable: 503"},
		"SignatureValidationFailed: who knows": {"SignatureValidationFailed", "image pull failed for nginx because the signature validation failed: who knows"},
	} {
		pulling(t, 0, func(r *pullRig) {
			r.answer = func(string, string) error { return errors.New(text) }
			_, err := r.Ensure(r.t.Context(), request("p", "nginx", corev1.PullAlways))
			wantError(t, err, want[0], want[1], 5*time.Second)
		})
	}
}

func TestCredentialsAreTriedInTurn(t *testing.T) {
	pulling(t, 0, func(r *pullRig) {
		accepted := ""
		r.answer = func(_, user string) error {
			if user != accepted {
				return errors.New(user + " is denied")
			}
			return nil
		}
		secret := secretFor("r.io", "r.io/team", "other.io")
		if _, err := r.Ensure(r.t.Context(), request("p", "r.io/team/app:1", corev1.PullAlways, secret)); err != nil {
			t.Error(err)
		}
		r.pulled("r.io/team/app:1 r.io/team", "r.io/team/app:1 r.io", "r.io/team/app:1 ")
		accepted = "r.io"
		if _, err := r.Ensure(r.t.Context(), request("p", "r.io/team/app:1", corev1.PullAlways, secret)); err != nil {
			t.Error(err)
		}
		r.pulled("r.io/team/app:1 r.io/team", "r.io/team/app:1 r.io")
		accepted = "nobody"
		_, err := r.Ensure(r.t.Context(), request("p", "r.io/team/app:1", corev1.PullAlways, secret))
		wantError(t, err, "ErrImagePull", "[r.io/team is denied, r.io is denied]", 5*time.Second)
	})
}

func TestOnePullForMany(t *testing.T) {
	pulling(t, -1, func(r *pullRig) {
		var group sync.WaitGroup
		for i := range 10 {
			group.Go(func() {
				time.Sleep(time.Duration(i) * 50 * time.Millisecond)
				if got, err := r.Ensure(r.t.Context(), request("p", "nginx", corev1.PullAlways)); err != nil || got.Status.Size != 42 {
					t.Error(got, err)
				}
			})
		}
		group.Go(func() { // with credentials of its own, hence a pull of its own
			if _, err := r.Ensure(r.t.Context(), request("q", "nginx", corev1.PullAlways, secretFor("docker.io"))); err != nil {
				t.Error(err)
			}
		})
		group.Wait()
		slices.Sort(r.pulls)
		r.pulled("nginx:latest ", "nginx:latest docker.io")
		want := `p/c Normal Pulled: Successfully pulled image "nginx" in 1s (550ms including waiting). Image size: 42 bytes.`
		if !slices.Contains(r.events, want) {
			t.Errorf("%q", r.events)
		}
	})
}

func TestParallelPulls(t *testing.T) {
	for limit, want := range map[int]struct {
		max  int
		took time.Duration
	}{0: {1, 6 * time.Second}, 2: {2, 3 * time.Second}, -1: {6, time.Second}} {
		pulling(t, limit, func(r *pullRig) {
			begin := time.Now()
			var group sync.WaitGroup
			for i := range 6 {
				group.Go(func() {
					if _, err := r.Ensure(r.t.Context(), request("p", fmt.Sprint("image", i), corev1.PullAlways)); err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
			if r.max != want.max || time.Since(begin) != want.took {
				t.Errorf("limit %d: %d at once, took %v", limit, r.max, time.Since(begin))
			}
		})
	}
}

// A caller that does not wait any more gives the pull up for nobody else.
func TestGiveUp(t *testing.T) {
	pulling(t, 0, func(r *pullRig) {
		ensure := func(patience time.Duration) error {
			ctx, cancel := context.WithTimeout(r.t.Context(), patience)
			defer cancel()
			_, err := r.Ensure(ctx, request("p", "nginx", corev1.PullAlways))
			return err
		}
		var group sync.WaitGroup
		for _, patience := range []time.Duration{500 * time.Millisecond, time.Hour} {
			group.Go(func() {
				begin := time.Now()
				if err := ensure(patience); patience < time.Minute && (!errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != patience) ||
					patience > time.Minute && err != nil {
					t.Error(patience, err)
				}
			})
		}
		group.Wait()
		r.pulled("nginx:latest ")

		// Nobody waits: the pull ends, and counts for nothing.
		if err := ensure(500 * time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		synctest.Wait()
		if r.gaveUp != 1 {
			t.Error("the pull goes on")
		}
		if err := ensure(time.Hour); err != nil {
			t.Error(err)
		}
		r.pulled("nginx:latest ", "nginx:latest ")
	})
}

// One that waits for its turn and is given up does not take it.
func TestGiveUpInTheQueue(t *testing.T) {
	pulling(t, 1, func(r *pullRig) {
		var group sync.WaitGroup
		group.Go(func() { _, _ = r.Ensure(r.t.Context(), request("p", "first", corev1.PullAlways)) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(r.t.Context(), time.Millisecond)
		defer cancel()
		if _, err := r.Ensure(ctx, request("p", "second", corev1.PullAlways)); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		group.Wait()
		r.pulled("first:latest ")
	})
}

func TestClosePuller(t *testing.T) {
	pulling(t, 0, func(r *pullRig) {
		done := make(chan error)
		go func() {
			_, err := r.Ensure(r.t.Context(), request("p", "nginx", corev1.PullAlways))
			done <- err
		}()
		synctest.Wait()
		go r.Puller.Close()
		if err := <-done; !errors.Is(err, errClosed) {
			t.Error(err)
		}
		if _, err := r.Ensure(r.t.Context(), request("p", "nginx", corev1.PullAlways)); !errors.Is(err, errClosed) {
			t.Error(err)
		}
		for _, event := range r.events {
			if event != `p/c Normal Pulling: Pulling image "nginx"` {
				t.Error(event)
			}
		}
	})
}

func TestImageVolume(t *testing.T) {
	pod := request("p", "", "").Pod
	if _, ok := ForVolume(pod, &corev1.Volume{}, nil, nil); ok {
		t.Error("no image volume")
	}
	volume := &corev1.Volume{VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "r.io/data:1", PullPolicy: corev1.PullNever}}}
	asked, ok := ForVolume(pod, volume, nil, nil)
	if !ok {
		t.Fatal("an image volume")
	}
	pulling(t, 0, func(r *pullRig) {
		_, err := r.Ensure(r.t.Context(), asked)
		wantError(t, err, "ErrImageNeverPull", `Container image "r.io/data:1" is not present with pull policy of Never`, 10*time.Second)
		r.wantEvents(`p/ Warning ErrImageNeverPull: Container image "r.io/data:1" is not present with pull policy of Never`)
	})
}

func TestForContainer(t *testing.T) {
	pod := request("p", "", "").Pod
	asked := ForContainer(pod, &corev1.Container{Name: "c", Image: "nginx", ImagePullPolicy: corev1.PullAlways}, nil, nil)
	if asked.Pod != pod || asked.Container != "c" || asked.Image != "nginx" || asked.Policy != corev1.PullAlways {
		t.Error(asked)
	}
}
