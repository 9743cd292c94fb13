package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// missingKey is the key that is asked for in an object that does not exist.
const missingKey = "colour"

// TestCreatePodWithOptionalInexistentSecrets checks that a pod runs whose
// environment refers to a Secret that does not exist and is optional, and that
// an event tells.
func (s *EndToEndTestSuite) TestCreatePodWithOptionalInexistentSecrets(t *testing.T) {
	s.testOptional(t, fromSecret("vk-e2e-missing-"+rand.String(10), true), node.ReasonOptionalSecretNotFound)
}

// TestCreatePodWithOptionalInexistentConfigMap is the same for a ConfigMap.
func (s *EndToEndTestSuite) TestCreatePodWithOptionalInexistentConfigMap(t *testing.T) {
	s.testOptional(t, fromConfigMap("vk-e2e-missing-"+rand.String(10), true), node.ReasonOptionalConfigMapNotFound)
}

// TestCreatePodWithMandatoryInexistentSecrets checks that a pod does not run
// whose environment needs a Secret that does not exist, that an event tells,
// and that it runs when the Secret appears.
func (s *EndToEndTestSuite) TestCreatePodWithMandatoryInexistentSecrets(t *testing.T) {
	name := "vk-e2e-missing-" + rand.String(10)
	secrets := s.client.CoreV1().Secrets(s.cfg.Namespace)
	s.testMandatory(t, fromSecret(name, false), node.ReasonMandatorySecretNotFound, reference{
		create: func(ctx context.Context) error {
			_, err := secrets.Create(ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				StringData: map[string]string{missingKey: "blue"},
			}, metav1.CreateOptions{})
			return err
		},
		remove: func(ctx context.Context) error { return secrets.Delete(ctx, name, metav1.DeleteOptions{}) },
	})
}

// TestCreatePodWithMandatoryInexistentConfigMap is the same for a ConfigMap.
func (s *EndToEndTestSuite) TestCreatePodWithMandatoryInexistentConfigMap(t *testing.T) {
	name := "vk-e2e-missing-" + rand.String(10)
	configMaps := s.client.CoreV1().ConfigMaps(s.cfg.Namespace)
	s.testMandatory(t, fromConfigMap(name, false), node.ReasonMandatoryConfigMapNotFound, reference{
		create: func(ctx context.Context) error {
			_, err := configMaps.Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Data:       map[string]string{missingKey: "blue"},
			}, metav1.CreateOptions{})
			return err
		},
		remove: func(ctx context.Context) error { return configMaps.Delete(ctx, name, metav1.DeleteOptions{}) },
	})
}

// reference is an object that does not exist at first.
type reference struct {
	create, remove func(context.Context) error
}

func (s *EndToEndTestSuite) testOptional(t *testing.T, env corev1.EnvVar, reason string) {
	t.Helper()
	pod := s.createPod(t, s.newPod("optional", env))
	s.waitForEvent(t, pod, reason)
	s.waitForPod(t, pod, "runs", nil, running)
}

func (s *EndToEndTestSuite) testMandatory(t *testing.T, env corev1.EnvVar, reason string, object reference) {
	t.Helper()
	pod := s.createPod(t, s.newPod("mandatory", env))
	s.waitForEvent(t, pod, reason)

	now, err := s.client.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := checkWaiting(now); err != nil {
		t.Fatalf("%v\n%s", err, s.describe(now))
	}

	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.cfg.WatchTimeout)
		defer cancel()
		if err := object.remove(ctx); err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("remove what the pod refers to: %v", err)
		}
	})
	if err := object.create(t.Context()); err != nil {
		t.Fatalf("create what the pod refers to: %v", err)
	}
	s.waitForPod(t, pod, "runs, now that what it refers to exists", nil, running)
}

// checkWaiting tells whether a pod was not started.
func checkWaiting(pod *corev1.Pod) error {
	if pod.Status.Phase != corev1.PodPending {
		return fmt.Errorf("a pod whose environment is incomplete is in phase %s, not %s", pod.Status.Phase, corev1.PodPending)
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Running != nil || c.State.Terminated != nil {
			return fmt.Errorf("container %s was started though its environment is incomplete", c.Name)
		}
	}
	return nil
}

func fromSecret(name string, optional bool) corev1.EnvVar {
	return corev1.EnvVar{Name: "COLOUR", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: missingKey, Optional: &optional,
	}}}
}

func fromConfigMap(name string, optional bool) corev1.EnvVar {
	return corev1.EnvVar{Name: "COLOUR", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: missingKey, Optional: &optional,
	}}}
}
