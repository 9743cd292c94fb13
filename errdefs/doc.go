// Package errdefs says what kind of failure an error is, so that the code that
// sees it last (a retry loop, an HTTP handler, a metric, a pod's status) can
// react without knowing its origin.
//
// A provider wraps its errors with AsNotFound, AsUnavailable and so on, or
// makes them with NotFound, InvalidInputf and the like; anybody further up asks
// with IsNotFound, or with ClassOf and Describe for the whole reaction. The
// questions see through fmt.Errorf's %w, through errors.Join, and through the
// errors of the Kubernetes API (k8s.io/apimachinery/pkg/api/errors). Of two marks around
// each other the outermost is the class; the Is functions answer to both, but
// IsOnlyNotFound.
//
// What each class means is written once, in the table behind Describe.
package errdefs
