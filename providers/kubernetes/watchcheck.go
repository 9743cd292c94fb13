package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// staleAfter is how far a watch may be behind a list.
const staleAfter = 20 * time.Second

// checkWatch compares the cache of remote pods with a list of their names and versions.
// An open watch may miss changes: a proxy may hold its connection, or an API server
// whose database was restored leaves out what is not newer than before. If something
// differs, and the watch does not report it within staleAfter, all pods are listed
// again.
func (p *Provider) checkWatch(ctx context.Context) error {
	before := p.podVersions()
	listed, err := p.listVersions(ctx)
	if err != nil {
		return err
	}
	suspects := map[string]version{} // as listed
	for at, is := range listed {
		if before[at] != is {
			suspects[at] = is
		}
	}
	for at := range before {
		if _, ok := listed[at]; !ok {
			suspects[at] = version{}
		}
	}
	if len(suspects) == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(staleAfter):
	}
	after := p.podVersions()
	maps.DeleteFunc(suspects, func(at string, is version) bool { return after[at] != before[at] || after[at] == is })
	if len(suspects) == 0 {
		return nil
	}
	log.G(ctx).WithField("pods", len(suspects)).Warn("The watch of the remote pods misses changes; listing them again")
	p.listWatch.relist()
	return nil
}

// listVersions lists the versions of the remote pods of this node from the remote API
// server.
func (p *Provider) listVersions(ctx context.Context) (map[string]version, error) {
	versions := map[string]version{}
	options := metav1.ListOptions{LabelSelector: p.translate.Home.Selector(), Limit: pageSize}
	for {
		list, err := p.metadata.Resource(podKind.resource).Namespace(p.namespace).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list the remote pods: %w", err)
		}
		for i := range list.Items {
			if found := &list.Items[i]; p.translate.Home.Owns(found) {
				versions[found.Namespace+"/"+found.Name] = versionOf(found)
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return versions, nil
		}
	}
}
