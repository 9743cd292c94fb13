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
	// pageSize is how many groups a page of a listing has, which is the most.
	pageSize = "20"
	// listingTimeout is how long a listing may take, with all of its pages.
	listingTimeout = 2 * time.Minute
	// createdFor is for how long a new group counts although no listing has it.
	createdFor = time.Minute
)

type group = eci.DescribeContainerGroupsContainerGroup0

// groups are the container groups of the node, by the UID of their pod. It is safe
// for concurrent use.
type groups struct {
	client        *client
	cluster, node string
	owner         *owner
	cacheFor      time.Duration
	listed        func([]group) // is called with each new listing

	flight singleflight.Group

	mu      sync.Mutex
	era     int // counts the changes that a listing may not have
	cached  map[types.UID]group
	at      time.Time
	created map[types.UID]createdGroup
	quiet   time.Time // until then nothing is asked,
	refused error     // for this
}

// createdGroup is a group that was created, and may not be in a listing yet.
type createdGroup struct {
	group
	at time.Time
}

// all returns the groups by UID, from a listing that is new enough. After one that
// was throttled the error is the same until another may be asked for.
func (g *groups) all(ctx context.Context) (map[types.UID]group, error) {
	all, err := g.within(ctx, g.cacheFor)
	maps.DeleteFunc(all, func(uid types.UID, found group) bool { return !g.owner.mayList(&found) })
	return all, err
}

// within returns the groups from a listing that is younger than age, with those of
// earlier versions that may be another cluster's: who asks for one by UID knows its pod.
func (g *groups) within(ctx context.Context, age time.Duration) (map[types.UID]group, error) {
	g.mu.Lock()
	if g.cached != nil && time.Since(g.at) < age {
		defer g.mu.Unlock()
		return g.withCreated(g.cached), nil
	}
	if time.Now().Before(g.quiet) {
		defer g.mu.Unlock()
		return nil, g.refused
	}
	g.mu.Unlock()
	// Whoever asks meanwhile gets the same answer; it does not end with whoever
	// asked first.
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

// ofPod returns the group of a pod from the last listing, however old that is: for
// what does not change of a group. Of a pod that is not in it a new one is asked.
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
	all, err := g.within(ctx, g.cacheFor)
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

// refresh lists until nothing has changed meanwhile, twice at most: what changes
// all the time has to be shown at some time.
func (g *groups) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listingTimeout)
	defer cancel()
	for try := 1; ; try++ {
		g.mu.Lock()
		era := g.era
		g.mu.Unlock()
		list, err := g.list(ctx)
		if err != nil {
			g.respect(err)
			return err
		}
		if g.store(list, era) || try == 2 {
			return nil
		}
	}
}

// respect has nothing asked for a while after an answer that too much was.
func (g *groups) respect(err error) {
	delay, named := errdefs.RetryAfter(err)
	if !named || !isThrottled(err) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.quiet, g.refused = time.Now().Add(delay), err
}

// store takes a listing over, and tells whether nothing has changed since it began.
func (g *groups) store(list []group, era int) bool {
	g.listed(slices.DeleteFunc(slices.Clone(list), func(found group) bool { return !g.owner.mayList(&found) }))
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
		return ok || time.Since(c.at) > createdFor
	})
	current := g.era == era
	g.at = time.Now()
	if !current {
		g.at = time.Time{} // good for those who have asked, and nobody after them
	}
	return current
}

// list reads all pages. Without the UID of this cluster it is not known which groups
// are its own.
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
			// Pages shift while groups come and go.
			if !g.owns(&found) || seen[found.ContainerGroupId] {
				continue
			}
			seen[found.ContainerGroupId] = true
			if g.owner.isAnothers(&found) {
				others = append(others, found.ContainerGroupId)
				continue
			}
			all = append(all, found)
		}
		switch next := response.NextToken; next {
		case "":
			return all, g.owner.accept(ctx, all, others)
		case token:
			return nil, errdefs.AsUnavailable(errors.New("the listing of ECI does not go on: a page names itself as the next"))
		default:
			token = next
		}
	}
}

// owns reports whether a group has the names of this node, whatever the listing's
// filter does.
func (g *groups) owns(found *group) bool {
	return tagOf(found, TagClusterName) == g.cluster && tagOf(found, TagNodeName) == g.node &&
		tagOf(found, TagUID) != "" && tagOf(found, TagPodName) != "" && tagOf(found, TagNamespace) != ""
}

// changed says that a listing from before tells no more.
func (g *groups) changed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.era++
	g.at = time.Time{}
}

// add has a new group counted until a listing has it.
func (g *groups) add(uid types.UID, created group) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.created[uid] = createdGroup{created, time.Now()}
}

// remove takes back what add did.
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
