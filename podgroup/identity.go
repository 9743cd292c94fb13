package podgroup

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The keys of the tags that identify a unit. Providers before this package used these for
// container groups; TagClusterUID is newer.
const (
	TagClusterName       = "ClusterName"
	TagClusterUID        = "ClusterUID"
	TagNodeName          = "NodeName"
	TagNamespace         = "Namespace"
	TagPodName           = "PodName"
	TagUID               = "UID"
	TagCreationTimestamp = "CreationTimestamp"
)

// minTagLength is the least MaxTag: a UID has 36 characters, and a name of a pod at most
// 253, which then takes seven tags.
const minTagLength = 40

// Identity is whose units a node's are.
type Identity struct {
	// Cluster is the name that distinguishes this cluster's units from those of others in
	// the same account. Required where the Backend lists.
	Cluster string
	// Node is the name of the node. Defaults to that of the Node.
	Node string
	// MaxTag is how long the value of a tag may be. Defaults to 128. A longer value goes
	// on in tags with numbers: PodName, PodName.2. It is never cut, since a pod's
	// name has to be found again.
	MaxTag int
}

// Owner is the pod of a unit.
type Owner struct {
	Namespace, Name string
	UID             types.UID
	Created         time.Time
}

// OwnerOf returns the owner that is a pod.
func OwnerOf(pod *corev1.Pod) Owner {
	return Owner{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Created: pod.CreationTimestamp.Time}
}

// tags returns the tags of a pod's unit.
func (i Identity) tags(pod *corev1.Pod, clusterUID types.UID) map[string]string {
	tags := i.filter()
	i.split(tags, TagNamespace, pod.Namespace)
	i.split(tags, TagPodName, pod.Name)
	tags[TagUID] = string(pod.UID)
	tags[TagCreationTimestamp] = pod.CreationTimestamp.UTC().Format(time.RFC3339)
	if clusterUID != "" {
		tags[TagClusterUID] = string(clusterUID)
	}
	return tags
}

// filter returns the tags that all units of the node have.
func (i Identity) filter() map[string]string {
	tags := map[string]string{}
	i.split(tags, TagClusterName, i.Cluster)
	i.split(tags, TagNodeName, i.Node)
	return tags
}

func (i Identity) split(tags map[string]string, key, value string) {
	for n := 1; ; n++ {
		tags[numbered(key, n)] = value[:min(i.MaxTag, len(value))]
		if len(value) <= i.MaxTag {
			return
		}
		value = value[i.MaxTag:]
	}
}

func numbered(key string, n int) string {
	if n == 1 {
		return key
	}
	return fmt.Sprintf("%s.%d", key, n)
}

func join(tags map[string]string, key string) string {
	var b strings.Builder
	for n := 1; ; n++ {
		part, ok := tags[numbered(key, n)]
		if !ok {
			return b.String()
		}
		b.WriteString(part)
	}
}

// ownerOf returns the pod of a unit of this cluster and node, going by its tags.
func (i Identity) ownerOf(tags map[string]string) (Owner, bool) {
	if join(tags, TagClusterName) != i.Cluster || join(tags, TagNodeName) != i.Node {
		return Owner{}, false
	}
	o := Owner{Namespace: join(tags, TagNamespace), Name: join(tags, TagPodName), UID: types.UID(tags[TagUID])}
	o.Created, _ = time.Parse(time.RFC3339, tags[TagCreationTimestamp]) // zero if another program wrote it
	return o, o.Namespace != "" && o.Name != "" && o.UID != ""
}
