package volume

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Client asks the API server, with the rights of a node: it creates
// serviceaccounts/token and gets persistentvolumeclaims and persistentvolumes.
type Client struct {
	// Interface is the connection.
	kubernetes.Interface
}

var (
	_ TokenRequester = Client{}
	_ Claims         = Client{}
)

// RequestToken implements TokenRequester.
func (c Client) RequestToken(ctx context.Context, namespace, serviceAccount string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	return c.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, serviceAccount, request, metav1.CreateOptions{})
}

// PersistentVolumeClaim implements Claims.
func (c Client) PersistentVolumeClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return c.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
}

// PersistentVolume implements Claims.
func (c Client) PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	return c.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
}
