package eci

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/eci"
	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

const (
	// pageSize is the number of groups in a page of a listing: the maximum.
	pageSize = "20"
	// listingTimeout is the timeout of a listing with all of its pages.
	listingTimeout = 2 * time.Minute
	// createdMaxAge is how long a new group is added to listings that lack it.
	createdMaxAge = time.Minute
)

type group = eci.DescribeContainerGroupsContainerGroup0

// groups caches the container groups of the node by the UID of their pod. It is safe
// for concurrent use.
type groups struct {
	client        *client
	cluster, node string
	owner         *owner
	cacheFor      time.Duration
	listed        func([]group)               // called with each new listing
	confirmEmpty  func(context.Context) error // called with a listing without groups; its error refuses that

	flight singleflight.Group

	mu             sync.Mutex
	changes        int // number of creations and deletions, which a listing from before may lack
	cached         map[types.UID]group
	at             time.Time
	created        map[types.UID]createdGroup
	throttledUntil time.Time // no listing before that time,
	throttled      error     // because of this error
}

// createdGroup is a group that was created, and may not be in a listing yet.
type createdGroup struct {
	group
	at time.Time
}

// all returns the groups of this cluster by UID, from a listing that is new enough.
// After a listing that was throttled it returns that error until another one may be
// sent.
func (g *groups) all(ctx context.Context) (map[types.UID]group, error) {
	all, err := g.youngerThan(ctx, g.cacheFor)
	maps.DeleteFunc(all, func(uid types.UID, found group) bool { return !g.owner.isOurs(&found) })
	return all, err
}

// youngerThan returns the groups from a listing that is younger than age, including
// those of earlier versions that may belong to another cluster: a caller that knows the
// UID knows the pod.
func (g *groups) youngerThan(ctx context.Context, age time.Duration) (map[types.UID]group, error) {
	g.mu.Lock()
	if g.cached != nil && time.Since(g.at) < age {
		defer g.mu.Unlock()
		return g.withCreated(g.cached), nil
	}
	if time.Now().Before(g.throttledUntil) {
		defer g.mu.Unlock()
		return nil, g.throttled
	}
	g.mu.Unlock()
	// Concurrent callers share one listing, which does not end with the context of the
	// first one.
	results := g.flight.DoChan("", func() (any, error) { return nil, g.refresh(context.WithoutCancel(ctx)) })
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case result := <-results:
		if result.Err != nil {
			return nil, result.Err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.withCreated(g.cached), nil
}

// ofPod returns the group of a pod from the last listing, regardless of its age: good
// enough for what does not change of a group. If it lacks the pod, a new listing is
// made.
func (g *groups) ofPod(ctx context.Context, uid types.UID) (group, error) {
	g.mu.Lock()
	found, ok := g.cached[uid]
	if created, isNew := g.created[uid]; !ok && isNew {
		found, ok = created.group, true
	}
	g.mu.Unlock()
	if ok {
		return found, nil
	}
	all, err := g.youngerThan(ctx, g.cacheFor)
	if err != nil {
		return group{}, err
	}
	if found, ok = all[uid]; !ok {
		return group{}, errdefs.NotFoundf("there is no container group of pod %s", uid)
	}
	return found, nil
}

func (g *groups) withCreated(listed map[types.UID]group) map[types.UID]group {
	all := maps.Clone(listed)
	if all == nil {
		all = map[types.UID]group{}
	}
	for uid, created := range g.created {
		if _, ok := all[uid]; !ok {
			all[uid] = created.group
		}
	}
	return all
}

// refresh lists until nothing was created or deleted meanwhile, at most twice: if there
// are changes all the time, a listing has to be used at some time.
func (g *groups) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listingTimeout)
	defer cancel()
	for try := 1; ; try++ {
		g.mu.Lock()
		era := g.changes
		g.mu.Unlock()
		list, err := g.list(ctx)
		if err != nil {
			g.recordThrottling(err)
			return err
		}
		if g.store(list, era) || try == 2 {
			return nil
		}
	}
}

