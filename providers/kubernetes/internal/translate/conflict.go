package translate

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// NameConflict is the error of an object whose name in the remote cluster is taken by
// an object that this node does not own.
type NameConflict struct {
	// Kind, Namespace and Name are those of the remote object.
	Kind, Namespace, Name string
	// Reason says where the remote object comes from, if that is known.
	Reason string
}

// NameConflict returns the error for a remote object that this home does not own.
func (h Home) NameConflict(kind string, found metav1.Object) NameConflict {
	c := NameConflict{Kind: kind, Namespace: found.GetNamespace(), Name: found.GetName()}
	if !labels.SelectorFromSet(h.NodeLabels()).Matches(labels.Set(found.GetLabels())) {
		return c
	}
	switch uid := found.GetLabels()[LabelClusterUID]; uid {
	case string(h.UID): // it belongs to another home object
	case "":
		c.Reason = fmt.Sprintf("it has the names of this cluster and node, and comes from an earlier version of the virtual kubelet, here or in another cluster: if it is this one's and still wanted, label it %s=%s", LabelClusterUID, h.UID)
	default:
		c.Reason = fmt.Sprintf("it comes from another cluster with the same name %q, whose kube-system has the UID %s: give each its own in \"cluster\" of the provider's configuration", h.Cluster, uid)
	}
	return c
}

// Error names the remote object and says what to do about it.
func (c NameConflict) Error() string {
	text := fmt.Sprintf("the remote cluster has a %s %s/%s already, which does not come from this node and is left alone: delete or rename it", c.Kind, c.Namespace, c.Name)
	if c.Reason != "" {
		text += "; " + c.Reason
	}
	return text
}
