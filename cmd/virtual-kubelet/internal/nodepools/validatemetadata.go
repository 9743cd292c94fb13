package nodepools

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ownLabels are labels that a pool cannot set, with what to do instead.
var ownLabels = map[string]string{
	corev1.LabelHostname: "it is the name of each node: leave it out",
	corev1.LabelOSStable: "write os instead",
	Label:                "write it as the name of the file",
}

// metadata checks labels, annotations and taints.
func (e *expansion) metadata(p *pool, at *field.Path) {
	for _, key := range slices.Sorted(maps.Keys(p.Labels)) {
		at, value := at.Child("labels").Key(key), p.Labels[key]
		for _, problem := range validation.IsQualifiedName(key) {
			e.invalid(at, key, "this cannot be a label: %s", problem)
		}
		for _, problem := range validation.IsValidLabelValue(value) {
			e.invalid(at, value, "%s", problem)
		}
		if instead := ownLabels[key]; instead != "" {
			e.invalid(at, value, "%s", instead)
		}
	}
	for _, err := range apivalidation.ValidateAnnotations(p.Annotations, at.Child("annotations")) {
		e.add(err)
	}
	if value, ok := p.Annotations["virtual-kubelet.io/owned"]; ok {
		e.invalid(at.Child("annotations").Key("virtual-kubelet.io/owned"), value, "it is virtual-kubelet's own: leave it out")
	}
	seen := map[string]bool{}
	for i, t := range p.Taints {
		at := at.Child("taints").Index(i)
		e.taint(t, at)
		name := t.Key + ":" + string(t.Effect)
		if seen[name] {
			e.invalid(at, name, "there is a taint of this key and effect already: leave out one of the two")
		}
		seen[name] = true
	}
}

var taintEffects = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}

func (e *expansion) taint(t corev1.Taint, at *field.Path) {
	for _, problem := range validation.IsQualifiedName(t.Key) {
		e.invalid(at.Child("key"), t.Key, "%s", problem)
	}
	for _, problem := range validation.IsValidLabelValue(t.Value) {
		e.invalid(at.Child("value"), t.Value, "%s", problem)
	}
	if !slices.Contains(taintEffects, t.Effect) {
		e.add(field.NotSupported(at.Child("effect"), t.Effect, taintEffects))
	}
	if t.TimeAdded != nil {
		e.add(field.Forbidden(at.Child("timeAdded"), "the control plane sets it: leave it out"))
	}
}
