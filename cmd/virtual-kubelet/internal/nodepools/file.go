package nodepools

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	strictjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
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

// decode decodes a file but for its pools. Without a file nothing else can be checked.
func decode(data []byte) (*file, []error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	_, _ = documents.Read() // the first is read below
	if another, _ := documents.Read(); len(bytes.TrimSpace(another)) > 0 {
		return nil, []error{errors.New("there are several YAML documents: write all pools into one")}
	}
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, []error{fmt.Errorf("this is no YAML: %s", strings.Join(strings.Fields(err.Error()), " "))}
	}
	var f file
	errs, ok := strictly(text, &f, nil)
	if !ok {
		return nil, errs
	}
	if f.APIVersion != APIVersion || f.Kind != Kind {
		return nil, []error{
			field.NotSupported(field.NewPath("apiVersion"), f.APIVersion, []string{APIVersion}),
			field.NotSupported(field.NewPath("kind"), f.Kind, []string{Kind}),
		}
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
	errs, ok := strictly(text, p, at)
	if !ok {
		return nil, at, errs
	}
	return p, at, errs
}

// strictly unmarshals what is at a path, which may be nil. It returns all that is wrong,
// and whether the value can be checked further.
func strictly(text []byte, into any, at *field.Path) (errs []error, ok bool) {
	unknown, err := strictjson.UnmarshalStrict(text, into)
	for _, err := range unknown {
		if at != nil {
			err = fmt.Errorf("%s: %w", at, err)
		}
		errs = append(errs, fmt.Errorf("%w: leave it out, or see docs/scale.md for the fields that there are", err))
	}
	if err == nil {
		return errs, true
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && (wrong.Field != "" || at != nil) {
		of := at
		if wrong.Field != "" {
			of = at.Child(wrong.Field)
		}
		err = fmt.Errorf("%s: it is of type %s, and has to be of type %s: see docs/scale.md", of, wrong.Value, wrong.Type)
	}
	return append(errs, err), false
}
