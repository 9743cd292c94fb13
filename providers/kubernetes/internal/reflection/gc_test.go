package reflection

import (
	"context"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	metadatafake "k8s.io/client-go/metadata/fake"

	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// A copy that an earlier process left, and that a new pod finds up to date while it is
// about to be deleted as garbage, exists in the end.
func TestCollectGarbageKeepsCopiesOfNewPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.home.put("keys", corev1.SecretTypeOpaque, "1")
		g.run()
		old := reader("old")
		if err := g.RegisterPod(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		left := g.copied(translate.KindSecret, "keys")
		if left == nil {
			t.Fatal("there is no copy")
		}
		next := newRig(t) // which does not know of it
		next.home.put("keys", corev1.SecretTypeOpaque, "1")
		next.remote = g.remote
		next.opts.Remote = interrupted{g.remote, func() {
			if err := next.RegisterPod(t.Context(), reader("new")); err != nil {
				t.Error(err)
			}
		}}
		next.run()
		scheme := metadatafake.NewTestScheme()
		if err := metav1.AddMetaToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		var listed []runtime.Object
		listed = append(listed, &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: left.ObjectMeta})
		if err := next.CollectGarbage(t.Context(), metadatafake.NewSimpleMetadataClient(scheme, listed...), "shop", nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if next.copied(translate.KindSecret, "keys") == nil {
			t.Error("the copy is gone")
		}
	})
}

// interrupted is a cluster in which a function is called before a Secret is deleted.
type interrupted struct {
	kubernetes.Interface
	before func()
}

func (i interrupted) CoreV1() corev1client.CoreV1Interface {
	return interruptedCore{i.Interface.CoreV1(), i.before}
}

type interruptedCore struct {
	corev1client.CoreV1Interface
	before func()
}

func (i interruptedCore) Secrets(namespace string) corev1client.SecretInterface {
	return interruptedSecrets{i.CoreV1Interface.Secrets(namespace), i.before}
}

type interruptedSecrets struct {
	corev1client.SecretInterface
	before func()
}

func (i interruptedSecrets) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	i.before()
	return i.SecretInterface.Delete(ctx, name, options)
}
