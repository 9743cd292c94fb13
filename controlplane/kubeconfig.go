package main

import (
	"errors"
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// contextName marks the kubeconfigs that we wrote.
const contextName = "controlplane"

// writeKubeconfig writes a kubeconfig that needs no other file.
func writeKubeconfig(path, server string, ca, user *keyPair) error {
	caPEM, err := os.ReadFile(ca.certFile)
	if err != nil {
		return fmt.Errorf("read the certificate authority: %w", err)
	}
	certPEM, err := os.ReadFile(user.certFile)
	if err != nil {
		return fmt.Errorf("read the user's certificate: %w", err)
	}
	keyPEM, err := os.ReadFile(user.keyFile)
	if err != nil {
		return fmt.Errorf("read the user's key: %w", err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[contextName] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: caPEM}
	config.AuthInfos[user.cert.Subject.CommonName] = &clientcmdapi.AuthInfo{ClientCertificateData: certPEM, ClientKeyData: keyPEM}
	config.Contexts[contextName] = &clientcmdapi.Context{Cluster: contextName, AuthInfo: user.cert.Subject.CommonName}
	config.CurrentContext = contextName
	data, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("encode the kubeconfig: %w", err)
	}
	return writeFile(path, data)
}

// checkKubeconfigTarget refuses to overwrite a kubeconfig that is not ours.
func checkKubeconfigTarget(path string) error {
	config, err := clientcmd.LoadFromFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s exists and is no kubeconfig: choose another --kubeconfig: %w", path, err)
	}
	if len(config.Contexts) != 1 || config.Contexts[contextName] == nil {
		return fmt.Errorf("%s holds other clusters and would be overwritten: choose another --kubeconfig", path)
	}
	return nil
}
