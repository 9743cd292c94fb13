package aci

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerinstance/armcontainerinstance/v2"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

const (
	// viewInterval is how often the state of a group is read that runs, and pendingInterval
	// of one that does not yet, for its events, if the budget allows it.
	viewInterval, pendingInterval = 10 * time.Second, 30 * time.Second
	// viewMaxAge is how long the state of a group is kept that lists no longer have.
	viewMaxAge = 10 * time.Minute
	// minSilence is for how long no group is read after a refusal for too many calls.
	minSilence = 10 * time.Second
	// parallelViews is how many groups are read at once, and readTimeout for how long one is.
	parallelViews = 10
	readTimeout   = 10 * time.Second
)

// view is a group as it was read by itself: lists do not have the states of containers.
type view struct {
	group    *armcontainerinstance.ContainerGroup // nil of one that had not begun to run
	uid      string                               // of the pod
	state    string                               // the list's, when it was read
	leaving  bool                                 // its deletion was accepted
	unread   bool                                 // group is that of a list: it could not be read yet
	at, seen time.Time
	failed   time.Time // when it could not be read, if it was not read since
	// again is when it was seen that the group runs again, which is to run once; tried is when
	// it was to stop, and stopped whether that was accepted.
	again, tried time.Time
	stopped      bool
}

// List implements podgroup.Lister. Of each group of the node the state is read, too, as often
// as the budget allows: at once where the list shows a change, and else the oldest first.
func (b *backend) List(ctx context.Context, filter map[string]string, page string) (found podgroup.Page, err error) {
	pager := b.groups.NewListByResourceGroupPager(b.cfg.ResourceGroup, nil)
	if page == "" {
		b.mu.Lock()
		b.began = time.Now()
		b.mu.Unlock()
	} else { // as if it had just read a page with this link
		link, err := json.Marshal(map[string]string{"nextLink": page})
		if err == nil {
			err = json.Unmarshal(link, pager)
		}
		if err == nil {
			_, err = pager.NextPage(ctx)
		}
		if err != nil {
			return podgroup.Page{}, err
		}
	}
	list, err := pager.NextPage(ctx)
	if err != nil {
		return podgroup.Page{}, classify(podgroup.ActionList, err)
	}
	ours := slices.DeleteFunc(list.Value, func(g *armcontainerinstance.ContainerGroup) bool {
		tags := b.tags(g)
		for key, value := range filter {
			if tags[key] != value {
				return true
			}
		}
		return g.Name == nil || g.Properties == nil
	})
	gone, err := b.look(ctx, ours)
	if err != nil {
		return podgroup.Page{}, err
	}
	if valueOf(list.NextLink) == "" {
		ours = append(ours, b.missed(ctx)...)
	}
	b.stopAgain(ctx, ours)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range ours {
		if !gone[*g.Name] {
			found.Units = append(found.Units, b.unit(g, b.views[*g.Name]))
		}
	}
	found.Next = valueOf(list.NextLink)
	return found, nil
}

// missed returns the groups that were there, and that no page of the list has: lists of Resource
// Manager may lack some for a while, such as the first of a region, and a group that is read by
// its name is there or not. One that cannot be read is as it was.
func (b *backend) missed(ctx context.Context) (groups []*armcontainerinstance.ContainerGroup) {
	lacking := map[string]view{}
	b.mu.Lock()
	for name, v := range b.views {
		switch {
		case !v.seen.Before(b.began):
		case v.leaving:
			delete(b.views, name)
		default:
			lacking[name] = *v
		}
	}
	silence := time.Until(b.quiet)
	b.mu.Unlock()
	for name, v := range lacking {
		var err error
		if silence <= 0 && b.reads.Allow() {
			err = b.read(ctx, &armcontainerinstance.ContainerGroup{
				Name: &name, Tags: map[string]*string{podgroup.TagUID: &v.uid}, Properties: &armcontainerinstance.ContainerGroupPropertiesProperties{ProvisioningState: &v.state},
			})
		}
		b.mu.Lock()
		switch found := b.views[name]; {
		case found == nil, found.group == nil && !errdefs.IsNotFound(err):
		case errdefs.IsNotFound(err), valueOf(found.group.Tags[podgroup.TagUID]) != v.uid:
			delete(b.views, name)
		default:
			groups = append(groups, found.group)
		}
		b.mu.Unlock()
	}
	return groups
}

