package mock

import (
	"errors"
	"hash/fnv"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// The annotations of a pod that say what it does.
const (
	// AnnotationStartDelay is how long the pod is Pending.
	AnnotationStartDelay = "mock.virtual-kubelet.io/start-delay"
	// AnnotationStartJitter is the most that chance adds to the start delay.
	AnnotationStartJitter = "mock.virtual-kubelet.io/start-jitter"
	// AnnotationReadyDelay is how long the running pod is not Ready.
	AnnotationReadyDelay = "mock.virtual-kubelet.io/ready-delay"
	// AnnotationRunFor is after how long all of the pod's containers exit.
	AnnotationRunFor = "mock.virtual-kubelet.io/run-for"
	// AnnotationExitCode is the code with which they then exit.
	AnnotationExitCode = "mock.virtual-kubelet.io/exit-code"
	// AnnotationStopDelay is how long the pod takes to stop.
	AnnotationStopDelay = "mock.virtual-kubelet.io/stop-delay"
	// AnnotationFailCreate makes CreatePod fail with this message.
	AnnotationFailCreate = "mock.virtual-kubelet.io/fail-create"
	// AnnotationFailCreateTimes is how often it does; without, always.
	AnnotationFailCreateTimes = "mock.virtual-kubelet.io/fail-create-times"
	// AnnotationFailClass is the class of that error, as errdefs.Class has it.
	AnnotationFailClass = "mock.virtual-kubelet.io/fail-class"
)

// script is what a pod does.
type script struct {
	startDelay, startJitter, readyDelay, stopDelay time.Duration

	runFor   *time.Duration // nil means until it is stopped
	exitCode int32

	failCreate error // nil means it works
	failTimes  int   // 0 means always
}

// scriptOf returns what a pod does, by its annotations and else by c.
func scriptOf(c Config, pod *corev1.Pod) (script, error) {
	s := c.script(pod)
	for _, delay := range []struct {
		annotation string
		field      *time.Duration
	}{
		{AnnotationStartDelay, &s.startDelay},
		{AnnotationStartJitter, &s.startJitter},
		{AnnotationReadyDelay, &s.readyDelay},
		{AnnotationStopDelay, &s.stopDelay},
	} {
		if text, ok := pod.Annotations[delay.annotation]; ok {
			d, err := parseDuration("annotation "+delay.annotation, text)
			if err != nil {
				return s, err
			}
			*delay.field = d
		}
	}
	if text, ok := pod.Annotations[AnnotationRunFor]; ok {
		d, err := parseDuration("annotation "+AnnotationRunFor, text)
		if err != nil {
			return s, err
		}
		s.runFor = &d
	}
	if text, ok := pod.Annotations[AnnotationExitCode]; ok {
		code, err := strconv.ParseInt(text, 10, 32)
		if err != nil || code < 0 || code > 255 {
			return s, errdefs.InvalidInputf("annotation %s: %q is no exit code from 0 to 255", AnnotationExitCode, text)
		}
		s.exitCode = int32(code)
	}
	return s, s.parseFailure(pod)
}

func (s *script) parseFailure(pod *corev1.Pod) error {
	message, ok := pod.Annotations[AnnotationFailCreate]
	if !ok {
		return nil
	}
	class := errdefs.Class(pod.Annotations[AnnotationFailClass])
	if s.failCreate = failure(class, errors.New(message)); s.failCreate == nil {
		return errdefs.InvalidInputf("annotation %s: there is no class %q", AnnotationFailClass, class)
	}
	if text, ok := pod.Annotations[AnnotationFailCreateTimes]; ok {
		times, err := strconv.Atoi(text)
		if err != nil || times < 0 {
			return errdefs.InvalidInputf("annotation %s: %q is no number of times", AnnotationFailCreateTimes, text)
		}
		if s.failTimes = times; times == 0 {
			s.failCreate = nil
		}
	}
	return nil
}

// failure returns err as one of the given class, or nil if there is none.
func failure(class errdefs.Class, err error) error {
	switch class {
	case "", errdefs.UnknownClass:
		return err
	case errdefs.PermanentClass:
		return errdefs.AsPermanent(err)
	case errdefs.InvalidInputClass:
		return errdefs.AsInvalidInput(err)
	case errdefs.NotFoundClass:
		return errdefs.AsNotFound(err)
	case errdefs.ConflictClass:
		return errdefs.AsConflict(err)
	case errdefs.RetryAfterClass:
		return errdefs.AsRetryAfter(err, time.Second)
	case errdefs.UnavailableClass:
		return errdefs.AsUnavailable(err)
	}
	return nil
}

// startsAfter is the start delay of the pod with the given UID, jitter included.
func (s script) startsAfter(uid types.UID) time.Duration {
	if s.startJitter <= 0 {
		return s.startDelay
	}
	return s.startDelay + time.Duration(hash(string(uid), "start-jitter")%uint64(s.startJitter))
}

// hash is the source of all that looks like chance.
func hash(parts ...string) uint64 {
	h := fnv.New64a()
	for _, part := range parts {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	// FNV's low bits are good, its high ones less so for short input.
	sum := h.Sum64()
	return sum ^ sum>>29
}
