package nodepools

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Label is on the Nodes of a file with a name, which is its value.
const Label = "virtual-kubelet.io/node-pools"

// Provider is what a file needs of a provider.
type Provider struct {
	// OneNode means that a process can have one node of the provider only.
	OneNode bool
	// Check returns what is wrong with a configuration, which is nil without one.
	Check func(config []byte) error
}

// Options are what a file does not have.
type Options struct {
	// File is the name of the file, for errors.
	File string
	// Kinds are those of the documents that the file may have beside the pools, for errors.
	Kinds []string
	// Providers are the known providers, by name.
	Providers map[string]Provider
	// OS, Provider and Config are the defaults of pools; Config is the path of that
	// provider's configuration, and may be empty. Taints returns the default taints of
	// a pool with a provider.
	OS, Provider, Config string
	// Inline is that configuration itself, if it is in no file of its own.
	Inline []byte
	Taints func(provider string) []corev1.Taint
	// PortPerNode means that each node has a port of its own.
	PortPerNode bool
	// ReadFile reads a provider's configuration.
	ReadFile func(path string) ([]byte, error)
}

// Wanted is what a file wants. Its nodes share maps and lists, which are read-only.
type Wanted struct {
	Name        string // of the file; may be empty
	Nodes       []Node
	Providers   []string // of all pools, also of those without nodes
	DeleteNodes bool
}

// Node is a node as a file wants it.
type Node struct {
	Name string
	Overlay
	OS             string
	Provider       string
	ProviderConfig string // its content; empty without one
	Port           int    // zero: any free one, or that of all
}

// Parse parses a file, strictly. The error names all that is wrong with it, each with the
// file, the pool, the field, its value, and what to do. If only some of the pools are
// wrong, Parse also returns what the others want, without DeleteNodes.
func Parse(data []byte, o Options) (*Wanted, error) {
	f, errs := decode(data, append([]string{Kind}, o.Kinds...))
	partly := false
	var wanted *Wanted
	if f != nil {
		e := expansion{Options: o, file: f, errs: errs, pools: map[string]bool{}, nodes: map[string]bool{}, used: map[string]bool{}, ports: map[int]string{}, lone: map[string]string{}}
		e.checkName()
		wrong := len(e.errs) // with the file itself
		good := 0
		for i := range f.Pools {
			before, nodes := len(e.errs), len(e.wanted)
			e.pool(f.Pools[i], i)
			if len(e.errs) > before {
				e.wanted = e.wanted[:nodes]
				continue
			}
			good++
		}
		errs, partly = e.errs, wrong == 0 && good > 0
		wanted = &Wanted{Name: f.Name, Nodes: e.wanted, Providers: slices.Sorted(maps.Keys(e.used)), DeleteNodes: f.DeleteNodes}
	}
	if len(errs) == 0 {
		return wanted, nil
	}
	for i, err := range errs {
		errs[i] = fmt.Errorf("%s: %w", o.File, err)
	}
	if !partly {
		return nil, errors.Join(errs...)
	}
	wanted.DeleteNodes = false
	return wanted, errors.Join(errs...)
}

// MaxNodes bounds the damage of a typing error.
const MaxNodes = 10000

// expansion makes nodes of pools, and collects their errors.
type expansion struct {
	Options
	file   *file
	errs   []error
	wanted []Node

	pools, nodes, used map[string]bool   // names of pools, nodes and providers
	ports              map[int]string    // the node of each port
	lone               map[string]string // the one node of a provider with OneNode
}

// pool adds the nodes of a pool.
func (e *expansion) pool(text []byte, i int) {
	p, at, errs := decodePool(text, i)
	e.errs = append(e.errs, errs...)
	if p == nil {
		return
	}
	names := e.names(p, at)
	template := Node{
		Overlay:  Overlay{Labels: e.labels(p), Annotations: p.Annotations, Taints: p.Taints, Capacity: e.capacity(p, at.Child("capacity"))},
		OS:       e.os(p, at.Child("os")),
		Provider: cmp.Or(p.Provider, e.Provider),
	}
	e.metadata(p, at)
	if p.Taints == nil {
		template.Taints = e.Taints(template.Provider)
	}
	e.used[template.Provider] = true
	known, ok := e.Providers[template.Provider]
	if ok {
		template.ProviderConfig = e.config(p, known, at.Child("providerConfig"))
	} else if template.Provider == "" {
		e.add(field.Required(at.Child("provider"), "name the provider here, or a default for all pools with --provider"))
	} else {
		e.add(field.NotSupported(at.Child("provider"), template.Provider, slices.Sorted(maps.Keys(e.Providers))))
	}
	ports := e.checkBasePort(p, len(names), at.Child("basePort"))
	first := len(e.wanted)
	for i, name := range names {
		n := template
		n.Name = name
		if ports {
			n.Port = p.BasePort + i
		}
		if known.OneNode {
			e.takeLone(n, at.Child("provider"))
		}
		e.wanted = append(e.wanted, n)
	}
	if ports {
		e.takePorts(e.wanted[first:], at.Child("basePort"))
	}
}

// labels returns the pool's labels, and that of the file.
func (e *expansion) labels(p *pool) map[string]string {
	if e.file.Name == "" {
		return p.Labels
	}
	return overlaid(p.Labels, map[string]string{Label: e.file.Name})
}

func (e *expansion) add(err *field.Error) { e.errs = append(e.errs, err) }

func (e *expansion) invalid(at *field.Path, value any, format string, args ...any) {
	e.add(field.Invalid(at, value, fmt.Sprintf(format, args...)))
}
