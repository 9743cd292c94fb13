package podengine

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podengine/image"
)

// pulled is an image that the runtime has.
type pulled struct {
	ref   string
	image *runtimeapi.Image
}

// pull sees to it that the runtime has the image of a container.
func (w *worker) pull(ctx context.Context, pod *corev1.Pod, c *corev1.Container, inside *runtimeapi.PodSandboxConfig) (pulled, error) {
	got, err := w.engine.puller.Ensure(ctx, image.ForContainer(pod, c, w.pullSecrets(ctx, pod), inside))
	if err == nil {
		return pulled{got.Ref, got.Status}, nil
	}
	var failed *image.Error
	if errors.As(err, &failed) {
		return pulled{}, &startError{reason: failed.Reason, message: failed.Message, delay: max(time.Until(failed.RetryAt), time.Millisecond)}
	}
	return pulled{}, err
}

// pullSecrets are the pod's image pull secrets, as far as there are any: those
// that are missing may not be needed.
func (w *worker) pullSecrets(ctx context.Context, pod *corev1.Pod) (secrets []*corev1.Secret) {
	for _, ref := range pod.Spec.ImagePullSecrets {
		secret, err := w.engine.cfg.Objects.Secret(ctx, pod.Namespace, ref.Name)
		if err != nil {
			w.warn(pod, "FailedToRetrieveImagePullSecret", fmt.Sprintf("Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", ref.Name))
			continue
		}
		secrets = append(secrets, secret)
	}
	return secrets
}
