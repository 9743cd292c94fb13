package node

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// mutatedNodes is the API of Nodes behind an admission that takes something out of each
// patch, or of a server that does not know a field.
type mutatedNodes struct {
	corev1client.NodeInterface
	part, field string
}

func (m mutatedNodes) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (*corev1.Node, error) {
	var patch map[string]map[string]any
	if err := json.Unmarshal(data, &patch); err != nil {
		return nil, err
	}
	delete(patch[m.part], m.field)
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	return m.NodeInterface.Patch(ctx, name, kind, data, options, subresources...)
}

// What the API server never takes is written once with each look at the Node, not twice; of a status with the heartbeats only.
func TestWritesThatTheAPIServerMutates(t *testing.T) {
	for name, test := range map[string]struct {
		part, field, write string
		writes             int
	}{
		"labels":         {"metadata", "labels", "patch nodes vk", 10},
		"a status field": {"status", "runtimeHandlers", "patch nodes/status vk", 2},
	} {
		t.Run(name, func(t *testing.T) {
			nodeBubble(t, func(t *testing.T, r *nodeRig) {
				r.add()
				r.node.Labels["new"] = "1"
				r.node.Status.RuntimeHandlers = []corev1.NodeRuntimeHandler{{Name: "runc"}}
				r.start(r.withLease(), func(n *NodeController) error {
					n.nodes = mutatedNodes{n.nodes, test.part, test.field}
					return nil
				})
				pass(time.Second)
				r.api.Written()
				pass(10 * DefaultStatusUpdateInterval)
				var writes int
				for _, write := range r.api.Written() {
					if write == test.write {
						writes++
					}
				}
				want(t, test.write, writes, test.writes)
			})
		})
	}
}
