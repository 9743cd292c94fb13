package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
)

// nodeUser begins the names of users that are nodes.
const nodeUser = "system:node:"

// anonymous is who has no credentials.
const anonymous = "system:anonymous"

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
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), anonymous):
		return failed("a kubeconfig with credentials, as docs/identity.md makes it", "%s has no credentials that %s knows: it takes this for %s", e.Source, e.server(), anonymous)
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		// Only who this is stays unknown: servers before 1.28 do not say, others may
		// have to be allowed to.
		e.user.Username = "the account of " + e.Source
		return ok("accepted by %s (%s), which does not say whose they are", e.server(), e.Source)
	case err != nil:
		return e.unanswered(err)
	}
	e.user = review.Status.UserInfo
	if name, isNode := strings.CutPrefix(e.user.Username, nodeUser); isNode {
		for _, n := range e.Nodes {
			if n.Name != name {
				return failed("virtual-kubelet --nodename "+Word(name)+", or the kubeconfig of node "+n.Name,
					"%s may act for node %s only, and this is to be node %s", e.user.Username, name, n.Name)
			}
		}
	}
	return ok("%s at %s (%s)", e.user.Username, e.server(), e.Source)
}

// unanswered finds out why the API server did not say who this is.
func (e *examination) unanswered(err error) Finding {
	text := err.Error()
	status := apierrors.APIStatus(nil)
	switch end, expired := e.certificateEnd(); {
	case apierrors.IsUnauthorized(err) && expired:
		return failed("a new client certificate in the kubeconfig; with --bootstrap-kubeconfig restart virtual-kubelet, which requests another one",
			"%s refuses the credentials of %s: the client certificate has expired, at %s", e.server(), e.Source, end.Format(time.RFC3339))
	case apierrors.IsUnauthorized(err) && e.Cluster.ExecProvider != nil:
		return failed("log in again for the command that the kubeconfig has, "+Word(e.Cluster.ExecProvider.Command),
			"%s refuses the credentials of %s", e.server(), e.Source)
	case apierrors.IsUnauthorized(err):
		return failed("kubectl -n kube-system create token virtual-kubelet --duration 720h, with the namespace and name of its service account, for a new token in the kubeconfig",
			"%s refuses the credentials of %s: they are wrong, have expired or their account was deleted", e.server(), e.Source)
	case strings.Contains(text, "getting credentials"):
		return failed("the command that the kubeconfig has for its user, on this machine and by hand", "%s yields no credentials, so that %s was not asked: %s", e.Source, e.server(), text)
	case strings.Contains(text, "not yet valid"):
		return failed("compare date -u on both machines; timedatectl set-ntp true, or a new certificate for the API server", "the certificate of %s is not valid now, by this machine's clock: %s", e.server(), text)
	case strings.Contains(text, "x509:"):
		return failed("the address and certificate-authority-data of this cluster in the kubeconfig ("+e.Source+")", "the certificate of %s is not one that the kubeconfig trusts: %s", e.server(), text)
	case errors.As(err, &status):
		return failed("kubectl get --raw '/readyz?verbose', with the same kubeconfig", "%s (%s) answers with an error: %s", e.server(), e.Source, text)
	}
	fix := "kubectl cluster-info, on this machine and with the same kubeconfig, shows whether the address is right"
	if proxy := proxyFor(e.Cluster); proxy != "" {
		fix += "; it is asked by way of the proxy " + proxy + " (HTTPS_PROXY, NO_PROXY or the kubeconfig's proxy-url)"
	}
	return failed(fix, "%s (%s) does not answer: %s", e.server(), e.Source, text)
}

// certificateEnd returns when the client certificate has expired.
func (e *examination) certificateEnd() (end time.Time, expired bool) {
	content := e.Cluster.CertData
	if len(content) == 0 && e.Cluster.CertFile != "" {
		content, _ = os.ReadFile(e.Cluster.CertFile) // without it nothing is known
	}
	certificates, err := certutil.ParseCertsPEM(content)
	if err != nil {
		return end, false
	}
	return certificates[0].NotAfter, time.Now().After(certificates[0].NotAfter)
}

// proxyFor returns the proxy by way of which an API server is asked, without its password;
// empty without one.
func proxyFor(config *rest.Config) string {
	address, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return ""
	}
	find := config.Proxy
	if find == nil {
		find = http.ProxyFromEnvironment
	}
	proxy, err := find(&http.Request{URL: address})
	if err != nil || proxy == nil {
		return ""
	}
	return proxy.Redacted()
}

// maxOlder is by how many minor versions a kubelet may be older than its API server.
const maxOlder = 3

// checkVersion compares versions as Kubernetes' version skew policy has it for kubelets.
func checkVersion(ctx context.Context, e *examination) Finding {
	info, err := e.serverVersion(ctx)
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

// serverVersion asks as a discovery client does, and ends with ctx.
func (e *examination) serverVersion(ctx context.Context) (info apiversion.Info, err error) {
	content, err := e.client.Discovery().RESTClient().Get().AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return info, err
	}
	if err := json.Unmarshal(content, &info); err != nil {
		return info, fmt.Errorf("the answer is no version: %w", err)
	}
	return info, nil
}

// maxSkew is by how much clocks may differ. Certificates and tokens that were made just
// now are not valid yet for clocks that are behind.
const maxSkew = time.Minute

// checkClock compares the API server's clock with that of this machine.
func checkClock(ctx context.Context, e *examination) Finding {
	skew, err := ClockSkew(ctx, e.Cluster)
	if err != nil {
		return notChecked("the API server does not say what time it is: %v", err)
	}
	e.skew = skew
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

// ClockSkew returns by how much the API server's clock is ahead of this machine's, to
// about a second, from the Date of an answer.
func ClockSkew(ctx context.Context, cluster *rest.Config) (time.Duration, error) {
	client, err := rest.HTTPClientFor(cluster)
	if err != nil {
		return 0, err
	}
	address, _, err := rest.DefaultServerUrlFor(cluster)
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.JoinPath("version").String(), nil)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	// The header has whole seconds, and was written while the request was under way.
	now := time.Now()
	_, err = io.Copy(io.Discard, response.Body)
	date, dateErr := http.ParseTime(response.Header.Get("Date"))
	if err := errors.Join(err, dateErr, response.Body.Close()); err != nil {
		return 0, err
	}
	return date.Add(time.Second / 2).Sub(began.Add(now.Sub(began) / 2)), nil
}
