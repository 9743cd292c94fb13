package podengine

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// TakesVolumes reports whether Config.Sent is set: pods come by CreatePodWithVolumes.
func (e *Engine) TakesVolumes() bool { return e.sent != nil }

// CreatePodWithVolumes is CreatePod with what is in the pod's volumes, by their names, for an
// engine with Config.Sent. The files are not changed any more.
func (e *Engine) CreatePodWithVolumes(ctx context.Context, pod *corev1.Pod, volumes map[string]volume.Files) error {
	if e.sent == nil {
		return errdefs.InvalidInput("the engine reads what is in volumes itself: use CreatePod, or set Config.Sent")
	}
	e.sent.update(pod.UID, volumes)
	err := e.CreatePod(ctx, pod)
	if e.worker(pod.UID) == nil {
		e.sent.forget(pod.UID)
	}
	return err
}

// UpdateVolumes replaces what is in some of a pod's volumes, which the pod sees soon after. An
// error of class NotFound says that the engine has no such pod. After a restart of the process it
// is to be called for all volumes: until then they stay as they are, and no container with volumes
// starts.
func (e *Engine) UpdateVolumes(_ context.Context, namespace, name string, uid types.UID, volumes map[string]volume.Files) error {
	w := e.worker(uid)
	if e.sent == nil || w == nil {
		return errdefs.NotFoundf("the engine has no pod %s/%s with volumes that are sent", namespace, name)
	}
	e.sent.update(uid, volumes)
	if e.worker(uid) != w { // it was removed meanwhile
		e.sent.forget(uid)
	}
	w.hasten()
	return nil
}

// sentVolumes is what was sent of volumes. It is a volume.ContentSource; a nil one has nothing to
// forget.
type sentVolumes struct {
	mu   sync.Mutex
	pods map[types.UID]map[string]volume.Files // which are never changed
}

func (s *sentVolumes) update(uid types.UID, volumes map[string]volume.Files) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]volume.Files{}
	maps.Copy(all, s.pods[uid])
	maps.Copy(all, volumes)
	s.pods[uid] = all
}

func (s *sentVolumes) forget(uid types.UID) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, uid)
}

// pullSecretPrefix is what the names of volumes begin with that are image pull secrets: their names
// follow.
const pullSecretPrefix = "imagePullSecrets/"

// TakesPullSecrets reports whether image pull secrets are among the volumes that are sent.
func (e *Engine) TakesPullSecrets() bool { return e.sent != nil }

// pullSecret returns an image pull secret that was sent.
func (s *sentVolumes) pullSecret(uid types.UID, namespace, name string) (*corev1.Secret, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	files, ok := s.pods[uid][pullSecretPrefix+name]
	if !ok {
		return nil, false
	}
	secret := &corev1.Secret{Data: map[string][]byte{}}
	secret.Namespace, secret.Name, secret.Type = namespace, name, corev1.SecretTypeDockerConfigJson
	for key, file := range files {
		secret.Data[key] = file.Data
	}
	if _, ok := secret.Data[corev1.DockerConfigJsonKey]; !ok {
		secret.Type = corev1.SecretTypeDockercfg
	}
	return secret, true
}

var errNotSent = errors.New("what is in it has not been sent since this process began")

// Contents implements volume.ContentSource.
func (s *sentVolumes) Contents(_ context.Context, pod *corev1.Pod, v *corev1.Volume) (volume.Files, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	files, ok := s.pods[pod.UID][v.Name]
	if !ok {
		return nil, time.Time{}, errNotSent
	}
	return files, time.Time{}, nil
}

// escapeResolved changes a container whose environment was resolved elsewhere so that it comes out
// of another resolution as it is, but for references to variables that have no value yet.
func escapeResolved(c *corev1.Container) {
	escape := func(text string) string {
		text = strings.ReplaceAll(text, "$", "$$")
		for i := range c.Env {
			if c.Env[i].ValueFrom != nil {
				text = strings.ReplaceAll(text, "$$("+c.Env[i].Name+")", "$("+c.Env[i].Name+")")
			}
		}
		return text
	}
	for i := range c.Env {
		c.Env[i].Value = escape(c.Env[i].Value)
	}
	for _, words := range [][]string{c.Command, c.Args} {
		for i := range words {
			words[i] = escape(words[i])
		}
	}
}
