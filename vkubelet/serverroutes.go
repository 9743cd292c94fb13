package vkubelet

import (
	"context"
	"errors"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1informers "k8s.io/client-go/informers/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podwatch"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// AttachPodRoutes adds PodHandler, instrumented, to mux as its root: what mux has other
// patterns for stays with those.
func (s *Server) AttachPodRoutes(mux ServeMux) {
	api.AttachPodRoutes(s.handlerConfig(), mux, true)
}

// PodHandler is the function PodHandler for the server's provider, and knows the
// server's pods: logs, exec, attach and port-forward of any other namespace, name or UID
// answer 404 before the provider is asked, and 503 until the server knows its pods. /pods
// lists them as the API server has them. Authentication is left to the caller.
func (s *Server) PodHandler() http.Handler {
	return api.PodHandler(s.handlerConfig(), true)
}

func (s *Server) handlerConfig() api.PodHandlerConfig {
	cfg := handlerConfig(s.cfg.Provider)
	cfg.FindPod = s.findPod
	cfg.GetPodsFromKubernetes = s.listPods
	return cfg
}

var errPodsUnknown = errdefs.AsUnavailable(errors.New("the node does not know its pods yet"))

func (s *Server) findPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	known := s.known.Load()
	if known == nil {
		return nil, errPodsUnknown
	}
	pod, err := known.get(namespace, name)
	switch {
	case err != nil && !known.hasSynced():
		return nil, errPodsUnknown
	case err == nil && !s.cfg.onNode(pod):
		return nil, nil
	}
	return pod, err
}

func (s *Server) listPods(context.Context) (pods []*corev1.Pod, err error) {
	known := s.known.Load()
	if known == nil {
		return nil, errPodsUnknown
	}
	all, err := known.list()
	for _, pod := range all {
		if s.cfg.onNode(pod) {
			pods = append(pods, pod)
		}
	}
	return pods, err
}

// onNode reports whether pod is the node's: without a NodeName all pods are that the
// PodInformer sees.
func (cfg *Config) onNode(pod *corev1.Pod) bool {
	return cfg.NodeName == "" || pod.Spec.NodeName == cfg.NodeName
}

// knownPods are the pods that a server has from the API server.
type knownPods struct {
	get       func(namespace, name string) (*corev1.Pod, error)
	list      func() ([]*corev1.Pod, error)
	hasSynced func() bool
}

func watchedPods(pods *podwatch.Pods) *knownPods {
	return &knownPods{
		get:       pods.Get,
		list:      func() ([]*corev1.Pod, error) { return pods.List(), nil },
		hasSynced: pods.HasSynced,
	}
}

func informedPods(informer corev1informers.PodInformer) *knownPods {
	lister := informer.Lister()
	return &knownPods{
		get:       func(namespace, name string) (*corev1.Pod, error) { return lister.Pods(namespace).Get(name) },
		list:      func() ([]*corev1.Pod, error) { return lister.List(labels.Everything()) },
		hasSynced: informer.Informer().HasSynced,
	}
}
