package nodeutil

import (
	"context"
	"fmt"
	"reflect"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podwatch"
)

// nodeLeases renews leases without decoding them again: of the answer it takes the resourceVersion, which is what the next
// renewal needs. In a process of many nodes renewals are most of what is done while nothing happens. It names the
// whole path at once, as the client of pods does.
type nodeLeases struct {
	coordinationv1client.LeaseInterface
	direct *rest.RESTClient
}

const (
	// coordinationVersion is the path of the API of leases, nodeLeasesPath that of those of nodes.
	coordinationVersion = "/apis/coordination.k8s.io/v1"
	nodeLeasesPath      = coordinationVersion + "/namespaces/" + corev1.NamespaceNodeLease + "/leases/"
)

// newNodeLeases returns the leases of nodes of a client: client-go's own where the requests cannot be made here.
func newNodeLeases(client kubernetes.Interface) coordinationv1client.LeaseInterface {
	leases := NodeLeaseV1Client(client)
	direct := directClient(client, client.CoordinationV1().RESTClient(), coordinationVersion)
	if direct == nil {
		return leases
	}
	return nodeLeases{leases, direct}
}

// Update implements LeaseInterface. What is returned is the lease that was written, with its new resourceVersion: what others add
// when they admit it, they add to each.
func (l nodeLeases) Update(ctx context.Context, lease *coordinationv1.Lease, options metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if !reflect.ValueOf(options).IsZero() {
		return l.LeaseInterface.Update(ctx, lease, options)
	}
	if wrong := rest.IsValidPathSegmentName(lease.Name); lease.Name == "" || len(wrong) > 0 {
		return nil, &rest.RequestConstructionError{Err: fmt.Errorf("renew a lease: %q is no name", lease.Name)}
	}
	result := l.direct.Put().UseProtobufAsDefault().AbsPath(nodeLeasesPath+lease.Name).SetHeader("Accept", podwatch.MetadataOnly).Body(lease).Do(ctx)
	if err := result.Error(); err != nil { // that of Raw does not have what the API server says
		return nil, err
	}
	answer, err := result.Raw()
	if err != nil {
		return nil, err
	}
	metadata := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: podwatch.ResourceVersion(answer)}}
	if metadata.ResourceVersion == "" { // it is in JSON, say
		if err := result.Into(metadata); err != nil {
			return nil, err
		}
	}
	if metadata.ResourceVersion == "" {
		return nil, fmt.Errorf("renew lease %s: the API server's answer is no lease", lease.Name)
	}
	written := *lease
	written.ResourceVersion = metadata.ResourceVersion
	return &written, nil
}
