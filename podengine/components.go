package podengine

import (
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/podengine/image"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/probe"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// makeComponents makes what the engine consists of besides its workers.
func (e *Engine) makeComponents() (err error) {
	options := volume.Options{
		Root:            e.cfg.Root,
		Boot:            e.cfg.Boot,
		Objects:         e.cfg.Objects,
		Tokens:          e.cfg.Tokens,
		Claims:          e.cfg.Claims,
		NodeLabels:      e.cfg.NodeLabels,
		AllowHostPath:   e.cfg.AllowHostPath,
		NoLinksFollowed: e.cfg.NoLinksFollowed,
		Images:          imageVolumes{},
		Event:           e.containerEvent,
	}
	if e.cfg.NodeAllocatable != nil {
		options.NodeAllocatable = e.cfg.NodeAllocatable()
	}
	if e.cfg.Sent {
		e.sent = &sentVolumes{pods: map[types.UID]map[string]volume.Files{}}
		options.Contents = e.sent
	}
	if e.volumes, err = volume.New(options); err != nil {
		return err
	}
	e.probes = probe.NewManager(probe.ManagerOptions{
		Runner: e.prober,
		Notify: e.probesChanged,
		Event:  e.containerEvent,
	})
	if e.records, err = image.OpenRecords(filepath.Join(e.cfg.Root, "images")); err != nil {
		return err
	}
	e.makeCollector()
	e.puller = image.NewPuller(image.PullerOptions{
		Images:       e.cfg.Images,
		MaxParallel:  e.cfg.ParallelPulls,
		Event:        e.containerEvent,
		Records:      e.records,
		Verification: e.cfg.ImageVerification.Policy,
		Allowed:      e.cfg.ImageVerification.Allowed,
	})
	e.unsubscribe = e.cfg.Objects.Subscribe(e.objectChanged)
	return nil
}