// recordThrottling prevents listings for a while if err is about throttling.
func (g *groups) recordThrottling(err error) {
	delay, named := errdefs.RetryAfter(err)
	if !named || !isThrottled(err) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.throttledUntil, g.throttled = time.Now().Add(delay), err
}

// store caches a listing, and reports whether nothing was created or deleted since it
// began.
func (g *groups) store(list []group, era int) bool {
	g.listed(slices.DeleteFunc(slices.Clone(list), func(found group) bool { return !g.owner.isOurs(&found) }))
	byUID := map[types.UID]group{}
	for _, found := range list {
		uid := types.UID(tagOf(&found, TagUID))
		if other, ok := byUID[uid]; !ok || found.CreationTime < other.CreationTime {
			byUID[uid] = found
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cached = byUID
	maps.DeleteFunc(g.created, func(uid types.UID, c createdGroup) bool {
		_, ok := byUID[uid]
		return ok || time.Since(c.at) > createdMaxAge
	})
	current := g.changes == era
	g.at = time.Now()
	if !current {
		g.at = time.Time{} // good for the callers that wait for it, but for no later one
	}
	return current
}

// list reads all pages. Without the UID of this cluster it is unknown which groups
// belong to it.
func (g *groups) list(ctx context.Context) ([]group, error) {
	if _, err := g.owner.uid(ctx); err != nil {
		return nil, err
	}
	var all []group
	var others []string
	seen := map[string]bool{}
	for token := ""; ; {
		request := eci.CreateDescribeContainerGroupsRequest()
		request.RegionId = g.client.region
		request.Tag = &[]eci.DescribeContainerGroupsTag{{Key: TagClusterName, Value: g.cluster}, {Key: TagNodeName, Value: g.node}}
		request.Limit, request.NextToken = pageSize, token
		request.WithEvent = boolean(true)
		response := eci.CreateDescribeContainerGroupsResponse()
		if err := g.client.do(ctx, request, response); err != nil {
			return nil, err
		}
		for _, found := range response.ContainerGroups {
			// Pages shift while groups are created and deleted.
			if !g.hasTags(&found) || seen[found.ContainerGroupId] {
				continue
			}
			seen[found.ContainerGroupId] = true
			if g.owner.isForeign(&found) {
				others = append(others, found.ContainerGroupId)
				continue
			}
			all = append(all, found)
		}
		switch next := response.NextToken; next {
		case "":
			if len(all) == 0 && len(others) == 0 {
				if err := g.confirmEmpty(ctx); err != nil {
					return nil, err
				}
			}
			return all, g.owner.accept(ctx, all, others)
		case token:
			return nil, errdefs.AsUnavailable(errors.New("the listing of ECI does not end: a page names itself as the next"))
		default:
			token = next
		}
	}
}

// hasTags reports whether a group has the tags of this node. It does not rely on the
// filter of the listing.
func (g *groups) hasTags(found *group) bool {
	return tagOf(found, TagClusterName) == g.cluster && tagOf(found, TagNodeName) == g.node &&
		tagOf(found, TagUID) != "" && tagOf(found, TagPodName) != "" && tagOf(found, TagNamespace) != ""
}

// invalidate makes the next caller list again.
func (g *groups) invalidate() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changes++
	g.at = time.Time{}
}

// add adds a new group to listings until one has it.
func (g *groups) add(uid types.UID, created group) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.created[uid] = createdGroup{created, time.Now()}
}

// remove drops a group that was added.
func (g *groups) remove(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.created, uid)
}

func tagOf(found *group, key string) string {
	i := slices.IndexFunc(found.Tags, func(tag eci.DescribeContainerGroupsLabel1) bool { return tag.Key == key })
	if i < 0 {
		return ""
	}
	return found.Tags[i].Value
}
