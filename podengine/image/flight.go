package image

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"sync"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// errClosed is for callers that wait for a pull when the Puller ends.
var errClosed = errors.New("no images are pulled any more: the node is shutting down")

// order is what is to be pulled. Equal orders share one pull.
type order struct {
	Spec        *runtimeapi.ImageSpec
	Repository  string
	Credentials []*runtimeapi.AuthConfig
	Secrets     [][]secretRef // of each of the credentials
}

func orderOf(spec *runtimeapi.ImageSpec, repository string, credentials []credential) order {
	o := order{Spec: spec, Repository: repository}
	for _, c := range credentials {
		o.Credentials, o.Secrets = append(o.Credentials, c.auth), append(o.Secrets, c.secrets)
	}
	return o
}

// id is equal for equal orders. It is a hash, for it lives longer than secrets
// should.
func (o order) id() ([sha256.Size]byte, error) {
	text, err := json.Marshal(o) // which sorts annotations
	return sha256.Sum256(text), err
}

// flights are the pulls that are being made.
type flights struct {
	images  cri.ImageManagerService
	records *Records      // nil if there are none
	slots   chan struct{} // nil if there is no limit

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	flights map[[sha256.Size]byte]*flight
}

// flight is a pull for all callers that wait for it.
type flight struct {
	waiting int // guarded by flights.mu
	cancel  context.CancelFunc
	done    chan struct{} // closed once the rest is set

	image Image
	took  time.Duration
	err   error
}

func newFlights(images cri.ImageManagerService, limit int, records *Records) *flights {
	f := &flights{images: images, records: records, flights: map[[sha256.Size]byte]*flight{}}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	if limit > 0 {
		f.slots = make(chan struct{}, limit)
	}
	return f
}

// join waits for a pull of what is ordered, or begins it. When ctx ends, it
// returns; the pull goes on as long as others wait for it.
func (f *flights) join(ctx context.Context, o order, sandbox *runtimeapi.PodSandboxConfig) (Image, time.Duration, error) {
	id, err := o.id()
	if err != nil {
		return Image{}, 0, err
	}
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return Image{}, 0, errClosed
	}
	pull := f.flights[id]
	if pull == nil {
		// The values of ctx, above all the logger, are those of the first caller.
		flightCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		pull = &flight{cancel: cancel, done: make(chan struct{})}
		f.flights[id] = pull
		stop := context.AfterFunc(f.ctx, cancel)
		f.running.Go(func() {
			defer stop()
			f.run(flightCtx, pull, o, sandbox)
			f.leave(id, pull, true)
		})
	}
	pull.waiting++
	f.mu.Unlock()
	defer f.leave(id, pull, false)

	select {
	case <-pull.done:
		if f.ctx.Err() != nil {
			return Image{}, 0, errClosed
		}
		return pull.image, pull.took, pull.err
	case <-ctx.Done():
		return Image{}, 0, ctx.Err()
	case <-f.ctx.Done():
		return Image{}, 0, errClosed
	}
}

// leave ends a pull that is done, or that nobody waits for any more: the next
// caller begins another.
func (f *flights) leave(id [sha256.Size]byte, pull *flight, done bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !done {
		pull.waiting--
	}
	if done || pull.waiting == 0 {
		pull.cancel()
		if f.flights[id] == pull {
			delete(f.flights, id)
		}
	}
}

// run pulls as soon as there is a free slot.
func (f *flights) run(ctx context.Context, pull *flight, o order, sandbox *runtimeapi.PodSandboxConfig) {
	defer close(pull.done)
	if f.slots != nil {
		select {
		case f.slots <- struct{}{}:
			defer func() { <-f.slots }()
		case <-ctx.Done():
			pull.err = ctx.Err()
			return
		}
	}
	begin := time.Now()
	pull.image, pull.err = f.recorded(ctx, o, sandbox)
	pull.took = time.Since(begin)
}

// recorded pulls, and records with which credentials.
func (f *flights) recorded(ctx context.Context, o order, sandbox *runtimeapi.PodSandboxConfig) (Image, error) {
	if f.records == nil {
		image, _, err := f.pull(ctx, o, sandbox)
		return image, err
	}
	if err := f.records.begin(o.Spec.Image); err != nil {
		return Image{}, err
	}
	image, by, err := f.pull(ctx, o, sandbox)
	if err != nil {
		f.records.failed(o.Spec.Image, ctx.Err() != nil) // a pull that was given up may end well
		return Image{}, err
	}
	who := access{Everyone: by == len(o.Credentials)}
	if !who.Everyone {
		who.Secrets = o.Secrets[by]
	}
	if err := f.records.succeeded(o.Spec.Image, cmp.Or(image.Status.Id, image.Ref), o.Repository, who); err != nil {
		log.G(ctx).WithError(err).Warn("Cannot record with which credentials an image was pulled: pods pull it again")
	}
	return image, nil
}

// pull tries all credentials, then none. It returns which was the right one.
func (f *flights) pull(ctx context.Context, o order, sandbox *runtimeapi.PodSandboxConfig) (image Image, by int, err error) {
	var errs []error
	for i, credentials := range append(o.Credentials[:len(o.Credentials):len(o.Credentials)], nil) {
		ref, err := f.images.PullImage(ctx, o.Spec, credentials, sandbox)
		if err == nil {
			return Image{Ref: ref, Status: f.status(ctx, o.Spec, ref)}, i, nil
		}
		if ctx.Err() != nil {
			return Image{}, 0, ctx.Err()
		}
		if credentials != nil || len(errs) == 0 {
			errs = append(errs, err) // without credentials it was only a try
		}
	}
	return Image{}, 0, utilerrors.NewAggregate(errs)
}

// status describes an image that was pulled, as well as the runtime can.
func (f *flights) status(ctx context.Context, spec *runtimeapi.ImageSpec, ref string) *runtimeapi.Image {
	for _, image := range []string{ref, spec.Image} {
		asked := &runtimeapi.ImageSpec{Image: image, Annotations: spec.Annotations, RuntimeHandler: spec.RuntimeHandler}
		if answer, err := f.images.ImageStatus(ctx, asked, false); err == nil && answer.GetImage() != nil {
			return answer.Image
		}
	}
	return &runtimeapi.Image{Id: ref, Spec: spec}
}

func (f *flights) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.cancel()
	f.running.Wait()
}
