package wire

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// SessionHeader names a request for the logs of all programs on its way.
const SessionHeader = "InterLink-Http-Session"

// Create is the body of a virtual kubelet's POST /create.
type Create struct {
	Pod        *corev1.Pod        `json:"pod"`
	ConfigMaps []corev1.ConfigMap `json:"configmaps"`
	Secrets    []corev1.Secret    `json:"secrets"`
	// Projected are the projected volumes: the name is the volume's, the keys are paths.
	Projected    []corev1.ConfigMap `json:"projectedvolumesmaps"`
	JobScriptURL string             `json:"jobscriptURL"`
}

// Created is the answer.
type Created struct {
	UID   string `json:"PodUID"`
	JobID string `json:"PodJID"`
}

// PluginCreate is the body of the API server's POST /create to a plugin: one, or a list of
// one, by the version of the server.
type PluginCreate struct {
	Pod        *corev1.Pod `json:"pod"`
	Containers []Container `json:"container"`
	JobScript  string      `json:"jobScript,omitempty"`
}

// Container has the objects in the volumes that a container mounts.
type Container struct {
	Name       string             `json:"name"`
	ConfigMaps []corev1.ConfigMap `json:"configMaps"`
	Projected  []corev1.ConfigMap `json:"projectedvolumemaps"`
	Secrets    []corev1.Secret    `json:"secrets"`
	EmptyDirs  []string           `json:"emptyDirs"`
}

// Status is what the answer to GET /status has of a pod. A container whose state is empty,
// neither waiting nor running nor terminated, is one that the plugin does not know.
type Status struct {
	Name           string                   `json:"name"`
	UID            string                   `json:"UID"`
	Namespace      string                   `json:"namespace"`
	JobID          string                   `json:"JID"`
	Containers     []corev1.ContainerStatus `json:"containers"`
	InitContainers []corev1.ContainerStatus `json:"initContainers"`
}

// Log is the body of GET /getLogs.
type Log struct {
	Namespace     string     `json:"Namespace"`
	PodUID        string     `json:"PodUID"`
	PodName       string     `json:"PodName"`
	ContainerName string     `json:"ContainerName"`
	Opts          LogOptions `json:"Opts"`
}

// LogOptions say what of a log is wanted. Tail goes not with Bytes, nor SinceSeconds with
// SinceTime.
type LogOptions struct {
	Tail         int       `json:"Tail"`
	Bytes        int       `json:"Bytes"`
	Timestamps   bool      `json:"Timestamps"`
	Follow       bool      `json:"Follow"`
	Previous     bool      `json:"Previous"`
	SinceSeconds int       `json:"SinceSeconds"`
	SinceTime    time.Time `json:"SinceTime"`
}

// Ping is the answer to POST /pinglink, of which all is optional. Plugins may answer with
// text instead.
type Ping struct {
	Status    string    `json:"status,omitempty"`
	Resources Resources `json:"resources,omitzero"`
	Taints    []Taint   `json:"taints,omitempty"`
}

// Resources are those of the node.
type Resources struct {
	CPU          *resource.Quantity `json:"cpu,omitempty"`
	Memory       *resource.Quantity `json:"memory,omitempty"`
	Pods         *resource.Quantity `json:"pods,omitempty"`
	Accelerators []Accelerator      `json:"accelerators,omitempty"`
}

// Accelerator is a kind of devices.
type Accelerator struct {
	ResourceType string            `json:"resourceType"`
	Available    resource.Quantity `json:"available"`
}

// Taint is one of the node.
type Taint struct {
	Key    string             `json:"key"`
	Value  string             `json:"value"`
	Effect corev1.TaintEffect `json:"effect"`
}
