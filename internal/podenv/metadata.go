package podenv

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// metadata returns the value of a path below a pod's metadata, such as
// metadata.name or metadata.labels['app']. A key that the pod does not have is
// empty.
func metadata(pod *corev1.Pod, path string) (string, error) {
	if object, key, ok := subscript(path); ok {
		return byKey(pod, path, object, key)
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return lines(pod.Labels), nil
	case "metadata.annotations":
		return lines(pod.Annotations), nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %v", path)
}

func byKey(pod *corev1.Pod, path, object, key string) (string, error) {
	var values map[string]string
	name := key
	switch object {
	case "metadata.labels":
		values = pod.Labels
	case "metadata.annotations":
		// The API server takes annotations with capitals in the prefix, too.
		values, name = pod.Annotations, strings.ToLower(key)
	default:
		return "", fmt.Errorf("fieldPath %q does not support subscript", path)
	}
	if mistakes := validation.IsQualifiedName(name); len(mistakes) > 0 {
		return "", fmt.Errorf("invalid key subscript in %s: %s", path, strings.Join(mistakes, ";"))
	}
	return values[key], nil
}

// subscript splits object['key'].
func subscript(path string) (object, key string, ok bool) {
	inner, ok := strings.CutSuffix(path, "']")
	if !ok {
		return "", "", false
	}
	object, key, ok = strings.Cut(inner, "['")
	return object, key, ok && object != ""
}

// lines formats labels or annotations as the kubelet does: key="value", sorted.
func lines(values map[string]string) string {
	var b strings.Builder
	for i, key := range slices.Sorted(maps.Keys(values)) {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s=%q", key, values[key])
	}
	return b.String()
}
