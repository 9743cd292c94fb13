package klogv2_test

import (
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/log/klogv2"
)

func Example() {
	logger := klogv2.New(log.Fields{"node": "vk-1"})
	// I0102 15:04:05.678901       1 main.go:7] "created" node="vk-1" pod="default/web"
	logger.WithField("pod", "default/web").Info("created")
}
