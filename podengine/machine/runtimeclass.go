package machine

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	nodev1client "k8s.io/client-go/kubernetes/typed/node/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podengine"
)

// classTimeout is how long the API server may take to say what a class is.
const classTimeout = 10 * time.Second

// runtimeClasses asks the API server each time: that is once a sandbox of those
// few pods that name a class, and costs less than to watch all classes. It needs
// the right to get runtimeclasses, as system:node has it.
type runtimeClasses struct {
	client nodev1client.RuntimeClassInterface
}

var _ podengine.RuntimeClasses = runtimeClasses{}

// Handler implements podengine.RuntimeClasses.
func (r runtimeClasses) Handler(ctx context.Context, class string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, classTimeout)
	defer cancel()
	found, err := r.client.Get(ctx, class, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return found.Handler, nil
}
