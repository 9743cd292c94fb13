package image

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// PullerOptions are what a Puller works with. Only Images is needed.
type PullerOptions struct {
	// Images is the runtime.
	Images cri.ImageManagerService
	// MaxParallel is how many images are pulled at once. Defaults to 1, as a
	// kubelet's; there is no limit if it is negative.
	MaxParallel int
	// Event records an event about a container of a pod, or about the pod if
	// the container's name is empty. It should return soon.
	Event func(pod *corev1.Pod, container, eventType, reason, message string)
	// Records are those of earlier pulls. Without them, an image that is there is
	// given to every pod.
	Records *Records
	// Verification says which images need them. Defaults to
	// NeverVerifyPreloadedImages. Allowed are the images that
	// NeverVerifyAllowlistedImages leaves out: REGISTRY/PATH, or REGISTRY/PATH/*.
	Verification Verification
	Allowed      []string
}

// Puller gets images. Its methods are safe for concurrent use.
type Puller struct {
	opts    PullerOptions
	flights *flights
	backOff backOff
}

// NewPuller makes a Puller. End it with Close.
func NewPuller(opts PullerOptions) *Puller {
	if opts.MaxParallel == 0 {
		opts.MaxParallel = 1
	}
	return &Puller{opts: opts, flights: newFlights(opts.Images, opts.MaxParallel, opts.Records)}
}

// Request is an image that a pod needs.
type Request struct {
	Pod *corev1.Pod
	// Container is for whom the image is. It is empty for image volumes.
	Container string
	// Image is its name as in the pod's spec.
	Image string
	// Policy says when to pull. Defaults to Always if the tag is latest or
	// there is neither tag nor digest, and to IfNotPresent otherwise.
	Policy corev1.PullPolicy
	// Secrets are the pod's pull secrets, as far as they exist.
	Secrets []*corev1.Secret
	// Sandbox is the configuration of the pod's sandbox. The runtime may need
	// it to pull; when pods share a pull, it gets that of the first.
	Sandbox *runtimeapi.PodSandboxConfig
	// RuntimeHandler is that of the pod's runtime class. Defaults to the
	// runtime's default.
	RuntimeHandler string
}

// ForContainer returns the request for the image of a container.
func ForContainer(pod *corev1.Pod, container *corev1.Container, secrets []*corev1.Secret, sandbox *runtimeapi.PodSandboxConfig) Request {
	return Request{
		Pod: pod, Container: container.Name, Image: container.Image, Policy: container.ImagePullPolicy,
		Secrets: secrets, Sandbox: sandbox,
	}
}

// ForVolume returns the request for an image volume; ok is false if the volume
// is another kind.
func ForVolume(pod *corev1.Pod, volume *corev1.Volume, secrets []*corev1.Secret, sandbox *runtimeapi.PodSandboxConfig) (r Request, ok bool) {
	if volume.Image == nil {
		return Request{}, false
	}
	return Request{
		Pod: pod, Image: volume.Image.Reference, Policy: volume.Image.PullPolicy,
		Secrets: secrets, Sandbox: sandbox,
	}, true
}

// Image is an image that the runtime has.
type Image struct {
	// Ref is the runtime's name of it, to make containers from.
	Ref string
	// Status describes it. It is never nil.
	Status *runtimeapi.Image
}

// Ensure returns the image once the runtime has it. It pulls if the policy says
// so, together with other callers that ask for the same with the same credentials, and
// when its turn has come. If the last pull for the pod failed a short while ago,
// it fails at once.
//
// The error is ctx's if that ends meanwhile: then this request is given up, and
// the pull too unless others wait for it. Any other is an *Error, of which an
// event was recorded, but for that of a Puller that is closed. An image that is there
// is given only to pods that could pull it: see PullerOptions.Records.
func (p *Puller) Ensure(ctx context.Context, r Request) (Image, error) {
	image, err := p.ensure(ctx, r)
	if err == nil {
		p.backOff.clear(r.Pod.UID, r.Image)
		return image, nil
	}
	if ctx.Err() != nil {
		return Image{}, ctx.Err()
	}
	var failed *Error
	if !errors.As(err, &failed) {
		return Image{}, err
	}
	if r.Container != "" {
		p.event(r, corev1.EventTypeWarning, ReasonFailed, "Error: "+failed.Reason)
	}
	return Image{}, failed
}

func (p *Puller) ensure(ctx context.Context, r Request) (Image, error) {
	n, err := parse(r.Image)
	if err != nil {
		message := fmt.Sprintf("Failed to apply default image tag %q: %v", r.Image, err)
		return Image{}, p.fail(r, ErrInvalidImageName, ReasonInspectFailed, message, err)
	}
	spec := &runtimeapi.ImageSpec{
		Image: n.full, UserSpecifiedImage: r.Image, Annotations: r.Pod.Annotations, RuntimeHandler: r.RuntimeHandler,
	}
	policy := n.policy(r.Policy)
	if policy != corev1.PullAlways {
		answer, err := p.opts.Images.ImageStatus(ctx, spec, false)
		switch {
		case ctx.Err() != nil:
			return Image{}, ctx.Err()
		case err != nil:
			message := fmt.Sprintf("Failed to inspect image %q: %v", r.Image, err)
			return Image{}, p.fail(r, ErrImageInspect, ReasonInspectFailed, message, err)
		case answer.GetImage() != nil && p.mayHave(ctx, r, n, answer.Image.Id):
			message := fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", r.Image)
			p.event(r, corev1.EventTypeNormal, ReasonPulled, message)
			return Image{Ref: answer.Image.Id, Status: answer.Image}, nil
		case policy == corev1.PullNever:
			message := fmt.Sprintf("Container image %q is not present with pull policy of Never", r.Image)
			return Image{}, p.fail(r, ErrImageNeverPull, ReasonErrImageNeverPull, message, nil)
		}
	}
	if err := p.mayPull(r); err != nil {
		return Image{}, err
	}
	return p.pull(ctx, r, spec, n.repository)
}

