package main

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// bindings are what an installer such as kubeadm adds to the API server's own
// RBAC policy: the API server may use the nodes' API, and a node may join with
// a bootstrap token and renew its certificate.
func bindings() []*rbacv1.ClusterRoleBinding {
	const (
		bootstrappers = "system:bootstrappers"
		nodes         = "system:nodes"
	)
	return []*rbacv1.ClusterRoleBinding{
		binding("controlplane:kubelet-api-admin", "system:kubelet-api-admin", rbacv1.UserKind, kubeletClientUser),
		binding("controlplane:node-bootstrapper", "system:node-bootstrapper", rbacv1.GroupKind, bootstrappers),
		binding("controlplane:approve-node-client", "system:certificates.k8s.io:certificatesigningrequests:nodeclient", rbacv1.GroupKind, bootstrappers),
		binding("controlplane:approve-node-client-renewal", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", rbacv1.GroupKind, nodes),
	}
}

func binding(name, role, kind, subject string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: kind, Name: subject}},
	}
}

// createBindings creates those that are missing.
func createBindings(ctx context.Context, client kubernetes.Interface) error {
	for _, b := range bindings() {
		if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, b, metav1.CreateOptions{}); alreadyExists(err) != nil {
			return fmt.Errorf("create the cluster role binding %s: %w", b.Name, err)
		}
	}
	return nil
}
