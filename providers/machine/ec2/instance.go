package ec2

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine"
)

// instance is what EC2 says of one.
type instance struct {
	ID         string    `xml:"instanceId"`
	ImageID    string    `xml:"imageId"`
	State      string    `xml:"instanceState>name"`
	Reason     reason    `xml:"stateReason"`
	Address    string    `xml:"privateIpAddress"`
	Address6   string    `xml:"ipv6Address"`
	Launched   time.Time `xml:"launchTime"`
	Lifecycle  string    `xml:"instanceLifecycle"`
	RootDevice string    `xml:"rootDeviceName"`
	Tags       []tag     `xml:"tagSet>item"`
}

// reason is why an instance has its state.
type reason struct {
	Code    string `xml:"code"`
	Message string `xml:"message"`
}

type tag struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

// states are those of machines, by those of instances. Who stops an instance may start it again:
// meanwhile its agent does not answer.
var states = map[string]machine.State{
	"pending": machine.Starting, "running": machine.Running, "stopping": machine.Running, "stopped": machine.Running,
	"shutting-down": machine.Ending, "terminated": machine.Ended,
}

func (i *instance) machine() machine.Machine {
	m := machine.Machine{ID: i.ID, Address: cmp.Or(i.Address, i.Address6), State: states[i.State], Created: i.Launched, Tags: map[string]string{}}
	for _, t := range i.Tags {
		m.Tags[t.Key] = t.Value
	}
	m.Name = m.Tags[tagName]
	return m
}

func (i *instance) runs() bool { return i.State == "pending" || i.State == "running" }

// rank orders instances of one name: those that have not ended come first, then the oldest.
func rank(a, b *instance) int {
	ended := func(i *instance) int {
		return slices.Index([]machine.State{machine.Ending, machine.Ended}, states[i.State])
	}
	return cmp.Or(cmp.Compare(ended(a), ended(b)), a.Launched.Compare(b.Launched), strings.Compare(a.ID, b.ID))
}

const (
	// pageSize is the most that EC2 gives at once.
	pageSize = 1000
	// maxPages bounds a list, which else a service that is out of order could make endless.
	maxPages = 100
)

// describe returns all instances that match filters.
func (c *client) describe(ctx context.Context, filters url.Values) ([]*instance, error) {
	var all []*instance
	parameters := maps.Clone(filters)
	parameters.Set("MaxResults", strconv.Itoa(pageSize))
	for range maxPages {
		var page struct {
			Instances []*instance `xml:"reservationSet>item>instancesSet>item"`
			Next      string      `xml:"nextToken"`
		}
		if err := c.call(ctx, describeInstances, parameters, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Instances...)
		if page.Next == "" {
			return all, nil
		}
		parameters.Set("NextToken", page.Next)
	}
	return nil, errdefs.AsUnavailable(fmt.Errorf("the list of instances has more than %d pages", maxPages))
}

// wildcards have a meaning in the values of filters.
var wildcards = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`)

// filters returns the parameters of a list of what has these tags.
func filters(tags map[string]string) url.Values {
	p := url.Values{}
	for i, key := range slices.Sorted(maps.Keys(tags)) {
		addFilter(p, i+1, "tag:"+key, wildcards.Replace(tags[key]))
	}
	return p
}

func addFilter(p url.Values, number int, name string, values ...string) {
	at := fmt.Sprintf("Filter.%d.", number)
	p.Set(at+"Name", name)
	for i, value := range values {
		p.Set(at+"Value."+strconv.Itoa(i+1), value)
	}
}
