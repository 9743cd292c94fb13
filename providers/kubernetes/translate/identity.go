package translate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Prefix is that of all labels and annotations of the provider.
const Prefix = "home.virtual-kubelet.io/"

// The labels of all remote objects, which say where they come from. What does not
// have those of this cluster and node belongs to somebody else.
const (
	LabelCluster   = Prefix + "cluster"
	LabelNode      = Prefix + "node"
	LabelNamespace = Prefix + "namespace"
	// LabelUID is the UID at home, of pods and claims and of what is for one pod
	// alone.
	LabelUID = Prefix + "uid"
	// LabelClusterUID is Home.UID: names can be copied, this cannot. Objects of
	// earlier versions do not have it.
	LabelClusterUID = Prefix + "cluster-uid"
)

// The annotations of remote objects.
const (
	// AnnotationName is the name at home.
	AnnotationName = Prefix + "name"
	// AnnotationAsked is what home has asked for with a remote pod, as far as it
	// can change, so that what home takes back is taken back, and what the remote
	// cluster has made of it stays: JSON.
	AnnotationAsked = Prefix + "asked"
	// AnnotationRestarts are the restarts of the containers in the remote pods
	// that this one stands in for: a JSON object of numbers by container.
	AnnotationRestarts = Prefix + "restarts"
)

// FieldManager is that of all that is written to the remote cluster.
const FieldManager = "virtual-kubelet"

// Home says where pods come from.
type Home struct {
	// Cluster is the name of the home cluster, a label value. No two clusters
	// that use a remote cluster may have the same.
	Cluster string
	// Node is the name of the virtual node.
	Node string
	// UID is that of the home cluster's namespace kube-system. As long as it is
	// empty, which is to say not known, no remote object is of this home.
	UID types.UID
}

// NodeLabels are those of this cluster and node by their names, which another cluster
// with a copied configuration has too: enough for objects at home.
func (h Home) NodeLabels() map[string]string {
	return map[string]string{LabelCluster: h.Cluster, LabelNode: labelValue(h.Node)}
}

// Labels are those of all remote objects of this cluster and node.
func (h Home) Labels() map[string]string {
	all := h.NodeLabels()
	all[LabelClusterUID] = string(h.UID)
	return all
}

// LabelsOf are those of an object from a namespace at home; uid is empty where
// it is for several pods.
func (h Home) LabelsOf(namespace string, uid types.UID) map[string]string {
	all := h.Labels()
	all[LabelNamespace] = namespace
	if uid != "" {
		all[LabelUID] = string(uid)
	}
	return all
}

// Selector selects all remote objects of this cluster and node.
func (h Home) Selector() string { return labels.SelectorFromSet(h.Labels()).String() }

// NodeSelector selects by the names alone: see NodeLabels.
func (h Home) NodeSelector() string { return labels.SelectorFromSet(h.NodeLabels()).String() }

// OthersSelector selects the remote objects that have the names of this cluster and
// node, and not its UID: those of another home, and those of earlier versions.
func (h Home) OthersSelector() string {
	return fmt.Sprintf("%s,%s!=%s", h.NodeSelector(), LabelClusterUID, h.UID)
}

// Owns reports whether a remote object is of this cluster and node.
func (h Home) Owns(object metav1.Object) bool {
	return h.UID != "" && labels.SelectorFromSet(h.Labels()).Matches(labels.Set(object.GetLabels()))
}

// OwnsAtHome reports whether an object at home, such as a PersistentVolume, is of this
// node.
func (h Home) OwnsAtHome(object metav1.Object) bool {
	return labels.SelectorFromSet(h.NodeLabels()).Matches(labels.Set(object.GetLabels()))
}

// UIDOf is the UID at home of a remote object; it may be empty.
func UIDOf(remote metav1.Object) types.UID { return types.UID(remote.GetLabels()[LabelUID]) }

// NameOf is the name at home of a remote object, with its namespace.
func NameOf(remote metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: remote.GetLabels()[LabelNamespace], Name: remote.GetAnnotations()[AnnotationName]}
}

// Key names a pod at home.
func Key(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

const maxLabelValue = 63

// labelValue is text, or where that is too long for a label a name for it.
func labelValue(text string) string {
	if len(text) <= maxLabelValue {
		return text
	}
	return shorten(text, maxLabelValue, text)
}

// shorten returns the beginning of text, and a hash of all, in max bytes.
func shorten(text string, max int, all ...string) string {
	suffix := "-" + hash(all...)
	if len(text)+len(suffix) > max {
		text = strings.TrimRight(text[:max-len(suffix)], "-._")
	}
	return text + suffix
}

func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])[:10]
}
