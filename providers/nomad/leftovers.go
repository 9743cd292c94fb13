package nomad

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// A process may end before it has registered a job whose variables it has written, and Nomad may
// collect a job that has ended before the next process sees it, or others remove one of which no
// list, and no event, was seen. So each variable says whose it is, and a process looks for those of
// its node that have no job when it starts, for those that were too new then, and every hour.

const (
	sweepInterval = time.Hour
	// leftAfter is how old a variable has to be: another process of the node, as the one before, may be
	// about to register its job.
	leftAfter = 5 * time.Minute
)

// sweep is how far that has come.
type sweep struct {
	age          time.Duration // leftAfter
	next         time.Time     // when it is due
	done, warned bool
}

// sign writes into a variable whose it is.
func (b *backend) sign(v *api.Variable) {
	v.Items[podgroup.TagClusterName], v.Items[podgroup.TagNodeName] = b.cfg.ClusterName, b.node
}

// sweepIfDue has heartbeats ask for the jobs of variables of this node that the list lacks. A first
// one that fails is due with each list (listed).
func (b *backend) sweepIfDue(ctx context.Context, listed bool) {
	if time.Now().Before(b.sweep.next) && (b.sweep.done || !listed) {
		return
	}
	b.sweep.next = time.Now().Add(sweepInterval)
	// Without the right a list of variables is empty, but this is refused.
	_, _, err := b.api.Variables().Peek(turnsPath(b.cfg.JobPrefix), query(ctx))
	if isStatus(err, http.StatusForbidden) {
		if !b.sweep.warned {
			log.G(ctx).WithField("path", jobsPath+b.cfg.JobPrefix+"*").
				Warn("The token lacks the capability read for variables: those that an earlier process has left are not deleted")
		}
		b.sweep.warned = true
		return
	}
	if err == nil {
		err = b.findLeftovers(ctx)
	}
	if err == nil && !b.sweep.done {
		b.sweep.done, b.sweep.next = true, time.Now().Add(b.sweep.age)
	}
	if err != nil && ctx.Err() == nil {
		log.G(ctx).WithError(classify(podgroup.ActionList, err)).Warn("Cannot look for variables that an earlier process has left")
	}
}

// findLeftovers is sweepIfDue with the right to do it.
func (b *backend) findLeftovers(ctx context.Context) error {
	paths, err := b.pathsWithoutJob(ctx)
	if err != nil {
		return err
	}
	metas := map[string]map[string]string{}
	for _, path := range paths {
		found, _, err := b.api.Variables().Peek(path, query(ctx))
		if err != nil {
			return err
		}
		if found == nil || !b.isOfNode(found.Items) {
			continue
		}
		id, container, _ := partsOf(path)
		if metas[id] == nil {
			metas[id] = map[string]string{podgroup.TagClusterName: b.cfg.ClusterName, podgroup.TagNodeName: b.node}
		}
		if container == "" {
			metas[id][metaTurns] = turnKey
		} else {
			metas[id][metaFiles] += container + ","
		}
	}
	for id, meta := range metas {
		b.askAgain(id, meta)
	}
	return nil
}

// pathsWithoutJob returns the paths of variables with the prefix that are not new, and whose job the
// list lacks.
func (b *backend) pathsWithoutJob(ctx context.Context) (paths []string, err error) {
	_, err = pages(ctx, func(q *api.QueryOptions) (*api.QueryMeta, error) {
		q.Prefix = jobsPath + b.cfg.JobPrefix
		list, meta, err := b.api.Variables().List(q)
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, v := range list {
			if id, _, ok := partsOf(v.Path); ok && b.records[id] == nil && time.Since(time.Unix(0, v.ModifyTime)) >= b.sweep.age {
				paths = append(paths, v.Path)
			}
		}
		return meta, err
	})
	return paths, err
}

// partsOf returns the job and the container of the path of a variable; ok is false if it is not of
// the group.
func partsOf(path string) (jobID, container string, ok bool) {
	jobID, rest, _ := strings.Cut(strings.TrimPrefix(path, jobsPath), "/")
	group, container, _ := strings.Cut(rest, "/")
	return jobID, container, group == groupName
}
