package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// usual are the resources that every pod takes, or may take, some of. A node on which one
// is used up takes no further pods; another one that is used up is just in use.
var usual = []corev1.ResourceName{corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory}

// checkLimits compares what the node gives, by its provider, with what its pods request,
// and with what pods request that wait for this node.
func checkLimits(ctx context.Context, e *examination) Finding {
	free, used := e.object.Status.Allocatable.DeepCopy(), corev1.ResourceList{}
	read, complete, err := e.eachPod(ctx, "spec.nodeName="+e.node.Name+",status.phase!=Succeeded,status.phase!=Failed", func(pod *corev1.Pod) {
		for name, quantity := range requestsOf(pod) {
			subtract(free, name, quantity)
			sum := used[name]
			sum.Add(quantity)
			used[name] = sum
		}
	})
	if err != nil {
		return e.unread("the pods of the node", err)
	}
	if !complete {
		return notChecked("the node has more than %d pods", read)
	}

	var never, now []string
	var tooLarge, tooLate string // what the first of each lacks
	_, _, err = e.eachPod(ctx, "spec.nodeName=,status.phase=Pending", func(pod *corev1.Pod) {
		if _, kept := e.keepsOut(pod); kept || !e.askedBy(pod) {
			return
		}
		requests, name := requestsOf(pod), pod.Namespace+"/"+pod.Name
		if lacks := shortage(requests, e.object.Status.Allocatable); len(lacks) > 0 {
			if never = append(never, name); len(never) == 1 {
				tooLarge = strings.Join(lacks, ", ")
			}
		} else if lacks := shortage(requests, free); len(lacks) > 0 {
			if now = append(now, name); len(now) == 1 {
				tooLate = strings.Join(lacks, ", ")
			}
		}
	})
	if err != nil {
		return e.unread("the pods that are pending", err)
	}
	more := "more in the configuration of the provider (virtual-kubelet providers " + Word(e.object.Labels[node.LabelProvider]) + "), or another node"
	if len(never) > 0 {
		return warning("a smaller request in the template of the pod, or "+more,
			"the node can never take pods that ask for it, even when it is empty: %s; the first %s", named(never), tooLarge)
	}
	if len(now) > 0 {
		return warning("kubectl get pods -A --field-selector spec.nodeName="+Word(e.node.Name)+" shows what could be deleted; otherwise "+more,
			"the node has no room for pods that ask for it: %s; the first %s", named(now), tooLate)
	}
	if full := usedUp(e.object.Status.Allocatable, used); len(full) > 0 {
		return warning(more, "the node is full, and takes no further pods: %s", strings.Join(full, ", "))
	}
	return ok("%s are requested", strings.Join(shares(e.object.Status.Allocatable, used), ", "))
}

// requestsOf returns what a pod takes of a node; one of its pods, too.
func requestsOf(pod *corev1.Pod) corev1.ResourceList {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: pod.Spec.NodeName != ""})
	requests[corev1.ResourcePods] = resource.MustParse("1")
	return requests
}

// subtract takes a quantity of a resource away, also where there is none of it.
func subtract(from corev1.ResourceList, name corev1.ResourceName, quantity resource.Quantity) {
	left := from[name]
	left.Sub(quantity)
	from[name] = left
}

// shortage returns what is requested beyond what there is, in the order of the names.
func shortage(requests, there corev1.ResourceList) (lacks []string) {
	for name, wanted := range requests {
		has, known := there[name]
		switch {
		case wanted.IsZero() || has.Cmp(wanted) >= 0:
		case !known:
			lacks = append(lacks, fmt.Sprintf("requests %s of %s, of which the node has none", wanted.String(), name))
		case has.Sign() < 0: // more than all is in use
			lacks = append(lacks, fmt.Sprintf("requests %s of %s, of which nothing is left", wanted.String(), name))
		default:
			lacks = append(lacks, fmt.Sprintf("requests %s of %s, of which there is %s", wanted.String(), name, has.String()))
		}
	}
	slices.Sort(lacks)
	return lacks
}

// usedUp returns the usual resources of which nothing is left. Who gives no CPU or memory
// at all takes pods that request none; who gives no pods takes none.
func usedUp(allocatable, used corev1.ResourceList) (full []string) {
	for _, name := range usual {
		has, takes := allocatable[name], used[name]
		if takes.Cmp(has) >= 0 && (name == corev1.ResourcePods || !takes.IsZero()) {
			full = append(full, share(name, takes, has))
		}
	}
	return full
}

// shares returns how much of the usual resources is used.
func shares(allocatable, used corev1.ResourceList) (all []string) {
	for _, name := range usual {
		all = append(all, share(name, used[name], allocatable[name]))
	}
	return all
}

func share(name corev1.ResourceName, used, has resource.Quantity) string {
	return fmt.Sprintf("%s of %s %s", used.String(), has.String(), name)
}

// eachPod reads pods in pages, and not without end: complete reports whether it came to
// one, and read how many pods that were, or about.
func (e *examination) eachPod(ctx context.Context, selector string, do func(*corev1.Pod)) (read int, complete bool, err error) {
	next := metav1.ListOptions{FieldSelector: selector, Limit: podsPage}
	for range maxPages {
		list, err := e.client.CoreV1().Pods(corev1.NamespaceAll).List(ctx, next)
		if err != nil {
			return read, false, err
		}
		for i := range list.Items {
			do(&list.Items[i])
		}
		read += len(list.Items)
		if next.Continue = list.Continue; next.Continue == "" {
			return read, true, nil
		}
	}
	return read, false, nil
}

// Pods are read in pages, and not without end.
const (
	podsPage = 500
	maxPages = 20
)
