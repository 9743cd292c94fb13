package api

import (
	"fmt"
	"testing"
)

// Namespaces and users that take all they can get leave something for one that comes
// later: all users who come through kube-apiserver are one to the node.
func TestNobodyTakesAllSessions(t *testing.T) {
	fill := func(l *StreamLimiter, user, namespace string) (got int) {
		for pod := 0; ; {
			if _, err := l.session(consumer{user, namespace, fmt.Sprint(pod)}); err == nil {
				got++
			} else if pod++; pod > 10 {
				return got
			}
		}
	}
	for _, hostile := range []int{1, 2, 3, 4, 10} {
		t.Run(fmt.Sprintf("%d namespaces", hostile), func(t *testing.T) {
			l := NewStreamLimiter(StreamLimits{})
			for i := range hostile {
				got := fill(l, "kube-apiserver", fmt.Sprint("hostile", i))
				if got == 0 || got > 500 || i == 0 && got != 500 {
					t.Fatalf("namespace %d got %d", i, got)
				}
			}
			if got := fill(l, "kube-apiserver", "victim"); got == 0 {
				t.Error("nothing is left of the user for another namespace")
			}
		})
	}
	for _, hostile := range []int{1, 2, 3, 4} {
		t.Run(fmt.Sprintf("%d users", hostile), func(t *testing.T) {
			l := NewStreamLimiter(StreamLimits{})
			for i := range hostile {
				for namespace := range 20 {
					fill(l, fmt.Sprint("hostile", i), fmt.Sprint(namespace))
				}
			}
			if got := fill(l, "kube-apiserver", "victim"); got == 0 {
				t.Error("nothing is left of the node for another user")
			}
		})
	}
}

func TestShare(t *testing.T) {
	for _, c := range []struct{ limit, used, limitOfAll, usedByAll, want int }{
		{500, 0, 1500, 0, 500},
		{500, 499, 1500, 499, 500}, // alone
		{500, 0, 1500, 750, 250},
		{500, 250, 1500, 1000, 250},
		{500, 0, 1500, 1499, 1},
		{500, 0, 1500, 1500, 0},
		{500, 0, 1500, 1600, 0},
		{2, 0, 3, 2, 1},
		{-1, 10, 1500, 20, -1},   // no limit
		{500, 10, -1, 2000, 500}, // of nothing that is limited
		{500, 10, 2, 2, 500},     // by which it is limited anyway
	} {
		if got := share(c.limit, c.used, c.limitOfAll, c.usedByAll); got != c.want {
			t.Errorf("share(%d, %d, %d, %d) = %d, want %d", c.limit, c.used, c.limitOfAll, c.usedByAll, got, c.want)
		}
	}
}
