package translate

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Clash is the error of an object whose place in the remote cluster is taken by one
// that is not ours.
type Clash struct {
	// Kind, Namespace and Name are those of the remote object.
	Kind, Namespace, Name string
	// Because says whose it is, where that is known.
	Because string
}

// Clash returns the error of an object that is in the way and not of this home.
func (h Home) Clash(kind string, found metav1.Object) Clash {
	c := Clash{Kind: kind, Namespace: found.GetNamespace(), Name: found.GetName()}
	if !labels.SelectorFromSet(h.NodeLabels()).Matches(labels.Set(found.GetLabels())) {
		return c
	}
	switch uid := found.GetLabels()[LabelClusterUID]; uid {
	case string(h.UID): // of another object at home
	case "":
		c.Because = fmt.Sprintf("it has the names of this cluster and node, and comes from an earlier version of the virtual kubelet, here or in another cluster: if it is this one's and still wanted, label it %s=%s", LabelClusterUID, h.UID)
	default:
		c.Because = fmt.Sprintf("it comes from another cluster with the same name %q, whose kube-system has the UID %s: give each its own in \"cluster\" of the provider's configuration", h.Cluster, uid)
	}
	return c
}

// Error says which object it is, and what to do.
func (c Clash) Error() string {
	text := fmt.Sprintf("the remote cluster has a %s %s/%s already, which does not come from this node and is left alone: remove or rename it", c.Kind, c.Namespace, c.Name)
	if c.Because != "" {
		text += "; " + c.Because
	}
	return text
}
