package podstatus

import (
	corev1 "k8s.io/api/core/v1"
)

// mergeList is a list that the API server merges, element by element, by a key.
type mergeList[T any] struct {
	name, key string
	keyOf     func(*T) string
	fields    func(d *diff, was, is *T) // writes the others that differ
}

var (
	conditions = mergeList[corev1.PodCondition]{
		name: "conditions", key: "type",
		keyOf: func(c *corev1.PodCondition) string { return string(c.Type) },
		fields: func(d *diff, was, is *corev1.PodCondition) {
			d.number("observedGeneration", was.ObservedGeneration, is.ObservedGeneration)
			if was.Status != is.Status { // which is never left out
				d.key("status")
				d.string(string(is.Status))
			}
			d.time("lastProbeTime", was.LastProbeTime, is.LastProbeTime)
			d.time("lastTransitionTime", was.LastTransitionTime, is.LastTransitionTime)
			d.text("reason", was.Reason, is.Reason)
			d.text("message", was.Message, is.Message)
		},
	}
	hostIPs = mergeList[corev1.HostIP]{
		name: "hostIPs", key: "ip",
		keyOf:  func(ip *corev1.HostIP) string { return ip.IP },
		fields: func(*diff, *corev1.HostIP, *corev1.HostIP) {},
	}
	podIPs = mergeList[corev1.PodIP]{
		name: "podIPs", key: "ip",
		keyOf:  func(ip *corev1.PodIP) string { return ip.IP },
		fields: func(*diff, *corev1.PodIP, *corev1.PodIP) {},
	}
)

// mergeable reports whether the keys of the lists of a status name one element
// each.
func mergeable(s *corev1.PodStatus) bool {
	return conditions.unique(s.Conditions) && hostIPs.unique(s.HostIPs) && podIPs.unique(s.PodIPs)
}

func (l *mergeList[T]) unique(list []T) bool {
	for i := range list {
		if l.find(list, l.keyOf(&list[i])) != i {
			return false
		}
	}
	return true
}

// find returns the index of the first element with a key, or -1.
func (l *mergeList[T]) find(list []T, key string) int {
	for i := range list {
		if l.keyOf(&list[i]) == key {
			return i
		}
	}
	return -1
}

// write writes what of the list differs.
func (l *mergeList[T]) write(d *diff, was, is []T) {
	if len(is) == 0 {
		if len(was) > 0 {
			d.key(l.name)
			d.null()
		}
		return
	}
	begin := len(d.buf)
	d.key(l.name)
	d.open('[')
	empty := len(d.buf)
	for i := range is {
		l.element(d, was, &is[i])
	}
	for i := range was {
		if key := l.keyOf(&was[i]); l.find(is, key) < 0 {
			d.next()
			d.open('{')
			d.text("$patch", "", "delete")
			d.key(l.key)
			d.string(key)
			d.close('}')
		}
	}
	if len(d.buf) == empty {
		d.buf = d.buf[:begin]
	} else {
		d.close(']')
	}
	if l.orderIsLost(was, is) {
		l.order(d, is)
	}
}

// element writes an element that is new, or what differs of one that is not.
func (l *mergeList[T]) element(d *diff, was []T, is *T) {
	begin := len(d.buf)
	d.next()
	d.open('{')
	d.key(l.key)
	d.string(l.keyOf(is))
	bare := len(d.buf)
	if i := l.find(was, l.keyOf(is)); i < 0 {
		var none T
		l.fields(d, &none, is)
	} else if l.fields(d, &was[i], is); len(d.buf) == bare {
		d.buf = d.buf[:begin]
		return
	}
	d.close('}')
}

// orderIsLost reports whether the API server would not arrive at the order of is
// by itself: it keeps the elements that it has in their order, but not new ones
// behind them.
func (l *mergeList[T]) orderIsLost(was, is []T) bool {
	if len(was) == 0 {
		return false
	}
	last := -1
	for i := range is {
		at := l.find(was, l.keyOf(&is[i]))
		if at <= last {
			return true
		}
		last = at
	}
	return false
}

func (l *mergeList[T]) order(d *diff, is []T) {
	d.key("$setElementOrder/" + l.name)
	d.open('[')
	for i := range is {
		d.next()
		d.open('{')
		d.key(l.key)
		d.string(l.keyOf(&is[i]))
		d.close('}')
	}
	d.close(']')
}
