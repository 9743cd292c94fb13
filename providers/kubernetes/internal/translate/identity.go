package translate

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Prefix is the prefix of all labels and annotations of the provider.
const Prefix = "home.virtual-kubelet.io/"

// The labels of all remote objects that the provider owns. An object without those of
// this cluster and node belongs to somebody else.
const (
	LabelCluster   = Prefix + "cluster"
	LabelNode      = Prefix + "node"
	LabelNamespace = Prefix + "namespace"
	// LabelUID is the UID of the home object, on pods, claims and objects of a
	// single pod.
	LabelUID = Prefix + "uid"
	// LabelClusterUID is Home.UID. Two clusters may have the same names, but not the
	// same UID. Objects of earlier versions lack this label.
	LabelClusterUID = Prefix + "cluster-uid"
)

// The annotations of remote objects.
const (
	// AnnotationName is the name of the home object.
	AnnotationName = Prefix + "name"
	// AnnotationLastApplied is the JSON of lastApplied: what home last applied to the
	// remote pod. It allows to remove what home has removed, and to keep what the
	// remote cluster has changed.
	AnnotationLastApplied = Prefix + "asked"
	// AnnotationRestarts is a JSON object of numbers by container: the restarts that
	// the containers had in earlier remote pods of the same home pod.
	AnnotationRestarts = Prefix + "restarts"
	// AnnotationEphemeral is the names, with commas between them, of the ephemeral
	// containers that earlier remote pods of the same home pod had.
	AnnotationEphemeral = Prefix + "ephemeral-containers"
)

// FieldManager is the field manager of all writes to the remote cluster.
const FieldManager = "virtual-kubelet"

// Home identifies the home cluster and the virtual node.
type Home struct {
	// Cluster is the name of the home cluster, a label value. Home clusters that share
	// a remote cluster must have different names.
	Cluster string
	// Node is the name of the virtual node.
	Node string
	// UID is the UID of the home cluster's kube-system namespace. While it is empty,
	// which means unknown, no remote object is owned by this home.
	UID types.UID
}

// NodeLabels returns the labels with the names of this cluster and node. Another
// cluster with a copy of the configuration has the same, so they identify home objects
// only.
func (h Home) NodeLabels() map[string]string {
	return map[string]string{LabelCluster: h.Cluster, LabelNode: labelValue(h.Node)}
}

// Labels returns the labels of all remote objects of this cluster and node.
func (h Home) Labels() map[string]string {
	all := h.NodeLabels()
	all[LabelClusterUID] = string(h.UID)
	return all
}

// LabelsOf returns the labels of a remote object whose home object is in namespace. uid
// is empty if several pods share the object.
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

// NodeSelector selects by cluster and node name alone: see NodeLabels.
func (h Home) NodeSelector() string { return labels.SelectorFromSet(h.NodeLabels()).String() }

// OthersSelector selects remote objects with the names of this cluster and node, but
// without its UID: those of another home, and those of earlier versions.
func (h Home) OthersSelector() string {
	return fmt.Sprintf("%s,%s!=%s", h.NodeSelector(), LabelClusterUID, h.UID)
}

// Owns reports whether a remote object belongs to this cluster and node.
func (h Home) Owns(object metav1.Object) bool {
	return h.UID != "" && labels.SelectorFromSet(h.Labels()).Matches(labels.Set(object.GetLabels()))
}

// OwnsAtHome reports whether a home object, such as a PersistentVolume, belongs to this
// node.
func (h Home) OwnsAtHome(object metav1.Object) bool {
	return labels.SelectorFromSet(h.NodeLabels()).Matches(labels.Set(object.GetLabels()))
}

// UIDOf returns the UID of a remote object's home object. It may be empty.
func UIDOf(remote metav1.Object) types.UID { return types.UID(remote.GetLabels()[LabelUID]) }

// NameOf returns the namespace and name of a remote object's home object. If the annotation
// is gone, it is the remote name, which is the same where namespaces do not share a remote one.
func NameOf(remote metav1.Object) types.NamespacedName {
	return types.NamespacedName{
		Namespace: remote.GetLabels()[LabelNamespace], Name: cmp.Or(remote.GetAnnotations()[AnnotationName], remote.GetName()),
	}
}

// Key returns the namespace and name of a pod.
func Key(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

const maxLabelValue = 63

// labelValue returns text, shortened if it is too long for a label.
func labelValue(text string) string {
	if len(text) <= maxLabelValue {
		return text
	}
	return shorten(text, maxLabelValue, text)
}

// shorten returns the beginning of text and a hash of all, in at most max bytes.
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
