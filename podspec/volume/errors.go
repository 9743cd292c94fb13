package volume

import (
	"errors"
	"fmt"
	"strings"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// SetUpError is why a volume could not be set up, in the words that users know
// from the kubelet's events of reason FailedMount.
type SetUpError struct {
	// Volume is the name of the volume in the pod.
	Volume string
	// Err is the reason. It is permanent (errdefs.IsPermanent) if trying again
	// cannot help.
	Err error
}

// Error says which volume it is, and why.
func (e *SetUpError) Error() string {
	if affinity, ok := errors.AsType[*affinityError](e.Err); ok {
		return affinity.Error()
	}
	return fmt.Sprintf("MountVolume.SetUp failed for volume %q : %v", e.Volume, e.Err)
}

// Unwrap returns the reason.
func (e *SetUpError) Unwrap() error { return e.Err }

// affinityError is why a PersistentVolume is not for this node, in the kubelet's words.
type affinityError struct {
	volume string // the PersistentVolume
	err    error
}

func (e *affinityError) Error() string {
	return fmt.Sprintf("MountVolume.NodeAffinity check failed for volume %q : %v", e.volume, e.err)
}

func (e *affinityError) Unwrap() error { return e.err }

// Failures are the volumes of a pod that could not be set up. As an error it has
// the class of the gravest; Prepare and Refresh return no other kind of error.
type Failures []*SetUpError

// Error names all of them.
func (f Failures) Error() string { return strings.Join(texts(f), "; ") }

// Unwrap returns each.
func (f Failures) Unwrap() []error {
	errs := make([]error, len(f))
	for i, e := range f {
		errs[i] = e
	}
	return errs
}

// err returns f, or nil where nothing failed.
func (f Failures) err() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

// joined is errors.Join for messages of one line, as those of events are.
type joined []error

func (j joined) Error() string   { return strings.Join(texts(j), "; ") }
func (j joined) Unwrap() []error { return j }

func join(errs []error) error {
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return joined(errs)
}

func texts[E error](errs []E) []string {
	list := make([]string, len(errs))
	for i, err := range errs {
		list[i] = err.Error()
	}
	return list
}

// aside is err, without the class NotFound: it is not the pod that was not found,
// but something that it names.
func aside(err error) error {
	if errdefs.IsNotFound(err) {
		return errors.New(err.Error())
	}
	return err
}

// permanentf makes an error that no retry cures.
func permanentf(format string, args ...any) error {
	return errdefs.AsPermanent(fmt.Errorf(format, args...))
}
