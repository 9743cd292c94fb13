package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// hugePages limits a container to the huge pages that it asks for: to none of
// the sizes that it does not name. See
// https://kubernetes.io/docs/tasks/manage-hugepages/scheduling-hugepages/.
func (n Node) hugePages(limits corev1.ResourceList) []*runtimeapi.HugepageLimit {
	bySize := map[string]uint64{}
	for _, size := range n.HugePageSizes {
		bySize[size] = 0
	}
	for name, limit := range limits {
		if size, ok := PageSize(name); ok {
			bySize[size] = uint64(limit.Value())
		}
	}
	var list []*runtimeapi.HugepageLimit
	for size, limit := range bySize {
		list = append(list, &runtimeapi.HugepageLimit{PageSize: size, Limit: limit})
	}
	slices.SortFunc(list, func(a, b *runtimeapi.HugepageLimit) int { return cmp.Compare(a.PageSize, b.PageSize) })
	return list
}

// PageSize is "2MB" for the resource hugepages-2Mi: the CRI and the kernel write
// the size with units whose base is 1024.
func PageSize(name corev1.ResourceName) (string, bool) {
	text, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
	if !ok {
		return "", false
	}
	quantity, err := resource.ParseQuantity(text)
	if err != nil || quantity.Sign() <= 0 {
		return "", false
	}
	size, unit := quantity.Value(), 0
	const units = "BKMGTP"
	for size%1024 == 0 && unit < len(units)-1 {
		size /= 1024
		unit++
	}
	if unit == 0 {
		return fmt.Sprintf("%dB", size), true
	}
	return fmt.Sprintf("%d%cB", size, units[unit]), true
}
