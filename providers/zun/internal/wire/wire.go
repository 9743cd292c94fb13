// Package wire has Zun's description of capsules, which is sent as JSON.
package wire

// EnvName is a variable in each container with its name in the pod: Zun gives containers
// names of its own.
const EnvName = "KUBERNETES_CONTAINER_NAME"

// Template is Zun's description of a capsule.
type Template struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		RestartPolicy  string      `json:"restartPolicy"`
		InitContainers []Container `json:"initContainers,omitempty"`
		Containers     []Container `json:"containers"`
		Volumes        []Volume    `json:"volumes,omitempty"`
	} `json:"spec"`
	Nets             []map[string]string `json:"nets,omitempty"` // each has a network of Neutron
	AvailabilityZone string              `json:"availabilityZone,omitempty"`
}

// Container is a container of a capsule.
type Container struct {
	Image           string            `json:"image"`
	Command         []string          `json:"command,omitempty"`
	Args            []string          `json:"args,omitempty"`
	WorkDir         string            `json:"workDir,omitempty"`
	Env             map[string]string `json:"env"`
	ImagePullPolicy string            `json:"imagePullPolicy,omitempty"`
	Ports           []Port            `json:"ports,omitempty"`
	Resources       *Resources        `json:"resources,omitempty"`
	VolumeMounts    []Mount           `json:"volumeMounts,omitempty"`
}

// Port is one that a container opens.
type Port struct {
	ContainerPort int32  `json:"containerPort"`
	Protocol      string `json:"protocol"`
}

// Resources are what a container needs.
type Resources struct {
	Requests struct {
		CPU    float64 `json:"cpu,omitempty"`
		Memory int64   `json:"memory,omitempty"` // in MiB
	} `json:"requests"`
}

// Mount is a volume in a container.
type Mount struct {
	Name      string `json:"name"`
	MountPath string `json:"mountPath"`
}

// Volume is a volume of Cinder: one that exists, or a new one.
type Volume struct {
	Name   string `json:"name"`
	Cinder struct {
		VolumeID   string `json:"volumeID,omitempty"`
		Size       int64  `json:"size,omitempty"` // in GiB
		AutoRemove bool   `json:"autoRemove,omitempty"`
	} `json:"cinder"`
}
