package doctor

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/rest"
)

// nodeUser begins the names of users that are nodes.
const nodeUser = "system:node:"

// checkConfiguration reports what was found when the configuration was read.
func checkConfiguration(_ context.Context, e *examination) Finding {
	if e.Configuration != nil {
		return failed("correct the file (virtual-kubelet providers NAME has what a provider's holds)", "%v", e.Configuration)
	}
	return ok("of %d nodes", len(e.Nodes))
}

// checkCredentials asks the API server who this is.
func checkCredentials(ctx context.Context, e *examination) Finding {
	review, err := e.client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	switch {
	case apierrors.IsUnauthorized(err):
		return failed("kubectl -n kube-system create token virtual-kubelet --duration 720h, with the namespace and name of its service account, for a new token in the kubeconfig",
			"%s refuses the credentials of %s: they are wrong, have expired or their account was deleted", e.Cluster.Host, e.Source)
	case err != nil:
		return failed("kubectl cluster-info, on this machine and with the same kubeconfig, shows whether the address is right", "%s (%s) does not answer: %v", e.Cluster.Host, e.Source, err)
	}
	e.user = review.Status.UserInfo
	if name, isNode := strings.CutPrefix(e.user.Username, nodeUser); isNode {
		for _, n := range e.Nodes {
			if n.Name != name {
				return failed("virtual-kubelet --nodename "+name+", or the kubeconfig of node "+n.Name,
					"%s may act for node %s only, and this is to be node %s", e.user.Username, name, n.Name)
			}
		}
	}
	return ok("%s at %s (%s)", e.user.Username, e.Cluster.Host, e.Source)
}

// maxOlder is by how many minor versions a kubelet may be older than its API server.
const maxOlder = 3

// checkVersion compares versions as Kubernetes' version skew policy has it for kubelets.
func checkVersion(_ context.Context, e *examination) Finding {
	info, err := e.client.Discovery().ServerVersion()
	if err != nil {
		return e.unread("the version of the API server", err)
	}
	server, err := version.ParseGeneric(info.GitVersion)
	if err != nil {
		return warning("", "the API server has the version %q: %v", info.GitVersion, err)
	}
	ours, err := version.ParseGeneric(e.Kubernetes)
	if err != nil {
		return notChecked("this program is built of Kubernetes %q: %v", e.Kubernetes, err)
	}
	newest := ours.AddMinor(maxOlder)
	switch {
	case server.Major() != ours.Major() || server.Minor() > newest.Minor():
		return warning("upgrade virtual-kubelet", "the API server has %s, and this program is built for v%d.%d to v%d.%d", info.GitVersion, ours.Major(), ours.Minor(), newest.Major(), newest.Minor())
	case server.Minor() < ours.Minor():
		return warning("upgrade the control plane, or use a virtual-kubelet that is built of its version", "the API server has %s, which is older than the node's %s: Kubernetes does not support newer nodes", info.GitVersion, e.Kubernetes)
	}
	return ok("the API server has %s, the node %s", info.GitVersion, e.Kubernetes)
}

// maxSkew is by how much clocks may differ. Certificates and tokens that were made just
// now are not valid yet for clocks that are behind.
const maxSkew = time.Minute

// checkClock compares the API server's clock with that of this machine.
func checkClock(ctx context.Context, e *examination) Finding {
	began := time.Now()
	server, err := e.serverTime(ctx)
	if err != nil {
		return notChecked("the API server does not say what time it is: %v", err)
	}
	// The header has whole seconds, and was written while the request was under way.
	now := time.Now()
	e.skew = server.Add(time.Second / 2).Sub(began.Add(now.Sub(began) / 2))
	difference := e.skew.Abs().Round(time.Second)
	if difference <= maxSkew {
		return ok("differs from the API server's by less than %v", max(difference, time.Second))
	}
	behind := "ahead of"
	if e.skew > 0 {
		behind = "behind"
	}
	return failed("timedatectl set-ntp true, on this machine and that of the API server", "this machine's clock is %v %s the API server's", difference, behind)
}

// serverTime reads the API server's clock from the Date of an answer.
func (e *examination) serverTime(ctx context.Context) (time.Time, error) {
	client, err := rest.HTTPClientFor(e.Cluster)
	if err != nil {
		return time.Time{}, err
	}
	address, _, err := rest.DefaultServerUrlFor(e.Cluster)
	if err != nil {
		return time.Time{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.JoinPath("version").String(), nil)
	if err != nil {
		return time.Time{}, err
	}
	response, err := client.Do(request)
	if err != nil {
		return time.Time{}, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	date, dateErr := http.ParseTime(response.Header.Get("Date"))
	return date, errors.Join(err, dateErr, response.Body.Close())
}