// ConfirmEmpty implements podgroup.EmptyConfirmer, for the groups that missed does not know
// after a start.
func (b *backend) ConfirmEmpty(ctx context.Context, unitID string, pod *corev1.Pod) error {
	if !nameRule.MatchString(unitID) { // a hash, of the provider that this one replaces
		unitID = pod.Namespace + "-" + pod.Name
	}
	if !nameRule.MatchString(unitID) || hyphens.MatchString(unitID) {
		return nil // Azure has no such names
	}
	got, err := b.groups.Get(ctx, b.cfg.ResourceGroup, unitID, nil)
	switch err = classify(actionView, err); {
	case errdefs.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("the list has no container group of this node, and whether group %s of pod %s/%s is gone cannot be found out: %w", unitID, pod.Namespace, pod.Name, err)
	case b.tags(&got.ContainerGroup)[podgroup.TagUID] != string(pod.UID), provisioningState(&got.ContainerGroup) == "Deleting":
		return nil
	}
	return fmt.Errorf("the list has no container group of this node, while group %s of pod %s/%s exists: it is late, or clusterName was changed", unitID, pod.Namespace, pod.Name)
}

// look reads the states of groups that are due. Those that began to run when nobody looked have
// to be read, or their pods would seem not to run; one that cannot be is unknown, and does not keep
// the list from the others. It returns the names of groups that no longer exist.
func (b *backend) look(ctx context.Context, groups []*armcontainerinstance.ContainerGroup) (gone map[string]bool, err error) {
	type due struct {
		group *armcontainerinstance.ContainerGroup
		rank  int // 0 has to be read
		at    time.Time
	}
	var list []due
	now := time.Now()
	b.mu.Lock()
	for name, v := range b.views {
		if now.Sub(v.seen) > viewMaxAge {
			delete(b.views, name)
		}
	}
	silence := time.Until(b.quiet)
	// Groups of later pages would never get their turn if those of the first were always due.
	fair := time.Duration(len(b.views)) * time.Minute / time.Duration(b.cfg.ReadsPerMinute) * 5 / 4
	for _, g := range groups {
		v, state := b.views[*g.Name], provisioningState(g)
		if uid := valueOf(g.Tags[podgroup.TagUID]); v == nil || v.uid != uid {
			if !isStarting(state) || b.hasRun(g) {
				list = append(list, due{group: g})
				continue
			}
			v = &view{uid: uid, state: state, at: now}
			b.views[*g.Name] = v
		}
		v.seen = now
		interval := max(viewInterval, fair)
		if isStarting(state) {
			interval = max(pendingInterval, fair)
		}
		switch {
		case now.Sub(v.failed) < max(pendingInterval, fair): // it would keep others waiting
		case v.state != state && !isStarting(state):
			list = append(list, due{g, 1, v.at})
		case now.Sub(v.at) >= interval && !b.isOver(v):
			list = append(list, due{g, 2, v.at})
		}
	}
	b.mu.Unlock()
	slices.SortStableFunc(list, func(a, b due) int { return cmp.Or(cmp.Compare(a.rank, b.rank), a.at.Compare(b.at)) })

	var mu sync.Mutex
	gone = map[string]bool{}
	work, within := errgroup.WithContext(ctx)
	work.SetLimit(parallelViews)
	var hung atomic.Int32 // reads in a row that were not answered
	for _, d := range list {
		if hung.Load() >= parallelViews { // nor will the others be, and the list waits for them
			if d.rank == 0 {
				b.cannotRead(ctx, d.group, errHung)
			}
			continue
		}
		if silence > 0 || d.rank > 0 && !b.reads.Allow() {
			if d.rank > 0 {
				continue
			}
			err = podgroup.Throttled(errors.New("groups cannot be read at the moment: Azure has asked to wait"), silence)
			break
		}
		if d.rank == 0 {
			if limited := b.reads.Wait(within); limited != nil { // the next list goes on
				err = podgroup.Throttled(fmt.Errorf("the groups a minute that may be read (readsPerMinute) are used up: %w", limited), 0)
				break
			}
		}
		work.Go(func() error {
			began := time.Now()
			err := b.read(within, d.group)
			if time.Since(began) >= readTimeout {
				hung.Add(1)
			} else {
				hung.Store(0)
			}
			switch {
			case err == nil:
			case errdefs.IsNotFound(err):
				mu.Lock()
				defer mu.Unlock()
				gone[*d.group.Name] = true
			case within.Err() != nil || b.isQuiet():
				if d.rank == 0 {
					return err
				}
			default:
				b.cannotRead(ctx, d.group, err)
			}
			return nil
		})
	}
	switch failed := work.Wait(); {
	case failed != nil && ctx.Err() != nil: // what was read is kept
		err = podgroup.Throttled(failed, 0)
	case failed != nil: // it says more than that the wait has ended
		err = failed
	}
	return gone, err
}

