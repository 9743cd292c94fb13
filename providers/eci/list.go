package eci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/responses"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

const (
	// statusPage and groupPage are the number of groups in a page: the maximum.
	statusPage, groupPage = 200, 20
	// withoutStatuses is for how long groups are listed without their statuses after that
	// was refused, or did not show what there is.
	withoutStatuses = 10 * time.Minute
	// The age at which a group is described again although its status is the same, for its
	// events: before it runs, and later. That a spot group is to be taken back is an event three
	// minutes before.
	pendingMaxAge, describedMaxAge, spotMaxAge = 15 * time.Second, 5 * time.Minute, time.Minute
	// allStatusesEvery is how often all statuses are read where they take several pages. In
	// between those that have changed are: since the last list, and sinceMargin before it.
	allStatusesEvery = time.Minute
	sinceMargin      = 30 * time.Second
	minSince         = 60 // seconds; the API refuses fewer
)

// groups caches the groups of a list. The API has two: DescribeContainerGroupStatus has ten
// times as many groups in a page, and DescribeContainerGroups has what is known of each. So
// the first is asked what there is, and the second for the groups whose status has changed.
// It is safe for concurrent use.
type groups struct {
	mu         sync.Mutex
	list       int // the number of the list
	known      map[string]known
	plainUntil time.Time // DescribeContainerGroups alone is used until then
	last       cursor    // of the last list
	lastAll    cursor    // of the last one with all statuses
}

// known is a group as it was described, and its status then.
type known struct {
	unit   podgroup.Unit
	status string
	at     time.Time
	list   int // the last list that had it
}

// cursor says where a list goes on. Each page takes one call.
type cursor struct {
	// Began is when the list began, and Long whether it has several pages of statuses.
	Began time.Time
	Long  bool `json:",omitempty"`
	// Since: only the statuses that have changed in so many seconds are read.
	Since int `json:",omitempty"`
	// Plain: all is read from DescribeContainerGroups.
	Plain bool `json:",omitempty"`
	// Doubted is a group that has a status and was not described: it is gone, if others are described.
	Doubted string `json:",omitempty"`
	// Token is the API's.
	Token string `json:",omitempty"`
	// Statuses are those of groups that have to be described, by ID.
	Statuses map[string]string `json:",omitempty"`
	// Listed: all statuses were read.
	Listed bool `json:",omitempty"`
}

// List implements podgroup.Lister.
func (b *backend) List(ctx context.Context, filter map[string]string, page string) (podgroup.Page, error) {
	var at cursor
	if page == "" {
		at = b.groups.begin()
	} else if err := json.Unmarshal([]byte(page), &at); err != nil {
		return podgroup.Page{}, fmt.Errorf("decode the position in the list: %w", err)
	}
	read := b.listStatuses
	switch {
	case at.Plain:
		read = b.listGroups
	case at.Listed:
		read = b.describe
	}
	units, last, err := read(ctx, filter, &at)
	if err == nil && last {
		b.groups.end(&at)
	}
	if err != nil || last {
		return podgroup.Page{Units: units}, err
	}
	next, err := json.Marshal(at)
	return podgroup.Page{Units: units, Next: string(next)}, err
}

func filtered(filter map[string]string) params {
	p := params{}
	p.set("Tag", tags(filter))
	return p
}

// listGroups reads a page of DescribeContainerGroups.
func (b *backend) listGroups(ctx context.Context, filter map[string]string, at *cursor) (units []podgroup.Unit, last bool, err error) {
	p := filtered(filter)
	p["Limit"], p["WithEvent"] = strconv.Itoa(groupPage), "true"
	p.set("NextToken", at.Token)
	response := &described{BaseResponse: &responses.BaseResponse{}}
	if err := b.client.call(ctx, podgroup.ActionList, "DescribeContainerGroups", p, response); err != nil {
		return nil, false, err
	}
	for i := range response.ContainerGroups {
		units = append(units, unitOf(&response.ContainerGroups[i]))
	}
	switch {
	case at.Doubted == "" && len(units) > 0: // else the other list would have had them
		b.groups.avoidStatuses()
	case at.Doubted != "" && len(units) == 0 && at.Token == "": // on the first page
		b.groups.avoidStatuses()
		return nil, false, errdefs.AsUnavailable(fmt.Errorf("ECI lists container group %s, and does not describe it: check that the access key has the right eci:DescribeContainerGroups", at.Doubted))
	}
	at.Token = response.NextToken
	return units, at.Token == "", nil
}

