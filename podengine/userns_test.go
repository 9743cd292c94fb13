package podengine

import (
	"fmt"
	"os"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

func withOwnUsers(pod *corev1.Pod) { pod.Spec.HostUsers = ptr.To(false) }

// idsOf are the IDs of the host that the containers of a pod have.
func idsOf(r *rig, container string) string {
	r.t.Helper()
	c := r.runtime.newest(container)
	if c == nil {
		return "no container"
	}
	users := c.config.Linux.SecurityContext.NamespaceOptions.UsernsOptions
	if users.GetMode() != runtimeapi.NamespaceMode_POD || len(users.Uids) != 1 || len(users.Gids) != 1 || !proto.Equal(users.Uids[0], users.Gids[0]) || users.Uids[0].ContainerId != 0 {
		return fmt.Sprint(users)
	}
	for _, m := range c.config.Mounts {
		if len(m.UidMappings) != 1 {
			return "files are not mapped"
		}
	}
	box := r.runtime.boxes[c.box].config.Linux.SecurityContext.NamespaceOptions.UsernsOptions
	if box.GetMode() != users.Mode || len(box.Uids) != 1 || box.Uids[0].HostId != users.Uids[0].HostId {
		return "the sandbox has others"
	}
	return fmt.Sprintf("%d+%d", users.Uids[0].HostId, users.Uids[0].Length)
}

func TestUserNamespaces(t *testing.T) {
	inBubbleWith(t, func(r *rig) {
		r.runtime.features = &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true}
		r.runtime.plans["b"] = plan{runs: 10 * time.Second}
	}, func(r *rig) {
		a, b := makePod("a", withOwnUsers), makePod("b", withOwnUsers)
		r.create(a)
		r.create(b)
		want := func(container, ids string) {
			t.Helper()
			if got := idsOf(r, container); got != ids {
				t.Errorf("%s has the IDs %s, want %s", container, got, ids)
			}
		}
		want("a", "65536+65536")
		want("b", "131072+65536")
		r.restart(time.Minute)
		r.after(time.Minute)
		want("b", "131072+65536") // in another attempt
		r.delete(a, 0)
		r.after(time.Second)
		c, d := makePod("c", withOwnUsers), makePod("d", withOwnUsers)
		r.create(c)
		r.create(d)
		want("c", "65536+65536")
		want("d", "196608+65536")
		for _, pod := range []*corev1.Pod{b, c, d} {
			r.delete(pod, 0)
		}
		r.after(time.Second)
		r.wantGone(d)
	})
}

// Without user namespaces a pod that asks for one does not run.
func TestUserNamespacesAreNotThere(t *testing.T) {
	for name, features := range map[string]*runtimeapi.RuntimeHandlerFeatures{"not supported": {}, "the runtime is old": nil} {
		t.Run(name, func(t *testing.T) {
			inBubbleWith(t, func(r *rig) { r.runtime.features = features }, func(r *rig) {
				pod := makePod("a", withOwnUsers)
				r.create(pod)
				r.after(time.Minute)
				r.wantState(pod, "Pending a=ContainerCreating")
				r.wantEvents(`Warning FailedCreatePodSandBox: Failed to create pod sandbox: the pod has hostUsers: false, but the container runtime's handler "" does not support user namespaces: remove hostUsers from the pod, or have it run elsewhere`)
				if n := r.runtime.left(); n != 0 {
					t.Errorf("%d sandboxes and containers were made", n)
				}
			})
		})
	}
}

// IDs that cannot be read are not given to another pod.
func TestUserIDsThatCannotBeRead(t *testing.T) {
	inBubbleWith(t, func(r *rig) { r.runtime.features = &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true} }, func(r *rig) {
		a := makePod("a", withOwnUsers)
		r.create(a)
		if err := os.WriteFile(r.idsFile(a.UID), []byte("many"), 0o600); err != nil {
			t.Fatal(err)
		}
		b := makePod("b", withOwnUsers)
		r.create(b)
		r.wantState(b, "Pending b=ContainerCreating")
		if n := r.events.count("cannot read the user IDs"); n != 1 {
			t.Errorf("events are %v", r.events.drain())
		}
	})
}

func TestLowestFree(t *testing.T) {
	for _, c := range []struct {
		from  uint64
		taken []uint64
		want  uint64 // 0: there are none
	}{
		{65536, nil, 65536},
		{65536, []uint64{65536, 196608}, 131072},
		{65536, []uint64{100000}, 196608}, // it overlaps with two
		{200000, []uint64{65536}, 200000},
		{1<<32 - 65536 - 1, nil, 1<<32 - 65536 - 1},
		{1<<32 - 65536, nil, 0},
		{1<<32 - 2*65536, []uint64{1<<32 - 2*65536}, 0},
	} {
		if got, err := lowestFree(c.from, c.taken); got != c.want || (err == nil) != (c.want > 0) {
			t.Errorf("from %d without %d: %d, %v, want %d", c.from, c.taken, got, err, c.want)
		}
	}
}
