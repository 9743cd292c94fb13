package nodepools

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
)

// config returns the content of the provider's configuration.
func (e *expansion) config(p *pool, provider Provider, at *field.Path) string {
	var content []byte
	var path string
	raw := bytes.TrimSpace(p.ProviderConfig)
	switch {
	case len(raw) > 0 && raw[0] == '{':
		content = raw
	case len(raw) > 0 && json.Unmarshal(raw, &path) == nil && path != "" && !config.IsText(path):
	case len(raw) > 0: // it may have secrets
		e.invalid(at, field.OmitValueType{}, "write the provider's configuration here, as an object and not as text (without |), or the path of its file")
		return ""
	case p.Provider == "":
		path, content = e.Config, e.Inline
	}
	if path != "" {
		var err error
		if content, err = e.ReadFile(path); err != nil {
			e.invalid(at, path, "it cannot be read: %v", err)
			return ""
		}
	}
	if err := provider.Check(content); err != nil {
		e.invalid(at, path, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return string(content)
}

// capacity returns the resources that the pool sets.
func (e *expansion) capacity(p *pool, at *field.Path) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(p.Capacity)) {
		text := string(p.Capacity[name])
		if problems := validation.IsQualifiedName(string(name)); len(problems) > 0 {
			e.invalid(at.Key(string(name)), text, "this cannot be the name of a resource: %s", strings.Join(problems, "; "))
		}
		q, err := resource.ParseQuantity(text)
		if err != nil || q.Sign() < 0 {
			e.invalid(at.Key(string(name)), text, "write a quantity from 0 on, such as 4, 500m or 16Gi")
		}
		list[name] = q
	}
	return list
}

// takeLone records the one node of a provider, and refuses a second one.
func (e *expansion) takeLone(n Node, at *field.Path) {
	if other, taken := e.lone[n.Provider]; taken {
		e.invalid(at, n.Provider, "it is for one node in a process, and there is node %s besides node %s: start one process for each", n.Name, other)
		return
	}
	e.lone[n.Provider] = n.Name
}
