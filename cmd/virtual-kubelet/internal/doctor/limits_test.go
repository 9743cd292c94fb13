package doctor

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// quantities returns quantities from "name=quantity" words.
func quantities(text string) corev1.ResourceList {
	all := corev1.ResourceList{}
	for word := range strings.FieldsSeq(text) {
		name, quantity, _ := strings.Cut(word, "=")
		all[corev1.ResourceName(name)] = resource.MustParse(quantity)
	}
	return all
}

func TestShortage(t *testing.T) {
	for _, c := range []struct{ requests, there, want string }{
		{"cpu=1 memory=1Gi pods=1", "cpu=1 memory=1Gi pods=1", ""},
		{"cpu=1500m", "cpu=1", "requests 1500m of cpu, of which there is 1"},
		{"cpu=1", "cpu=-1", "requests 1 of cpu, of which nothing is left"},
		{"example.com/gpu=1 cpu=2", "cpu=1", "requests 1 of example.com/gpu, of which the node has none; requests 2 of cpu, of which there is 1"},
		{"cpu=0 example.com/gpu=0", "pods=1", ""},
	} {
		if got := strings.Join(shortage(quantities(c.requests), quantities(c.there)), "; "); got != c.want {
			t.Errorf("%s of %s: %q, want %q", c.requests, c.there, got, c.want)
		}
	}
}

func TestUsedUp(t *testing.T) {
	for _, c := range []struct{ allocatable, used, want string }{
		{"pods=2 cpu=2 memory=1Gi", "pods=1 cpu=1", ""},
		{"pods=2 cpu=2 memory=1Gi", "pods=2 cpu=1", "2 of 2 pods"},
		{"pods=2 cpu=2 memory=1Gi", "pods=1 cpu=3 memory=1Gi", "3 of 2 cpu|1Gi of 1Gi memory"},
		{"pods=2", "pods=1", ""},
		{"cpu=2", "", "0 of 0 pods"},
		{"pods=2 cpu=2 example.com/gpu=1", "pods=1 example.com/gpu=1", ""},
	} {
		if got := usedUp(quantities(c.allocatable), quantities(c.used)); !slices.Equal(got, slices.DeleteFunc(strings.Split(c.want, "|"), func(s string) bool { return s == "" })) {
			t.Errorf("%s of %s: %q, want %q", c.used, c.allocatable, got, c.want)
		}
	}
}
