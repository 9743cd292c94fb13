package api

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodListerFunc lists pods. A nil pod in the list is skipped. The pods are only
// read, and only until the request has been answered.
type PodListerFunc func(context.Context) ([]*v1.Pod, error)

// HandlePods answers with the pods as a PodList, as the kubelet does at /pods.
func HandlePods(getPods PodListerFunc) http.HandlerFunc {
	return handlePodList(getPods, func(pod *v1.Pod) (v1.Pod, bool) { return *pod, true })
}

// HandleRunningPods answers with a PodList of the pods that have not ended,
// which has of each only its name, namespace and UID, and the names and
// images of the containers that run, as the kubelet does at /runningpods/. The
// image is the ID that the status has, or else the name in the spec. What runs
// is taken from the container statuses; without them all containers do.
func HandleRunningPods(getPods PodListerFunc) http.HandlerFunc {
	return handlePodList(getPods, runningPod)
}

// handlePodList answers with those of the pods that item selects.
func handlePodList(getPods PodListerFunc, item func(*v1.Pod) (_ v1.Pod, ok bool)) http.HandlerFunc {
	return answer(func(w http.ResponseWriter, r *http.Request) error {
		if getPods == nil {
			return notImplemented("GetPods", "PodListerFunc")
		}
		pods, err := getPods(r.Context())
		if err != nil {
			return err
		}
		list := v1.PodList{
			TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: v1.SchemeGroupVersion.String()},
			Items:    make([]v1.Pod, 0, len(pods)),
		}
		for _, pod := range pods {
			if pod == nil {
				continue
			}
			if selected, ok := item(pod); ok {
				list.Items = append(list.Items, selected)
			}
		}
		return writeJSON(w, &list)
	})
}

func runningPod(pod *v1.Pod) (v1.Pod, bool) {
	if pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
		return v1.Pod{}, false
	}
	running := v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID}}
	running.Spec.Containers = runningContainers(pod)
	return running, true
}

func runningContainers(pod *v1.Pod) (running []v1.Container) {
	names := map[string]string{} // of images, by container
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		names[c.Name] = c.Image
	}
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses)
	if len(statuses) == 0 {
		for _, c := range pod.Spec.Containers {
			running = append(running, v1.Container{Name: c.Name, Image: c.Image})
		}
		return running
	}
	for _, status := range statuses {
		if status.State.Running != nil {
			image := cmp.Or(status.ImageID, status.Image, names[status.Name])
			running = append(running, v1.Container{Name: status.Name, Image: image})
		}
	}
	return running
}

// writeJSON encodes all before it writes: a failure still is a clean 500.
func writeJSON(w http.ResponseWriter, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n'))
	return nil
}
