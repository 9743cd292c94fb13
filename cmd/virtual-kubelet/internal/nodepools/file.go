package nodepools

import (
	"encoding/json"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
)

// The type of a file.
const (
	APIVersion = "virtual-kubelet.io/v1alpha1"
	Kind       = "NodePools"
)

// file is the content of a file. docs/scale.md has the fields.
type file struct {
	// APIVersion and Kind are the constants of those names.
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// Name is a label of all Nodes of the file. No other file in the cluster may have
	// it.
	Name string `json:"name"`

	// DeleteNodes deletes the Nodes of nodes that the file no longer has. Without it
	// they stay, and are not ready. It needs the Name.
	DeleteNodes bool `json:"deleteNodes"`

	// Pools are decoded one by one, so that errors can name them. They are required:
	// an empty list means no nodes.
	Pools []json.RawMessage `json:"pools"`
}

// pool is a number of nodes that differ only in their names and ports.
type pool struct {
	Name string `json:"name"`
	// Count is how many nodes there are; it is required.
	Count *int `json:"count"`
	// NodeName is the pattern of their names, in which {index} stands for their number,
	// from 0. Empty means the pool's name, a dash, and the number.
	NodeName string `json:"nodeName"`

	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	// Taints are added to the provider's. Nil means that of the command line, an empty
	// list none.
	Taints []corev1.Taint `json:"taints"`
	// Capacity overrides the provider's.
	Capacity map[corev1.ResourceName]scalar `json:"capacity"`

	// OS is linux or windows. Empty means the command line's.
	OS string `json:"os"`
	// Provider runs the pods. Empty means that of the command line, if there is one,
	// with its configuration unless there is one here.
	Provider string `json:"provider"`
	// ProviderConfig is the provider's configuration, or the path of its file, relative
	// to the directory of this one.
	ProviderConfig json.RawMessage `json:"providerConfig"`

	// BasePort is the port of the first node; the others have the next ones. Zero means
	// any free ports.
	BasePort int `json:"basePort"`
}

// scalar is a text, or a number as it was written.
type scalar string

// UnmarshalJSON implements json.Unmarshaler.
func (s *scalar) UnmarshalJSON(data []byte) error {
	text, err := strconv.Unquote(string(data))
	if err != nil {
		text = string(data)
	}
	*s = scalar(text)
	return nil
}

// docs has the fields.
const docs = "docs/scale.md"

// decode decodes a file but for its pools. Without a file nothing else can be checked. Kinds are
// those that it may have, for errors.
func decode(data []byte, kinds []string) (*file, []error) {
	var f file
	errs, ok := config.Decoder{YAML: true, Docs: docs}.Mistakes(data, &f)
	if !ok {
		return nil, errs
	}
	var unlike []error
	if f.APIVersion != APIVersion {
		unlike = append(unlike, field.NotSupported(field.NewPath("apiVersion"), f.APIVersion, []string{APIVersion}))
	}
	if f.Kind != Kind {
		unlike = append(unlike, field.NotSupported(field.NewPath("kind"), f.Kind, kinds))
	}
	if len(unlike) > 0 {
		return nil, unlike
	}
	if f.Pools == nil {
		errs = append(errs, field.Required(field.NewPath("pools"), "list the pools, or write [] for no nodes"))
	}
	return &f, errs
}

// decodePool decodes a pool, and returns the path that errors name it by.
func decodePool(text []byte, i int) (p *pool, at *field.Path, errs []error) {
	p, at = &pool{}, field.NewPath("pools").Index(i)
	var named struct{ Name string }
	if json.Unmarshal(text, &named) == nil && named.Name != "" {
		at = field.NewPath("pools").Key(named.Name)
	}
	errs, ok := config.Decoder{At: at.String(), Docs: docs}.Mistakes(text, p)
	if !ok {
		return nil, at, errs
	}
	return p, at, errs
}
