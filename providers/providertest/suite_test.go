package providertest

import (
	"slices"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

func TestShell(t *testing.T) {
	for name, test := range map[string]struct{ given, want []string }{
		"default": {nil, []string{"sh", "-c"}},
		"another": {[]string{"bash", "-c"}, []string{"bash", "-c"}},
		"none":    {[]string{}, nil},
	} {
		s := Suite{Shell: test.given, NewProvider: func(nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			return nil, nil, nil
		}}
		if err := s.complete(); err != nil || !slices.Equal(s.Shell, test.want) {
			t.Errorf("%s: the shell is %q, want %q, %v", name, s.Shell, test.want, err)
		}
	}
}
