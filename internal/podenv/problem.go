package podenv

import (
	"fmt"
	"strings"
)

// The reasons of Problems, which are those of the events on the pod.
const (
	// ReasonOptionalConfigMapNotFound: a ConfigMap that need not exist does not.
	ReasonOptionalConfigMapNotFound = "OptionalConfigMapNotFound"
	// ReasonOptionalConfigMapKeyNotFound: it exists, but has no such key.
	ReasonOptionalConfigMapKeyNotFound = "OptionalConfigMapKeyNotFound"
	// ReasonFailedToReadOptionalConfigMap: whether it exists is not known; the pod waits
	// until it is.
	ReasonFailedToReadOptionalConfigMap = "FailedToReadOptionalConfigMap"

	// ReasonOptionalSecretNotFound: a Secret that need not exist does not.
	ReasonOptionalSecretNotFound = "OptionalSecretNotFound"
	// ReasonOptionalSecretKeyNotFound: it exists, but has no such key.
	ReasonOptionalSecretKeyNotFound = "OptionalSecretKeyNotFound"
	// ReasonFailedToReadOptionalSecret: whether it exists is not known; the pod waits
	// until it is.
	ReasonFailedToReadOptionalSecret = "FailedToReadOptionalSecret"

	// ReasonMandatoryConfigMapNotFound: a ConfigMap that has to exist does not.
	ReasonMandatoryConfigMapNotFound = "MandatoryConfigMapNotFound"
	// ReasonMandatoryConfigMapKeyNotFound: it exists, but has no such key.
	ReasonMandatoryConfigMapKeyNotFound = "MandatoryConfigMapKeyNotFound"
	// ReasonFailedToReadMandatoryConfigMap: it could not be read.
	ReasonFailedToReadMandatoryConfigMap = "FailedToReadMandatoryConfigMap"

	// ReasonMandatorySecretNotFound: a Secret that has to exist does not.
	ReasonMandatorySecretNotFound = "MandatorySecretNotFound"
	// ReasonMandatorySecretKeyNotFound: it exists, but has no such key.
	ReasonMandatorySecretKeyNotFound = "MandatorySecretKeyNotFound"
	// ReasonFailedToReadMandatorySecret: it could not be read.
	ReasonFailedToReadMandatorySecret = "FailedToReadMandatorySecret"

	// ReasonInvalidEnvironmentVariableNames: keys of an envFrom source were
	// left out, because no variable can be named so.
	ReasonInvalidEnvironmentVariableNames = "InvalidEnvironmentVariableNames"

	// ReasonFailedToReadServices: the services of a namespace, of which a pod
	// gets variables, could not be read.
	ReasonFailedToReadServices = "FailedToReadServices"
	// ReasonInvalidEnvironmentVariableSource: a fieldRef or resourceFieldRef
	// names something that there is not.
	ReasonInvalidEnvironmentVariableSource = "InvalidEnvironmentVariableSource"
)

// Object names the object that a Problem is about.
type Object struct{ Kind, Namespace, Name string }

// Problem is one thing that a person must know about a pod's environment.
type Problem struct {
	// Reason is the reason of the event.
	Reason string
	// Message says what is the matter, without a value of any secret.
	Message string
	// Fatal is true if the pod cannot be created until it is cured.
	Fatal bool
	// Object is what the problem is about, if it is about an object.
	Object Object
}

// fatalError is the error of all fatal problems of a pod.
type fatalError struct {
	pod      string
	problems []string
	causes   []error
}

func (e *fatalError) Error() string {
	return fmt.Sprintf("resolve the environment of pod %q: %s", e.pod, strings.Join(e.problems, "; "))
}

// Unwrap returns the errors of reading objects: their classes say how soon to
// try again. An object that does not exist is not among them: it is not the
// pod that was not found.
func (e *fatalError) Unwrap() []error { return e.causes }

// report notes a problem, once, however many containers have it.
func (r *resolver) report(p Problem, cause error) {
	if r.reported[p] {
		return
	}
	r.reported[p] = true
	r.problems = append(r.problems, p)
	if !p.Fatal {
		return
	}
	if r.fatal == nil {
		r.fatal = &fatalError{pod: r.pod.Namespace + "/" + r.pod.Name}
	}
	r.fatal.problems = append(r.fatal.problems, p.Message)
	if cause != nil {
		r.fatal.causes = append(r.fatal.causes, cause)
	}
}

// invalidSource reports a variable whose source is not to be understood.
func (r *resolver) invalidSource(container, variable string, err error) {
	r.report(Problem{
		Reason:  ReasonInvalidEnvironmentVariableSource,
		Message: fmt.Sprintf("environment variable %q of container %q: %v", variable, container, err),
		Fatal:   true,
	}, nil)
}
