package api

import (
	"context"
	"encoding/json"
	"net/http"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodListerFunc lists pods. A nil pod in the list is skipped. The pods are only
// read, and only until the request has been answered.
type PodListerFunc func(context.Context) ([]*v1.Pod, error)

// HandlePods answers with the pods as a PodList, as the kubelet does at /pods.
func HandlePods(getPods PodListerFunc) http.HandlerFunc {
	return handlePodList(getPods, func(pod *v1.Pod) v1.Pod { return *pod })
}

// HandleRunningPods answers with a PodList that tells of each pod only its
// name, namespace and UID, and the names and images of its containers, as the
// kubelet does at /runningpods/.
func HandleRunningPods(getPods PodListerFunc) http.HandlerFunc {
	return handlePodList(getPods, runningPod)
}

func handlePodList(getPods PodListerFunc, item func(*v1.Pod) v1.Pod) http.HandlerFunc {
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
			if pod != nil {
				list.Items = append(list.Items, item(pod))
			}
		}
		return writeJSON(w, &list)
	})
}

func runningPod(pod *v1.Pod) v1.Pod {
	running := v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID}}
	for _, c := range pod.Spec.Containers {
		running.Spec.Containers = append(running.Spec.Containers, v1.Container{Name: c.Name, Image: c.Image})
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
