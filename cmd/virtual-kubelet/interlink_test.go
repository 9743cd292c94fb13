package main

import (
	"testing"

	"github.com/spf13/pflag"
)

// Who has run interLink's own virtual kubelet has these variables.
func TestInterlinkEnvironment(t *testing.T) {
	env := map[string]string{"NODENAME": "hpc", "CONFIGPATH": "/etc/interlink/InterLinkConfig.yaml", "POD_IP": "192.0.2.5", "KUBELET_PORT": "5820"}
	for _, test := range []struct {
		args               []string
		name, config, addr string
	}{
		{[]string{"--provider=interlink"}, "hpc", "/etc/interlink/InterLinkConfig.yaml", "192.0.2.5"},
		{[]string{"--provider=interlink", "--nodename=other", "--provider-config=own.yaml"}, "other", "own.yaml", "192.0.2.5"},
		{[]string{"--provider=mock"}, defaultNodeName, "", ""},
	} {
		var o options
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.addFlags(flags, func(name string) string { return env[name] })
		if err := flags.Parse(test.args); err != nil {
			t.Fatal(err)
		}
		o.takeEnvironment(func(name string) string { return env[name] })
		if o.nodeName != test.name || o.providerConfig != test.config || o.nodeIP != test.addr || o.port != 5820 {
			t.Errorf("%v: node %q, config %q, address %q, port %d", test.args, o.nodeName, o.providerConfig, o.nodeIP, o.port)
		}
	}
}
