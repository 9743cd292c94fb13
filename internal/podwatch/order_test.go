package podwatch

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// sent is a pod as it is on its way, for the watch or in an answer to a patch.
type sent struct {
	pod     *corev1.Pod
	data    []byte
	deleted bool
}

// Answers to patches come before their events or after them, in any order, also after the pod has been deleted and
// another one has its name: what is decoded is always what was sent, and the cache has what the API server has.
func TestAnswersAndEventsInAnyOrder(t *testing.T) {
	for seed := range uint64(100) {
		dice := rand.New(rand.NewPCG(seed, 1))
		pods := NewPods()
		pods.replace(nil, "1")
		w := &Watch{nodes: map[string]*Pods{"vk": pods}}
		d := &podDecoder{known: w.get}
		version, server := 1, map[string]*corev1.Pod{}
		var events, answers []sent
		happen := func() {
			version++
			name := fmt.Sprint("web-", dice.IntN(3))
			pod, there := server[name]
			deleted := there && dice.IntN(5) == 0
			if !there {
				pod = apiPod(func(pod *corev1.Pod) { pod.Name, pod.UID = name, types.UID(fmt.Sprint(name, version)) })
			}
			pod = pod.DeepCopy()
			pod.ResourceVersion = strconv.Itoa(version)
			if dice.IntN(2) == 0 {
				pod.Status.Message = fmt.Sprint("message ", dice.IntN(3))
			}
			if dice.IntN(4) == 0 {
				pod.Labels["of"] = fmt.Sprint(dice.IntN(3))
			}
			server[name] = pod
			if deleted {
				delete(server, name)
			}
			one := sent{cached(pod), encode(t, pod), deleted}
			events = append(events, one)
			if there && !deleted && dice.IntN(2) == 0 {
				answers = append(answers, one)
			}
		}
		check := func(what string, got *corev1.Pod, want sent) {
			if !reflect.DeepEqual(got, want.pod) {
				t.Fatalf("seed %d: as %s of version %s came %+v", seed, what, want.pod.ResourceVersion, got)
			}
		}
		show := func() {
			one := events[0]
			events = events[1:]
			pod := d.event(one.data)
			check("an event", pod, one)
			if one.deleted {
				pods.delete(pod)
			} else {
				pods.set(pod)
			}
		}
		for range 60 {
			switch i := dice.IntN(3); {
			case i == 0:
				happen()
			case i == 1 && len(events) > 0:
				show()
			case len(answers) > 0:
				i := dice.IntN(len(answers))
				check("an answer", d.answer(answers[i].data), answers[i])
				answers = append(answers[:i:i], answers[i+1:]...)
			}
		}
		for len(events) > 0 {
			show()
		}
		for _, pod := range pods.List() {
			if !reflect.DeepEqual(pod, cached(server[pod.Name])) {
				t.Errorf("seed %d: %s is in the cache as %+v", seed, pod.Name, pod)
			}
		}
		if len(pods.List()) != len(server) {
			t.Errorf("seed %d: %d pods are in the cache, the server has %d", seed, len(pods.List()), len(server))
		}
	}
}
