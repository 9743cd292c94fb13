package nodecheck

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// whoIs asks the API server whose a token is, with the token itself: that takes
// no rights.
func (n *Node) whoIs(ctx context.Context, token string) (authenticationv1.UserInfo, error) {
	if n.config == nil {
		return authenticationv1.UserInfo{}, errNoStreams
	}
	config := rest.AnonymousClientConfig(n.config)
	config.BearerToken = token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, fmt.Errorf("the API server does not accept the token: %w", err)
	}
	return review.Status.UserInfo, nil
}
