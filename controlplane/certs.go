package main

import (
	"fmt"
	"net"
)

// kubeletClientUser is who the API server is when it talks to a node.
const kubeletClientUser = "kube-apiserver-kubelet-client"

// frontProxyUser is who the API server is when it talks to an aggregated API.
const frontProxyUser = "front-proxy-client"

// pki is every certificate and key of the cluster.
type pki struct {
	ca           *keyPair // of the cluster: servers, users, kubelets
	frontProxyCA *keyPair // of the aggregation layer

	apiServer     *keyPair // serving
	controllers   *keyPair // serving, kube-controller-manager and kube-scheduler
	kubeletClient *keyPair
	frontProxy    *keyPair

	admin             *keyPair
	controllerManager *keyPair
	scheduler         *keyPair

	serviceAccountKey    string
	serviceAccountPublic string
}

// ensurePKI reads or makes all of them. The API server's certificate is valid
// for the names that pods know it by and for the given addresses.
func ensurePKI(l layout, apiServerIPs []net.IP) (*pki, error) {
	p := &pki{}
	var err error
	if p.ca, err = ensureCA(l, "ca"); err != nil {
		return nil, err
	}
	if p.frontProxyCA, err = ensureCA(l, "front-proxy-ca"); err != nil {
		return nil, err
	}
	certs := []struct {
		pair **keyPair
		ca   *keyPair
		spec certSpec
	}{
		{&p.apiServer, p.ca, certSpec{name: "apiserver", user: "kube-apiserver", ips: apiServerIPs, hosts: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		}}},
		{&p.controllers, p.ca, certSpec{name: "controllers", user: "controllers", hosts: []string{"localhost"}, ips: []net.IP{loopback}}},
		{&p.kubeletClient, p.ca, certSpec{name: "apiserver-kubelet-client", user: kubeletClientUser}},
		{&p.frontProxy, p.frontProxyCA, certSpec{name: "front-proxy-client", user: frontProxyUser}},
		{&p.admin, p.ca, certSpec{name: "admin", user: "kubernetes-admin", groups: []string{"system:masters"}}},
		{&p.controllerManager, p.ca, certSpec{name: "controller-manager", user: "system:kube-controller-manager"}},
		{&p.scheduler, p.ca, certSpec{name: "scheduler", user: "system:kube-scheduler"}},
	}
	for _, c := range certs {
		if *c.pair, err = ensureCert(l, c.ca, c.spec); err != nil {
			return nil, fmt.Errorf("certificate %s: %w", c.spec.name, err)
		}
	}
	p.serviceAccountKey, p.serviceAccountPublic, err = ensureServiceAccountKey(l)
	return p, err
}
