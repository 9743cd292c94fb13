package image

import "time"

// The reasons of an Error, which are those of containers that wait.
const (
	ErrImagePull        = "ErrImagePull"
	ErrImagePullBackOff = "ImagePullBackOff"
	ErrImageNeverPull   = "ErrImageNeverPull"
	ErrInvalidImageName = "InvalidImageName"
	ErrImageInspect     = "ImageInspectError"
	// ErrRegistryUnavailable and ErrSignatureValidationFailed are failed pulls
	// for which the runtime has named this reason.
	ErrRegistryUnavailable       = "RegistryUnavailable"
	ErrSignatureValidationFailed = "SignatureValidationFailed"
)

// Error is why an image is not there.
type Error struct {
	// Reason and Message are those of the container's state waiting.
	Reason, Message string
	// RetryAt is when to ask for the image again.
	RetryAt time.Time

	err error
}

func (e *Error) Error() string { return e.Reason + ": " + e.Message }

// Unwrap returns the runtime's error, if it is of the runtime.
func (e *Error) Unwrap() error { return e.err }
