package main

import (
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/internal/daemon"
)

// What the process of a provider has in memory is in that of its agent, of each kind.
func TestMemoryOfAnAgentHasThatOfItsProvider(t *testing.T) {
	p, err := daemon.Launch(exec.Command("sleep", "600"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Stop(os.Kill) }()
	u, err := (&running{process: p, provider: p}).rss()
	if err != nil {
		t.Fatal(err)
	}
	if all, once := u.all, u.provider; all.Now <= once.Now || all.Anonymous <= once.Anonymous || all.Peak <= once.Peak {
		t.Errorf("twice %+v makes %+v", once, all)
	}
}
