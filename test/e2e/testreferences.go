package e2e

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/virtual-kubelet/virtual-kubelet/internal/nodecheck"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// TestCreatePodWithOptionalInexistentSecrets checks that a pod runs whose
// environment refers to a Secret that does not exist and is optional, and that
// an event reports.
func (s *EndToEndTestSuite) TestCreatePodWithOptionalInexistentSecrets(t *testing.T) {
	s.testOptional(t, nodecheck.FromSecret(missingName(), true), node.ReasonOptionalSecretNotFound)
}

// TestCreatePodWithOptionalInexistentConfigMap is the same for a ConfigMap.
func (s *EndToEndTestSuite) TestCreatePodWithOptionalInexistentConfigMap(t *testing.T) {
	s.testOptional(t, nodecheck.FromConfigMap(missingName(), true), node.ReasonOptionalConfigMapNotFound)
}

// TestCreatePodWithMandatoryInexistentSecrets checks that a pod does not run
// whose environment needs a Secret that does not exist, that an event reports it,
// and that it runs when the Secret appears.
func (s *EndToEndTestSuite) TestCreatePodWithMandatoryInexistentSecrets(t *testing.T) {
	name := missingName()
	s.testMandatory(t, nodecheck.FromSecret(name, false), node.ReasonMandatorySecretNotFound, func(ctx context.Context, scope *nodecheck.Scope) error {
		_, err := scope.CreateSecret(ctx, name, map[string]string{nodecheck.MissingKey: "blue"})
		return err
	})
}

// TestCreatePodWithMandatoryInexistentConfigMap is the same for a ConfigMap.
func (s *EndToEndTestSuite) TestCreatePodWithMandatoryInexistentConfigMap(t *testing.T) {
	name := missingName()
	s.testMandatory(t, nodecheck.FromConfigMap(name, false), node.ReasonMandatoryConfigMapNotFound, func(ctx context.Context, scope *nodecheck.Scope) error {
		_, err := scope.CreateConfigMap(ctx, name, map[string]string{nodecheck.MissingKey: "blue"})
		return err
	})
}

func missingName() string { return "vk-e2e-missing-" + rand.String(10) }

func (s *EndToEndTestSuite) testOptional(t *testing.T, env corev1.EnvVar, reason string) {
	t.Helper()
	s.inScope(t, "optional", func(ctx context.Context, scope *nodecheck.Scope) error {
		pod, err := scope.Create(ctx, scope.WithEnv(env))
		if err != nil {
			return err
		}
		if err := hasEvent(scope, reason)(ctx, pod); err != nil {
			return err
		}
		_, err = scope.Follow(ctx, pod, "runs", nil, nodecheck.Running)
		return err
	})
}

func (s *EndToEndTestSuite) testMandatory(t *testing.T, env corev1.EnvVar, reason string, create func(context.Context, *nodecheck.Scope) error) {
	t.Helper()
	s.inScope(t, "mandatory", func(ctx context.Context, scope *nodecheck.Scope) error {
		return scope.RunsOnce(ctx, env, hasEvent(scope, reason), func(ctx context.Context) error { return create(ctx, scope) })
	})
}

// hasEvent waits until a pod has an event with a reason.
func hasEvent(scope *nodecheck.Scope, reason string) func(context.Context, *corev1.Pod) error {
	return func(ctx context.Context, pod *corev1.Pod) error {
		return scope.FollowEvents(ctx, pod, "an event "+reason, func(event *corev1.Event) bool { return event.Reason == reason })
	}
}