// described is the answer of DescribeContainerGroups.
type described struct {
	*responses.BaseResponse
	NextToken       string
	ContainerGroups []group
}

// statuses are the answer of DescribeContainerGroupStatus, of which only what identifies a
// group, and whether something has changed, are used. The SDK does not have it.
type statuses struct {
	*responses.BaseResponse
	NextToken string
	Data      []map[string]any
}

// listStatuses reads a page of DescribeContainerGroupStatus. Where that is not offered or
// allowed, or finds nothing, the other list follows: the API answers a key without the right
// to list with nothing.
func (b *backend) listStatuses(ctx context.Context, filter map[string]string, at *cursor) (units []podgroup.Unit, last bool, err error) {
	p := filtered(filter)
	p["Limit"] = strconv.Itoa(statusPage)
	p.set("NextToken", at.Token)
	p.set("SinceSecond", at.Since)
	response := &statuses{BaseResponse: &responses.BaseResponse{}}
	err = b.client.call(ctx, podgroup.ActionList, "DescribeContainerGroupStatus", p, response)
	if e, ok := errors.AsType[callError](err); ok && slices.ContainsFunc([]string{"InvalidAction", "InvalidApi", "Forbidden", "NoPermission"}, func(family string) bool {
		return strings.HasPrefix(e.code, family)
	}) {
		b.groups.avoidStatuses()
		*at = cursor{Plain: true}
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if at.Since == 0 && at.Token == "" && response.NextToken == "" && len(response.Data) == 0 {
		*at = cursor{Plain: true}
		return nil, false, nil
	}
	at.Long = at.Long || response.NextToken != ""
	if at.Statuses == nil {
		at.Statuses = map[string]string{}
	}
	for _, found := range response.Data {
		id, _ := found["ContainerGroupId"].(string)
		if unit, ok := b.groups.current(id, fmt.Sprint(found)); ok {
			units = append(units, unit)
		} else if id != "" {
			at.Statuses[id] = fmt.Sprint(found)
		}
	}
	at.Token, at.Listed = response.NextToken, response.NextToken == ""
	switch {
	case at.Listed && at.Since == 0:
		b.groups.prune()
	case at.Listed:
		units = append(units, b.groups.unchanged(at.Statuses)...)
	}
	return units, at.Listed && len(at.Statuses) == 0, nil
}

// describe reads some of the groups whose status has changed.
func (b *backend) describe(ctx context.Context, _ map[string]string, at *cursor) (units []podgroup.Unit, last bool, err error) {
	ids := slices.Sorted(maps.Keys(at.Statuses))
	ids = ids[:min(len(ids), maxIDs)]
	p := params{"ContainerGroupIds": jsonText(ids), "Limit": strconv.Itoa(groupPage), "WithEvent": "true"}
	response := &described{BaseResponse: &responses.BaseResponse{}}
	if err := b.client.call(ctx, podgroup.ActionList, "DescribeContainerGroups", p, response); err != nil {
		return nil, false, err
	}
	if len(response.ContainerGroups) == 0 {
		// They are gone since, or may not be described: the other list shows which.
		for _, id := range ids {
			b.groups.remove(id)
		}
		*at = cursor{Began: at.Began, Plain: true, Doubted: ids[0]}
		return nil, false, nil
	}
	for i := range response.ContainerGroups {
		unit := unitOf(&response.ContainerGroups[i])
		b.groups.add(unit, at.Statuses[unit.ID])
		units = append(units, unit)
	}
	for _, id := range ids {
		delete(at.Statuses, id)
		if !slices.ContainsFunc(units, func(u podgroup.Unit) bool { return u.ID == id }) {
			b.groups.remove(id)
		}
	}
	return units, len(at.Statuses) == 0, nil
}

// begin begins a list: of what has changed, if all statuses take several pages and were read
// not long ago. While a group stops, all are read: one that is gone has no status.
func (g *groups) begin() cursor {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.list++
	now := time.Now()
	at := cursor{Began: now, Plain: now.Before(g.plainUntil)}
	stops := false
	for _, k := range g.known {
		stops = stops || k.unit.Phase == podgroup.Stopping
	}
	if g.lastAll.Long && now.Sub(g.lastAll.Began) < allStatusesEvery && !stops && !at.Plain {
		at.Since = max(minSince, int((now.Sub(g.last.Began)+sinceMargin)/time.Second))
	}
	return at
}

// end notes that a list was read to its end.
func (g *groups) end(at *cursor) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last = *at
	if at.Since == 0 {
		g.lastAll = *at
	}
}

