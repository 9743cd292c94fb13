package containerd_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/test/containerd"
)

func TestStartSaysWhatIsMissing(t *testing.T) {
	present := "options_test.go"
	for name, test := range map[string]struct {
		opts containerd.Options
		want string
	}{
		"no path":          {containerd.Options{SandboxImage: "a"}, "make containerd-up"},
		"no file":          {containerd.Options{SandboxImage: "a", Binary: filepath.Join(t.TempDir(), "none")}, "make containerd-up"},
		"no sandbox image": {containerd.Options{Binary: present}, "SandboxImage"},
		"no archive":       {containerd.Options{SandboxImage: "a", Binary: present, Images: []string{"none.tar"}}, "none.tar"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := containerd.Start(t.Context(), test.opts); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v, want an error that says: %s", err, test.want)
			}
		})
	}
}