// mayHave reports whether the pod may have an image that is there without a pull.
func (p *Puller) mayHave(ctx context.Context, r Request, n name, id string) bool {
	if p.opts.Records == nil || p.opts.Verification == NeverVerify {
		return true
	}
	var secrets []secretRef
	ring, _ := NewKeyring(r.Secrets) // what it cannot read grants nothing
	for _, c := range ring.credentials(n.repository) {
		secrets = append(secrets, c.secrets...)
	}
	ours, allowed, err := p.opts.Records.known(n.full, id, n.repository, secrets)
	if err != nil {
		log.G(ctx).WithError(err).Warn("A record of a pulled image cannot be read: the image is pulled again")
	}
	return allowed || !p.opts.Verification.needed(n.repository, ours, p.opts.Allowed)
}

// fail makes an Error that has nothing to do with a pull, and its event.
func (p *Puller) fail(r Request, reason, eventReason, message string, err error) error {
	p.event(r, corev1.EventTypeWarning, eventReason, message)
	return &Error{Reason: reason, Message: message, RetryAt: time.Now().Add(baseDelay), err: err}
}

// mayPull fails while pulls of the image are put off for the pod.
func (p *Puller) mayPull(r Request) error {
	now := time.Now()
	last, ok := p.backOff.get(r.Pod.UID, r.Image, now)
	if !ok || !now.Before(last.until) {
		return nil
	}
	message := fmt.Sprintf("Back-off pulling image %q", r.Image)
	p.event(r, corev1.EventTypeNormal, ReasonBackOff, message)
	return &Error{Reason: ErrImagePullBackOff, Message: message + ": " + last.text, RetryAt: last.until}
}

func (p *Puller) pull(ctx context.Context, r Request, spec *runtimeapi.ImageSpec, repository string) (Image, error) {
	ring, err := NewKeyring(r.Secrets)
	if err != nil { // the others may do
		log.G(ctx).WithError(err).Warn("Some image pull secrets cannot be used")
	}
	begin := time.Now()
	p.event(r, corev1.EventTypeNormal, ReasonPulling, fmt.Sprintf("Pulling image %q", r.Image))
	credentials := ring.credentials(repository)
	image, took, err := p.flights.join(ctx, orderOf(spec, repository, credentials), r.Sandbox)
	switch {
	case ctx.Err() != nil:
		return Image{}, ctx.Err()
	case errors.Is(err, errClosed):
		return Image{}, err
	case err != nil:
		return Image{}, p.pullFailed(r, err)
	}
	p.event(r, corev1.EventTypeNormal, ReasonPulled, fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
		r.Image, took.Truncate(time.Millisecond), time.Since(begin).Truncate(time.Millisecond), image.Status.Size))
	return image, nil
}

// pullFailed counts a failed pull. It has the image asked for again before the
// delay has passed: the state is ErrImagePull for half of it, and then
// ImagePullBackOff, so that both can be seen, as with a kubelet.
func (p *Puller) pullFailed(r Request, err error) error {
	p.event(r, corev1.EventTypeWarning, ReasonFailed, fmt.Sprintf("Failed to pull image %q: %v", r.Image, err))
	reason, message := explain(r.Image, err)
	now := time.Now()
	last := p.backOff.add(r.Pod.UID, r.Image, reason+": "+message, now)
	return &Error{Reason: reason, Message: message, RetryAt: now.Add(min(last.delay/2, baseDelay)), err: err}
}

// explain puts a failed pull into the words of the container's state. The CRI
// has two errors which its text names.
func explain(image string, err error) (reason, message string) {
	text := err.Error()
	if rest, ok := strings.CutPrefix(text, ErrRegistryUnavailable); ok {
		return ErrRegistryUnavailable, fmt.Sprintf("image pull failed for %s because the registry is unavailable%s", image, rest)
	}
	if rest, ok := strings.CutPrefix(text, ErrSignatureValidationFailed); ok {
		return ErrSignatureValidationFailed, fmt.Sprintf("image pull failed for %s because the signature validation failed%s", image, rest)
	}
	return ErrImagePull, text
}

func (p *Puller) event(r Request, eventType, reason, message string) {
	if p.opts.Event != nil {
		p.opts.Event(r.Pod, r.Container, eventType, reason, message)
	}
}

// Forget drops what is remembered of a pod.
func (p *Puller) Forget(uid types.UID) { p.backOff.forget(uid) }

// Close gives up all pulls and waits for them to end. Callers that wait for one, or
// come later, get an error.
func (p *Puller) Close() { p.flights.close() }
