package vkubelet

import (
	"context"
	"sync"
	"sync/atomic"
)

// Server takes the pods that are bound to a node to a provider, and their
// status back. Make one with New.
type Server struct {
	cfg        Config
	controller *PodController
	ready      chan struct{}
	closeReady sync.Once
	known      atomic.Pointer[knownPods] // nil before it runs
}

// New makes a Server. What is missing in cfg is reported by Run.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, ready: make(chan struct{})}
	s.controller = NewPodController(s)
	return s
}

// Run runs the server until ctx ends, and then returns nil once all of it has
// stopped; pods go on running in the provider. It returns an error of class
// InvalidInput if the Config lacks something. It can be called once.
func (s *Server) Run(ctx context.Context) error {
	return s.controller.Run(ctx, s.cfg.PodSyncWorkers)
}

// Ready returns a channel that is closed once the caches have synced and pods
// are worked on, by Run or by a controller that NewPodController made. It stays
// open if that fails.
func (s *Server) Ready() <-chan struct{} { return s.ready }

func (s *Server) becomeReady() { s.closeReady.Do(func() { close(s.ready) }) }
