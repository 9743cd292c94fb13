package doctor

import (
	"context"
	"os"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	certutil "k8s.io/client-go/util/cert"
)

// The ConfigMap from which a node takes the CA of the API server's client certificate.
const (
	clientCAConfigMap = "extension-apiserver-authentication"
	clientCAKey       = "client-ca-file"
)

// checkClientCA reads the CA by which the node knows the API server.
func checkClientCA(ctx context.Context, e *examination) Finding {
	const fromFile = "virtual-kubelet --client-ca-file with the CA of the API server's --kubelet-client-certificate"
	if e.ClientCAFile != "" {
		content, err := os.ReadFile(e.ClientCAFile)
		if err != nil {
			return failed(fromFile, "cannot read --client-ca-file: %v", err)
		}
		if _, err := certutil.ParseCertsPEM(content); err != nil {
			return failed(fromFile, "--client-ca-file %s: %v", e.ClientCAFile, err)
		}
		return ok("in %s", e.ClientCAFile)
	}
	client, err := kubernetes.NewForConfig(e.asProcess())
	if err != nil {
		return failed("", "cannot make a client for %s: %v", e.process(), err)
	}
	object, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, clientCAConfigMap, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "impersonate"):
		return e.unread("what "+e.process()+" may", err)
	case apierrors.IsForbidden(err) && strings.HasPrefix(e.process(), nodeUser):
		return failed(fromFile+", or "+e.NodeCommand+applied, "%s may not read ConfigMap %s in namespace %s", e.process(), clientCAConfigMap, metav1.NamespaceSystem)
	case apierrors.IsForbidden(err):
		return failed(e.grant(), "%s may not read ConfigMap %s in namespace %s, so kubectl logs and exec are refused", e.process(), clientCAConfigMap, metav1.NamespaceSystem)
	case err != nil:
		return failed(fromFile, "cannot read ConfigMap %s: %v", clientCAConfigMap, err)
	}
	if _, err := certutil.ParseCertsPEM([]byte(object.Data[clientCAKey])); err != nil {
		return failed(fromFile, "%s of ConfigMap %s has no CA: %v", clientCAKey, clientCAConfigMap, err)
	}
	return ok("in ConfigMap %s", clientCAConfigMap)
}
