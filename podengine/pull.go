package podengine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podengine/convert"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/image"
)

// pulled is an image that the runtime has.
type pulled struct {
	ref   string
	image *runtimeapi.Image
}

// pull sees to it that the runtime has the image of a container.
func (w *worker) pull(ctx context.Context, pod *corev1.Pod, c *corev1.Container, box *sandbox, inside *runtimeapi.PodSandboxConfig) (pulled, error) {
	return w.ensure(ctx, image.ForContainer(pod, c, w.pullSecrets(ctx, pod), inside), box)
}

// ensure sees to it that the runtime has an image for what is in a sandbox.
func (w *worker) ensure(ctx context.Context, r image.Request, box *sandbox) (_ pulled, err error) {
	ctx, span := startSpan(ctx, "ensureImage", r.Pod)
	annotate(span, attributeImage, r.Image)
	defer endSpan(span, &err)
	r.RuntimeHandler = box.handler // and not the class's: a container starts again while the API server is away
	var got image.Image
	w.whileRefreshing(ctx, func() { got, err = w.engine.puller.Ensure(ctx, r) })
	if err == nil {
		return pulled{got.Ref, got.Status}, nil
	}
	var failed *image.Error
	if errors.As(err, &failed) {
		return pulled{}, &startError{
			reason:   failed.Reason,
			message:  failed.Message,
			delay:    max(time.Until(failed.RetryAt), time.Millisecond),
			hasEvent: true,
		}
	}
	return pulled{}, err
}

// imageVolumes lets pods have image volumes. Their images are pulled when a
// container that mounts them starts: it is the container that waits.
type imageVolumes struct{}

func (imageVolumes) Image(_ context.Context, _ *corev1.Pod, v *corev1.Volume) (string, error) {
	return v.Image.Reference, nil
}

// imageVolume is an image volume of a pod, nil if the volume is another kind.
func imageVolume(pod *corev1.Pod, name string) *corev1.Volume {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Name == name && v.Image != nil {
			return v
		}
	}
	return nil
}

// imageMount has the runtime mount an image, or a part of it, once it is pulled.
func (w *worker) imageMount(ctx context.Context, pod *corev1.Pod, seen *runtimeView, v *corev1.Volume, m *corev1.VolumeMount) (convert.Mount, error) {
	box := seen.sandbox()
	inside, err := w.sandboxConfig(ctx, pod, box.attempt)
	if err != nil {
		return convert.Mount{}, err
	}
	request, _ := image.ForVolume(pod, v, w.pullSecrets(ctx, pod), inside)
	got, err := w.ensure(ctx, request, box)
	if err != nil {
		return convert.Mount{}, err
	}
	return convert.Mount{
		ContainerPath: m.MountPath,
		ReadOnly:      true,
		Image:         &runtimeapi.ImageSpec{Image: got.ref, UserSpecifiedImage: v.Image.Reference, RuntimeHandler: box.handler},
		ImageSubPath:  cmp.Or(m.SubPathExpr, m.SubPath),
	}, nil
}

// pullSecrets are the pod's image pull secrets, as far as there are any: those
// that are missing may not be needed. Those of its service account are among
// them: the API server's ServiceAccount admission gives them to pods that name
// none themselves, once and for all when the pod is created.
func (w *worker) pullSecrets(ctx context.Context, pod *corev1.Pod) (secrets []*corev1.Secret) {
	for _, ref := range pod.Spec.ImagePullSecrets {
		if w.engine.sent != nil {
			if secret, ok := w.engine.sent.pullSecret(pod.UID, pod.Namespace, ref.Name); ok {
				secrets = append(secrets, secret)
				continue
			}
		}
		secret, err := w.engine.cfg.Objects.Secret(ctx, pod.Namespace, ref.Name)
		if err != nil {
			w.warn(pod, "secret "+ref.Name, eventPullSecretFailed, fmt.Sprintf("Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", ref.Name))
			continue
		}
		secrets = append(secrets, secret)
	}
	return secrets
}