// unchanged returns the groups that a list of changes does not have. Those that were described
// long ago are added to the ones to describe.
func (g *groups) unchanged(toDescribe map[string]string) (units []podgroup.Unit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, k := range g.known {
		if k.list == g.list {
			continue
		}
		if k.list = g.list; k.isFresh() {
			units = append(units, k.unit)
		} else {
			toDescribe[id] = k.status
		}
		g.known[id] = k
	}
	return units
}

// isFresh reports whether a group whose status is the same need not be described.
func (k *known) isFresh() bool {
	maxAge := describedMaxAge
	switch isSpot, _ := k.unit.Data.(bool); {
	case k.unit.Phase == podgroup.Pending:
		maxAge = pendingMaxAge
	case isSpot:
		maxAge = spotMaxAge
	}
	return k.unit.Over() || time.Since(k.at) < maxAge
}

// avoidStatuses has the next lists read from DescribeContainerGroups.
func (g *groups) avoidStatuses() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := time.Now(); !now.Before(g.plainUntil) {
		g.plainUntil = now.Add(withoutStatuses)
	}
}

// current returns a group whose status is the one that it was described with.
func (g *groups) current(id, status string) (podgroup.Unit, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	k, ok := g.known[id]
	if !ok {
		return podgroup.Unit{}, false
	}
	k.list = g.list
	g.known[id] = k
	return k.unit, k.status == status && k.isFresh()
}

func (g *groups) add(unit podgroup.Unit, status string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.known[unit.ID] = known{unit, status, time.Now(), g.list}
}

// expire has a group described by the next list.
func (g *groups) expire(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if k, ok := g.known[id]; ok {
		k.at = time.Time{}
		g.known[id] = k
	}
}

// remove drops a group that is gone.
func (g *groups) remove(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.known, id)
}

// prune drops the groups that the list does not have.
func (g *groups) prune() {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.known, func(_ string, k known) bool { return k.list != g.list })
}

// ConfirmEmpty implements podgroup.EmptyConfirmer. The API returns an empty list, not an
// error, to an access key without the right to list. So the log of a container is requested,
// which the API refuses if the group does not exist. It may do so also because the container has no
// log: only an error about the group counts.
func (b *backend) ConfirmEmpty(ctx context.Context, unitID string, pod *corev1.Pod) error {
	container, hasRun := pod.Spec.Containers[0].Name, false
	for _, s := range pod.Status.ContainerStatuses {
		if strings.Contains(s.ContainerID, unitID) {
			container, hasRun = s.Name, true
			break
		}
	}
	_, err := b.ReadLog(ctx, &podgroup.Unit{ID: unitID}, container, podgroup.LogQuery{Tail: 1})
	switch {
	case isOfGroup(err, hasRun):
		return nil
	case errdefs.IsNotFound(err):
		err = errors.New(err.Error()) // without its class: the pod would count as gone
		fallthrough
	case err != nil:
		return fmt.Errorf("ECI lists no container groups, and that group %s of pod %s/%s is gone cannot be confirmed "+
			"(check that the access key has the rights of the README, without which lists are empty): %w", unitID, pod.Namespace, pod.Name, err)
	}
	return fmt.Errorf("ECI lists no container groups, but group %s of pod %s/%s exists: "+
		"check that the access key has the right eci:DescribeContainerGroups, without which lists are empty", unitID, pod.Namespace, pod.Name)
}
