package main

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/floor"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fault"
	"github.com/virtual-kubelet/virtual-kubelet/test/controlplane"
)

// cluster is a control plane, which the agent reaches by a way on which requests fail.
type cluster struct {
	client     kubernetes.Interface // of this program: nothing fails
	kubeconfig string               // of the agent
	way        *fault.Transport
	requests   atomic.Int64 // of the agent
	closers    []func() error
}

// namespace is where the pods are.
const namespace = "soak"

func (s *soak) newCluster(ctx context.Context, name, namespace string) (c *cluster, err error) {
	s.step("the control plane of cluster %s starts", name)
	plane, err := controlplane.Start(ctx, controlplane.Options{Binary: filepath.Join(s.bin, "controlplane")})
	if err != nil {
		return nil, err
	}
	c = &cluster{kubeconfig: filepath.Join(s.dir, name+".kubeconfig"), closers: []func() error{plane.Stop}}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if c.client, err = newClient(plane.Config()); err != nil {
		return nil, err
	}
	if err := c.serve(plane.Config(), s.seed); err != nil {
		return nil, err
	}
	return c, c.addNamespace(ctx, namespace)
}

func newClient(config *rest.Config) (kubernetes.Interface, error) {
	config.UserAgent = "soak"
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return kubernetes.NewForConfig(config)
}

// serve opens the way of the agent, and writes its kubeconfig: over HTTP/2, as to an API server.
func (c *cluster) serve(config *rest.Config, seed uint64) error {
	upstream, err := rest.TransportFor(config)
	if err != nil {
		return err
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return err
	}
	c.way = fault.NewTransport(upstream, seed)
	proxy := fault.NewProxy(target, c.way)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.requests.Add(1)
		proxy.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	server.StartTLS()
	c.closers = append(c.closers, func() error {
		c.way.Calm()
		server.CloseClientConnections()
		server.Close()
		return nil
	})
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["soak"] = &clientcmdapi.Cluster{Server: server.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}
	kubeconfig.AuthInfos["soak"] = &clientcmdapi.AuthInfo{} // the way is the administrator's
	kubeconfig.Contexts["soak"] = &clientcmdapi.Context{Cluster: "soak", AuthInfo: "soak"}
	kubeconfig.CurrentContext = "soak"
	return clientcmd.WriteToFile(*kubeconfig, c.kubeconfig)
}

// addNamespace makes the namespace, with what pods need.
func (c *cluster) addNamespace(ctx context.Context, namespace string) error {
	_, err := c.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = c.client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: configMap}, Data: map[string]string{"key": "value"},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := c.client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// addFloor has the floor run what comes to the cluster, until it is closed. One that ends before is for fail.
func (c *cluster) addFloor(ctx context.Context, fail context.CancelCauseFunc) error {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { // ends with ctx
		err := floor.Agent{Client: c.client, Node: "floor", Nodes: 1, Workers: 20}.Run(ctx)
		if ctx.Err() == nil {
			fail(fmt.Errorf("the floor has ended: %w", err))
		}
		ended <- err
	}()
	c.closers = append(c.closers, func() error {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("the floor: %w", err)
		}
		return nil
	})
	return waitReady(ctx, c.client, "floor")
}

// pods are the names of the pods of all namespaces.
func (c *cluster) pods(ctx context.Context) (names []string, err error) {
	list, err := c.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, pod := range list.Items {
		names = append(names, "pod "+pod.Namespace+"/"+pod.Name)
	}
	return names, nil
}

func (c *cluster) close() (err error) {
	for i := len(c.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, c.closers[i]())
	}
	return err
}

// waitReady waits until a node is Ready.
func waitReady(ctx context.Context, client kubernetes.Interface, node string) error {
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		n, err := client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		for _, condition := range n.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				return condition.Status == corev1.ConditionTrue, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("wait until node %s is Ready: %w", node, err)
	}
	return nil
}
