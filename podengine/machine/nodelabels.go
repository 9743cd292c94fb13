package machine

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// labelsOf returns the labels of a node as the API server has them when it is asked, which is once for each of
// those few volumes that are of certain nodes: others than the node may write them.
func labelsOf(client kubernetes.Interface, node string) func(context.Context) (map[string]string, error) {
	return func(ctx context.Context) (map[string]string, error) {
		n, err := client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return n.Labels, nil
	}
}
