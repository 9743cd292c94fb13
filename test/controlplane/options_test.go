package controlplane_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/test/controlplane"
)

func TestStartSaysHowToGetTheBinary(t *testing.T) {
	for name, binary := range map[string]string{
		"no path": "",
		"no file": filepath.Join(t.TempDir(), "controlplane"),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := controlplane.Start(t.Context(), controlplane.Options{Binary: binary})
			if err == nil || !strings.Contains(err.Error(), "make controlplane") {
				t.Fatalf("got %v, want an error that says: make controlplane", err)
			}
		})
	}
}
