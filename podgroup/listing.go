package podgroup

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// listing is a list that is being read.
type listing struct {
	began    time.Time
	units    []Unit
	others   []string           // the IDs of other clusters' units
	seen     map[string]bool    // the IDs of all
	unwanted map[types.UID]bool // of unsure pods those that were not to run any more when it began
	next     string             // the page that follows; empty at the beginning
	position string             // of the first page
}

// list requests all units. Without the UID of this cluster it is unknown which belong to
// it.
func (u *units) list(ctx context.Context) (*listing, error) {
	if getter, ok := u.backend.(Getter); ok {
		l := u.newListing()
		all, err := u.get(ctx, getter)
		l.units = all
		return l, err
	}
	if _, err := u.owner.uid(ctx); err != nil {
		return nil, err
	}
	l, resumed := u.resume()
	for {
		last, err := u.readPage(ctx, l)
		switch {
		case isThrottled(err):
			u.pause(l)
			return nil, err
		case err != nil && resumed: // the service may have forgotten the page
			l, resumed = u.newListing(), false
			continue
		case err != nil:
			return nil, err
		case !last:
			resumed = false
			continue
		}
		if len(l.units) == 0 && len(l.others) == 0 {
			if err := u.confirmEmpty(ctx); err != nil {
				return nil, err
			}
		}
		return l, u.owner.accept(ctx, l.units, l.others)
	}
}

func (u *units) newListing() *listing {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.arrived = nil
	l := &listing{began: time.Now(), seen: map[string]bool{}, unwanted: map[types.UID]bool{}}
	for uid, d := range u.unsure {
		l.unwanted[uid] = !u.isWanted(d.pod)
	}
	return l
}

// pause keeps a list that was throttled after its first page. If it began again each time,
// an account with a quota of fewer calls than pages would never have one.
func (u *units) pause(l *listing) {
	if l.next == "" {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.paused = l
}

// resume returns a list that was paused, or a new one.
func (u *units) resume() (l *listing, resumed bool) {
	u.mu.Lock()
	l, u.paused = u.paused, nil
	u.mu.Unlock()
	if l == nil || time.Since(l.began) > pausedMaxAge {
		return u.newListing(), false
	}
	return l, true
}

// readPage reads the next page of a list, and reports whether it was the last one.
func (u *units) readPage(ctx context.Context, l *listing) (last bool, err error) {
	lister := u.backend.(Lister) // New has seen to it
	do := u.calls.do
	if l.next != "" {
		do = u.calls.doNext
	}
	var page Page
	err = do(ctx, ActionList, func(ctx context.Context) (err error) {
		page, err = lister.List(ctx, u.identity.filter(), l.next)
		return err
	})
	if err != nil {
		return false, err
	}
	if l.next == "" {
		l.position = page.Position
	}
	for _, found := range page.Units {
		if found.ID == "" { // a deletion could be one of all
			return false, errdefs.AsUnavailable(errors.New("the service's list has a unit without an ID"))
		}
		// Pages shift while units are created and deleted.
		if l.seen[found.ID] || !u.identify(&found) {
			continue
		}
		l.seen[found.ID] = true
		if u.owner.isForeign(&found) {
			l.others = append(l.others, found.ID)
			continue
		}
		l.units = append(l.units, found)
	}
	if page.Next != "" && page.Next == l.next {
		return false, errdefs.AsUnavailable(errors.New("the service's list does not end: a page names itself as the next"))
	}
	l.next = page.Next
	return page.Next == "", nil
}

// identify sets the owner of a unit that does not say it but in tags, and reports whether
// the unit has the names of this cluster and node. It does not rely on the service's
// filter.
func (u *units) identify(found *Unit) bool {
	if found.Owner != (Owner{}) {
		return true
	}
	var ok bool
	found.Owner, ok = u.identity.ownerOf(found.Tags)
	return ok
}
