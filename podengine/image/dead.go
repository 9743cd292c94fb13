package image

import (
	"cmp"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// podUIDLabel is the runtime's label that says whose a container is.
const podUIDLabel = "io.kubernetes.pod.uid"

// chooseDead returns the containers to remove: those that have exited, but for
// the newest of each container of a pod, as many as are kept, and those younger
// than the minimum age.
func chooseDead(containers []*runtimeapi.Container, keep int, minAge time.Duration, now time.Time) []*runtimeapi.Container {
	type owner struct{ pod, name string }
	dead := map[owner][]*runtimeapi.Container{}
	for _, c := range containers {
		if c.State == runtimeapi.ContainerState_CONTAINER_EXITED {
			o := owner{cmp.Or(c.Labels[podUIDLabel], c.PodSandboxId), c.GetMetadata().GetName()}
			dead[o] = append(dead[o], c)
		}
	}
	var chosen []*runtimeapi.Container
	for _, group := range dead {
		slices.SortFunc(group, func(a, b *runtimeapi.Container) int { return cmp.Compare(b.CreatedAt, a.CreatedAt) })
		for _, c := range group[min(keep, len(group)):] {
			if now.Sub(time.Unix(0, c.CreatedAt)) >= minAge {
				chosen = append(chosen, c)
			}
		}
	}
	return chosen
}
