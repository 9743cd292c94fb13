package plugin

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink/internal/wire"
)

// deleteWithin asks for the deletion of a pod.
func deleteWithin(t *testing.T, s *Server, pod *corev1.Pod, seconds int64) {
	t.Helper()
	pod.DeletionGracePeriodSeconds = &seconds
	if code, text := ask(s, http.MethodPost, "/delete", pod); code != http.StatusOK {
		t.Fatalf("%d %s", code, text)
	}
}

// A pod that takes the name of one which has gone, before that was noticed, is not deleted in its place.
func TestANamesakeOutlivesTheRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPods()
		p.stubborn, p.byName = true, true
		store := newFiles()
		s := start(t, p, store)
		ask(s, http.MethodPost, "/create", wire.PluginCreate{Pod: newPod("uid-1")})
		deleteWithin(t, s, newPod("uid-1"), 10)
		time.Sleep(time.Second)
		p.mu.Lock()
		delete(p.running, "uid-1") // it has ended
		p.mu.Unlock()
		if code, text := ask(s, http.MethodPost, "/create", wire.PluginCreate{Pod: newPod("uid-2")}); code != http.StatusOK {
			t.Fatalf("%d %s", code, text)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(p.running) != 1 || p.running["uid-2"] == nil || len(store.texts) != 1 {
			t.Errorf("of the pods %v are left, deleted with the grace periods %v", p.running, p.graces)
		}
	})
}

func TestTheListerKeepsANamesake(t *testing.T) {
	p := newPods()
	s := start(t, p, nil)
	for _, uid := range []string{"uid-1", "uid-2"} {
		if err := s.cluster.set(&record{Pod: newPod(uid)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.cluster.drop(&record{Pod: newPod("uid-1")}); err != nil {
		t.Fatal(err)
	}
	if pod, err := p.init.Pods.Pods("default").Get("web"); err != nil || pod.UID != "uid-2" {
		t.Errorf("the provider sees %v, %v", pod, err)
	}
	if err := s.cluster.drop(&record{Pod: newPod("uid-2")}); err != nil {
		t.Fatal(err)
	}
	if pod, err := p.init.Pods.Pods("default").Get("web"); err == nil {
		t.Errorf("the provider still sees %v", pod)
	}
}

// A grace period that gets shorter counts, also after a restart, and one that is longer, or comes again,
// does not.
func TestAGracePeriodGetsShorter(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := newPods()
			p.stubborn = true
			store := newFiles()
			s := start(t, p, store)
			pod := newPod("uid-1")
			ask(s, http.MethodPost, "/create", wire.PluginCreate{Pod: pod})
			for _, seconds := range []int64{3600, 3600, 7200} {
				deleteWithin(t, s, pod, seconds)
				time.Sleep(7 * time.Second) // the next one comes between two looks at the pod
			}
			deleteWithin(t, s, pod, 5)
			if restarts {
				_ = s.Close()
				s = start(t, p, store)
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if len(p.running) != 0 || s.cluster.record("uid-1") != nil || !slices.Equal(p.graces, []int64{3600, 5, 0}) {
				t.Errorf("of the pods %v are left, deleted with the grace periods %v", p.running, p.graces)
			}
		})
	}
}
