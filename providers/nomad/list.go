package nomad

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// pageSize is how many jobs or allocations are requested at once.
const pageSize = 500

// List implements podgroup.Lister, in one page. Jobs of others in the same namespace have IDs
// without the prefix; those of other nodes have other tags.
func (b *backend) List(ctx context.Context, _ map[string]string, _ string) (podgroup.Page, error) {
	records, index, err := b.list(ctx)
	if err != nil {
		return podgroup.Page{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.merge(records, index)
	page := podgroup.Page{Position: strconv.FormatUint(index, 10)}
	for _, id := range slices.Sorted(maps.Keys(b.records)) {
		if u, ok := b.records[id].unit(); ok {
			page.Units = append(page.Units, u)
		}
	}
	return page, nil
}

// merge takes over a list that was made at an index; events may be ahead of it. The caller
// holds b.mu.
func (b *backend) merge(records map[string]*record, index uint64) {
	for id, known := range b.records {
		found := records[id]
		switch {
		case found == nil && known.index > index, found != nil && known.modified > found.modified:
			records[id] = known
		case found != nil && known.alloc != nil && found.alloc != nil && known.alloc.ID == found.alloc.ID:
			found.add(known.alloc)
		case found == nil:
			b.missing(known)
		}
		if found != nil {
			found.trouble = known.trouble
		}
	}
	b.records = records
}

// list requests allocations and jobs. Index is that of the older answer, to which all that
// happens later belongs. Jobs are the newer one: an allocation that was stopped is of a job
// that says why.
func (b *backend) list(ctx context.Context) (records map[string]*record, index uint64, err error) {
	var allocs []*api.AllocationListStub
	index, err = pages(ctx, func(q *api.QueryOptions) (*api.QueryMeta, error) {
		q.Filter = `JobID matches "^` + b.cfg.JobPrefix + `"`
		q.Params = map[string]string{"resources": "true"}
		list, meta, err := b.api.Allocations().List(q)
		allocs = append(allocs, list...)
		return meta, err
	})
	if err != nil {
		return nil, 0, err
	}
	records = map[string]*record{}
	jobsIndex, err := pages(ctx, func(q *api.QueryOptions) (*api.QueryMeta, error) {
		q.Prefix = b.cfg.JobPrefix
		list, meta, err := b.api.Jobs().ListOptions(&api.JobListOptions{Fields: &api.JobListFields{Meta: true}}, q)
		for _, j := range list {
			if strings.HasPrefix(j.ID, b.cfg.JobPrefix) {
				records[j.ID] = &record{
					id: j.ID, meta: j.Meta, stopped: j.Stop, created: time.Unix(0, j.SubmitTime), index: j.CreateIndex, modified: j.ModifyIndex,
					dead: j.Status == "dead" && j.ModifyIndex <= index, // else its allocation may be newer than the list
				}
			}
		}
		return meta, err
	})
	if err != nil {
		return nil, 0, err
	}
	for _, a := range allocs {
		if r := records[a.JobID]; r != nil {
			r.add(allocOf(a))
		}
	}
	if err := b.addAddresses(ctx, records); err != nil {
		return nil, 0, err
	}
	return records, min(index, jobsIndex), nil
}

// pages requests all pages of a list, and returns the index of the first.
func pages(ctx context.Context, request func(*api.QueryOptions) (*api.QueryMeta, error)) (index uint64, err error) {
	for token := ""; ; {
		q := query(ctx)
		q.PerPage, q.NextToken = pageSize, token
		meta, err := request(q)
		if err != nil {
			return 0, classify(podgroup.ActionList, err)
		}
		if token == "" {
			index = meta.LastIndex
		}
		if meta.NextToken == "" || meta.NextToken == token {
			return index, nil
		}
		token = meta.NextToken
	}
}

// addAddresses adds the addresses of allocations, which lists lack, and which do not change.
// Those that no event has shown are requested one by one.
func (b *backend) addAddresses(ctx context.Context, records map[string]*record) error {
	for id, r := range records {
		a := r.alloc
		if a == nil || a.ClientStatus != api.AllocClientStatusRunning || inHostNetwork(a) {
			continue
		}
		b.mu.Lock()
		if known := b.records[id]; known != nil && known.alloc != nil && known.alloc.ID == a.ID {
			a.NetworkStatus = known.alloc.NetworkStatus
		}
		b.mu.Unlock()
		if a.NetworkStatus != nil {
			continue
		}
		full, _, err := b.api.Allocations().Info(a.ID, query(ctx))
		if err != nil {
			if isStatus(err, http.StatusNotFound) {
				continue
			}
			return classify(podgroup.ActionList, err)
		}
		a.NetworkStatus = full.NetworkStatus
	}
	return nil
}

// allocOf returns what a list says of an allocation.
func allocOf(s *api.AllocationListStub) *api.Allocation {
	return &api.Allocation{
		ID: s.ID, JobID: s.JobID, NodeID: s.NodeID, DesiredStatus: s.DesiredStatus, DesiredDescription: s.DesiredDescription,
		ClientStatus: s.ClientStatus, ClientDescription: s.ClientDescription, TaskStates: s.TaskStates, AllocatedResources: s.AllocatedResources,
		PreemptedByAllocation: s.PreemptedByAllocation, CreateIndex: s.CreateIndex, ModifyIndex: s.ModifyIndex, CreateTime: s.CreateTime, ModifyTime: s.ModifyTime,
	}
}
