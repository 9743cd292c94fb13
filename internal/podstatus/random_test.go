package podstatus

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// random draws values of few kinds, so that two are often the same.
type random struct{ *rand.Rand }

func newRandom(seed uint64) random { return random{rand.New(rand.NewPCG(seed, 0))} }

func (r random) status() *corev1.PodStatus {
	var s corev1.PodStatus
	r.fill(reflect.ValueOf(&s).Elem())
	if r.IntN(4) > 0 { // else Patch goes the generic way
		s.ResourceClaimStatuses, s.ExtendedResourceClaimStatus, s.NodeAllocatableResourceClaimStatuses = nil, nil, nil
		s.AllocatedResources, s.Resources = nil, nil
	}
	dropRepeated(&s)
	return &s
}

// change returns a status that has some of the fields of s, and of its
// conditions and containers.
func (r random) change(s *corev1.PodStatus) *corev1.PodStatus {
	changed, other := s.DeepCopy(), r.status()
	to, from := reflect.ValueOf(changed).Elem(), reflect.ValueOf(other).Elem()
	for i := range to.NumField() {
		if r.IntN(5) == 0 {
			to.Field(i).Set(from.Field(i))
		}
	}
	for i := range changed.Conditions {
		if r.IntN(3) == 0 {
			kind := changed.Conditions[i].Type
			r.fill(reflect.ValueOf(&changed.Conditions[i]).Elem())
			changed.Conditions[i].Type = kind
		}
	}
	if r.IntN(3) == 0 {
		changed.Conditions = append(changed.Conditions, other.Conditions...)
		changed.PodIPs = append(changed.PodIPs, other.PodIPs...)
	}
	if r.IntN(3) == 0 {
		r.Shuffle(len(changed.Conditions), reflect.Swapper(changed.Conditions))
		r.Shuffle(len(changed.HostIPs), reflect.Swapper(changed.HostIPs))
	}
	for i := range changed.ContainerStatuses {
		if r.IntN(4) == 0 {
			c := reflect.ValueOf(&changed.ContainerStatuses[i]).Elem()
			r.fill(c.Field(r.IntN(c.NumField())))
		}
	}
	dropRepeated(changed)
	return changed
}

// dropRepeated drops the elements of merged lists whose key is not new.
func dropRepeated(s *corev1.PodStatus) {
	s.Conditions = firsts(s.Conditions, func(c corev1.PodCondition) string { return string(c.Type) })
	s.HostIPs = firsts(s.HostIPs, func(ip corev1.HostIP) string { return ip.IP })
	s.PodIPs = firsts(s.PodIPs, func(ip corev1.PodIP) string { return ip.IP })
	s.ResourceClaimStatuses = firsts(s.ResourceClaimStatuses, func(c corev1.PodResourceClaimStatus) string { return c.Name })
}

func firsts[T any](list []T, key func(T) string) []T {
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(e T) bool {
		k := key(e)
		repeated := seen[k]
		seen[k] = true
		return repeated
	})
}

var (
	texts      = []string{"", "a", "b", "c", "d", "ü", `<q"\>` + "\n"}
	quantities = []string{"1", "200m", "1Gi"}
)

// fill sets v, and what is in it, by chance.
func (r random) fill(v reflect.Value) {
	switch v.Interface().(type) {
	case metav1.Time:
		t := metav1.Time{}
		if n := r.IntN(4); n > 0 {
			t.Time = time.Unix(int64(1700000000+n), int64(r.IntN(2))).In(time.FixedZone("", 3600*r.IntN(3)))
		}
		v.Set(reflect.ValueOf(t))
		return
	case resource.Quantity:
		v.Set(reflect.ValueOf(resource.MustParse(quantities[r.IntN(len(quantities))])))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(texts[r.IntN(len(texts))])
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int32, reflect.Int64:
		v.SetInt(r.Int64N(3))
	case reflect.Pointer:
		v.SetZero()
		if r.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			r.fill(v.Elem())
		}
	case reflect.Slice:
		v.SetZero()
		if n := r.IntN(4); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n-1, n-1)) // also an empty one
		}
		for i := range v.Len() {
			r.fill(v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range r.IntN(3) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			r.fill(key)
			r.fill(value)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			r.fill(v.Field(i))
		}
	default:
		panic("no way to fill a " + v.Type().String())
	}
}
