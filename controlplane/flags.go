package main

import (
	"net"
	"strconv"
)

// flagSource is what the command lines are made of.
type flagSource struct {
	layout      layout
	pki         *pki
	address     net.IP // where the API server listens
	advertise   net.IP // what it announces to the cluster; nil when nothing but loopback reaches it
	serviceCIDR string
	ports       map[string]int      // by component
	extra       map[string][]string // by component; later flags win
}

// serviceAccountIssuer is the issuer of bound service account tokens.
const serviceAccountIssuer = "https://kubernetes.default.svc.cluster.local"

func (s *flagSource) etcd() []string {
	return s.with(etcdName, "--data-dir="+s.layout.etcdData())
}

func (s *flagSource) apiServer() []string {
	flags := []string{
		"--etcd-servers=unix://" + etcdSocket,
		"--bind-address=" + s.address.String(),
		"--secure-port=" + s.port(apiServerName),
		"--permit-port-sharing=true",
		"--tls-cert-file=" + s.pki.apiServer.certFile,
		"--tls-private-key-file=" + s.pki.apiServer.keyFile,
		"--service-cluster-ip-range=" + s.serviceCIDR,

		// Who is it, and what may it do?
		"--client-ca-file=" + s.pki.ca.certFile,
		"--enable-bootstrap-token-auth=true",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--service-account-issuer=" + serviceAccountIssuer,
		"--service-account-key-file=" + s.pki.serviceAccountPublic,
		"--service-account-signing-key-file=" + s.pki.serviceAccountKey,

		// The aggregation layer. There is no kube-proxy, so the API server
		// goes to the endpoints of a service itself.
		"--requestheader-client-ca-file=" + s.pki.frontProxyCA.certFile,
		"--requestheader-allowed-names=" + frontProxyUser,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + s.pki.frontProxy.certFile,
		"--proxy-client-key-file=" + s.pki.frontProxy.keyFile,
		"--enable-aggregator-routing=true",

		// The way to the nodes. Without --kubelet-certificate-authority, a
		// node may have a self-signed serving certificate.
		"--kubelet-client-certificate=" + s.pki.kubeletClient.certFile,
		"--kubelet-client-key=" + s.pki.kubeletClient.keyFile,
		"--kubelet-preferred-address-types=InternalIP,Hostname,InternalDNS,ExternalDNS,ExternalIP",

		"--profiling=false",
	}
	if s.advertise != nil {
		flags = append(flags, "--advertise-address="+s.advertise.String())
	} else {
		// The "kubernetes" service must not have an endpoint that leads nowhere.
		flags = append(flags, "--endpoint-reconciler-type=none")
	}
	return s.with(apiServerName, flags...)
}

func (s *flagSource) controllerManager() []string {
	flags := append(s.controller(controllerManagerName),
		"--use-service-account-credentials=true",
		"--controllers=*,bootstrap-signer-controller,token-cleaner-controller",
		"--service-account-private-key-file="+s.pki.serviceAccountKey,
		"--root-ca-file="+s.pki.ca.certFile,
		"--cluster-signing-cert-file="+s.pki.ca.certFile,
		"--cluster-signing-key-file="+s.pki.ca.keyFile,
		"--service-cluster-ip-range="+s.serviceCIDR,
	)
	return s.with(controllerManagerName, flags...)
}

func (s *flagSource) scheduler() []string {
	return s.with(schedulerName, s.controller(schedulerName)...)
}

// controller is what kube-controller-manager and kube-scheduler have in common.
func (s *flagSource) controller(name string) []string {
	kubeconfig := s.layout.kubeconfig(name)
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--client-ca-file=" + s.pki.ca.certFile,
		"--requestheader-client-ca-file=" + s.pki.frontProxyCA.certFile,
		"--bind-address=" + loopback.String(),
		"--secure-port=" + s.port(name),
		"--permit-port-sharing=true",
		"--tls-cert-file=" + s.pki.controllers.certFile,
		"--tls-private-key-file=" + s.pki.controllers.keyFile,
		"--leader-elect=false", // there is only one of each
		"--kube-api-qps=100",   // what Kubernetes' own scale tests use; the
		"--kube-api-burst=200", // defaults hold up the start by seconds
		"--profiling=false",
	}
}

func (s *flagSource) port(name string) string { return strconv.Itoa(s.ports[name]) }

func (s *flagSource) with(name string, flags ...string) []string {
	return append(flags, s.extra[name]...)
}