var errHung = errors.New("reads of other groups have not been answered by Azure")

// read reads the state of a group.
func (b *backend) read(ctx context.Context, listed *armcontainerinstance.ContainerGroup) error {
	at := time.Now()
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	got, err := b.groups.Get(ctx, b.cfg.ResourceGroup, *listed.Name, nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	if refused, ok := errors.AsType[*azcore.ResponseError](err); ok && refused.StatusCode == http.StatusTooManyRequests {
		b.quiet = time.Now().Add(max(podgroup.RetryAfter(refused.RawResponse.Header), minSilence))
	}
	if err != nil {
		return classify(actionView, err)
	}
	v := &view{group: &got.ContainerGroup, uid: valueOf(listed.Tags[podgroup.TagUID]), state: provisioningState(listed), at: at, seen: at}
	if before := b.views[*listed.Name]; before != nil {
		v.leaving = before.leaving
		if before.uid == v.uid {
			v.again, v.tried, v.stopped = before.again, before.tried, before.stopped
		}
	}
	b.views[*listed.Name] = v
	return nil
}

// isQuiet reports whether Azure has asked to read no groups at the moment.
func (b *backend) isQuiet() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Now().Before(b.quiet)
}

// cannotRead notes that a group cannot be read: it is as it was, or unknown if it never was read.
func (b *backend) cannotRead(ctx context.Context, listed *armcontainerinstance.ContainerGroup, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	uid := valueOf(listed.Tags[podgroup.TagUID])
	v := b.views[*listed.Name]
	if v == nil || v.uid != uid {
		v = &view{group: listed, uid: uid, unread: true, seen: time.Now()}
		b.views[*listed.Name] = v
	}
	if v.failed.IsZero() {
		log.G(ctx).WithField("group", *listed.Name).WithError(err).Warn("Cannot read the state of a container group; its pod's status stays as it is")
	}
	v.failed = time.Now()
}

// isOver reports whether the group of a view will not change by itself.
func (b *backend) isOver(v *view) bool {
	if v.group == nil {
		return false
	}
	u := b.unit(v.group, v)
	return u.Over() && !v.mustStop()
}

// isStarting reports whether a group in a state of a list has not begun to run.
func isStarting(state string) bool {
	return slices.Contains([]string{"", "Accepted", "Pending", "Creating", "NotSpecified", "PreProvisioned"}, state)
}

func provisioningState(g *armcontainerinstance.ContainerGroup) string {
	return valueOf(g.Properties.ProvisioningState)
}

// valueOf returns what a pointer of the SDK points to, or the zero value.
func valueOf[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}
