package nomad

import (
	"context"
	"net/http"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// A process may end before it has registered a job whose variables it has written, and Nomad may
// collect a job that has ended before the next process sees it. So each variable says whose it
// is, and a process that starts looks for those of its node that have no job.

// sweep is how far that has come.
type sweep struct{ done, warned bool }

// sign writes into a variable whose it is.
func (b *backend) sign(v *api.Variable) {
	v.Items[podgroup.TagClusterName], v.Items[podgroup.TagNodeName] = b.cfg.ClusterName, b.node
}

// sweepOnce has heartbeats ask for the jobs of variables of this node that the list lacks. After
// a failure the next list does it.
func (b *backend) sweepOnce(ctx context.Context) {
	if b.sweep.done {
		return
	}
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
	b.sweep.done = err == nil
	if err != nil && ctx.Err() == nil {
		log.G(ctx).WithError(classify(podgroup.ActionList, err)).Warn("Cannot look for variables that an earlier process has left")
	}
}

// findLeftovers is sweepOnce with the right to do it.
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

// pathsWithoutJob returns the paths of variables with the prefix whose job the list lacks.
func (b *backend) pathsWithoutJob(ctx context.Context) (paths []string, err error) {
	_, err = pages(ctx, func(q *api.QueryOptions) (*api.QueryMeta, error) {
		q.Prefix = jobsPath + b.cfg.JobPrefix
		list, meta, err := b.api.Variables().List(q)
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, v := range list {
			if id, _, ok := partsOf(v.Path); ok && b.records[id] == nil {
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
