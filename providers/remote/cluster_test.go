package remote_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote"
)

// A node does not go on without the check of its cluster because the API server is away for a while: only
// one that has not the right to read the UID does.
func TestNoClusterIsGuessed(t *testing.T) {
	config := remote.Config{Address: serve(t, serverOf(t, newPlain(), nil))}
	connectWith := func(failure error) error {
		client := fake.NewClientset()
		fakeapi.React(&client.Fake, "get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, failure })
		_, np, err := remote.New(t.Context(), nodeutil.ProviderConfig{Node: theNode.DeepCopy(), Client: client}, config)
		if err == nil {
			t.Cleanup(func() { _ = np.(io.Closer).Close() })
		}
		return err
	}
	if err := connectWith(apierrors.NewForbidden(corev1.Resource("namespaces"), metav1.NamespaceSystem, errors.New("no rights"))); err != nil {
		t.Errorf("without the right: %v", err)
	}
	config.StartTimeout.Duration = 100 * time.Millisecond
	if err := connectWith(errors.New("connection refused")); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("an API server that does not answer: %v", err)
	}
}
