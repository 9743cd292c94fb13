package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func execute(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = run(args, &out, &errs)
	return status, out.String(), errs.String()
}

// noCluster has the binary find no cluster.
func noCluster(t *testing.T) {
	t.Helper()
	for _, name := range []string{"KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "DEFAULT_NODE_NAME",
		"KUBELET_PORT", "VKUBELET_POD_IP", "VKUBELET_POD_UID", "VKUBELET_TAINT_EFFECT", "APISERVER_CERT_LOCATION", "APISERVER_KEY_LOCATION", "APISERVER_CA_CERT_LOCATION"} {
		t.Setenv(name, "")
		os.Unsetenv(name)
	}
	t.Setenv("HOME", t.TempDir())
}

func TestWrongValuesGetOneLineAndAStatus(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	pools := filepath.Join(t.TempDir(), "pools.yaml")
	writePools(t, pools, `{pools: [{name: a, count: -1}]}`)
	strange := filepath.Join(t.TempDir(), "strange")
	if err := os.WriteFile(strange, []byte("{nope: {}, vk: {kpu: 1}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	nameless := filepath.Join(t.TempDir(), "pools.yaml")
	writePools(t, nameless, `{pools: [{name: a, count: 1}]}`)
	for _, c := range []struct {
		name   string
		args   []string
		env    map[string]string
		status int
		says   []string
	}{
		{"unknown flag", []string{"--nope"}, nil, exitUsage, []string{"--nope", "--help"}},
		{"argument", []string{"start"}, nil, exitUsage, []string{`"start"`, "--help"}},
		{"port", []string{"--port", "70000"}, nil, exitUsage, []string{"70000", "65535"}},
		{"port in environment", nil, map[string]string{"KUBELET_PORT": "x"}, exitUsage, []string{"KUBELET_PORT", `"x"`}},
		{"provider", []string{"--provider", "nope"}, nil, exitUsage, []string{`"nope"`, "mock"}},
		{"node name", []string{"--nodename", "Not_A_Name"}, nil, exitUsage, []string{"Not_A_Name"}},
		{"os", []string{"--os", "beos"}, nil, exitUsage, []string{"beos", "windows"}},
		{"log level", []string{"--log-level", "loud"}, nil, exitUsage, []string{"loud", "debug"}},
		{"log format", []string{"--log-format", "xml"}, nil, exitUsage, []string{"xml", "json"}},
		{"trace exporter", []string{"--trace-exporter", "zipkin"}, nil, exitUsage, []string{"zipkin", "otlp"}},
		{"sample rate", []string{"--trace-sample-rate", "101"}, nil, exitUsage, []string{"101", "100"}},
		{"taint effect", nil, map[string]string{"VKUBELET_TAINT_EFFECT": "Nope"}, exitUsage, []string{"Nope", "NoSchedule"}},
		{"workers", []string{"--pod-sync-workers", "0"}, nil, exitUsage, []string{"--pod-sync-workers"}},
		{"qps", []string{"--kube-api-qps", "0"}, nil, exitUsage, []string{"--kube-api-qps", "-1"}},
		{"event qps", []string{"--event-qps", "0"}, nil, exitUsage, []string{"--event-qps", "-1"}},
		{"event burst", []string{"--event-burst", "-5"}, nil, exitUsage, []string{"--event-burst", "from 1 on"}},
		{"negative duration", []string{"--startup-timeout", "-1s"}, nil, exitUsage, []string{"--startup-timeout", "from 0s on"}},
		{"half a key pair by flag", []string{"--tls-private-key-file", "x"}, nil, exitUsage, []string{"--tls-cert-file"}},
		{"unknown source of the certificate", []string{"--serving-certificate", "heaven"}, nil, exitUsage, []string{"heaven", "self-signed"}},
		{"no files", []string{"--serving-certificate", "files"}, nil, exitUsage, []string{"--tls-cert-file"}},
		{"two sources of the certificate", []string{"--serving-certificate", "self-signed"}, map[string]string{"APISERVER_CERT_LOCATION": "x", "APISERVER_KEY_LOCATION": "y"}, exitUsage, []string{"self-signed", "APISERVER_CERT_LOCATION"}},
		{"no directory for the serving certificate", []string{"--serving-certificate", "cluster"}, nil, exitUsage, []string{"--cert-dir"}},
		{"no directory for the client certificate", []string{"--bootstrap-kubeconfig", file}, nil, exitUsage, []string{"--cert-dir"}},
		{"broken bootstrap kubeconfig", []string{"--provider", "mock", "--bootstrap-kubeconfig", file, "--cert-dir", filepath.Dir(file)}, nil, exitFailed, []string{file}},
		{"half a key pair", nil, map[string]string{"APISERVER_CERT_LOCATION": "x"}, exitUsage, []string{"APISERVER_KEY_LOCATION"}},
		{"negative number of nodes", []string{"--nodes", "-1"}, nil, exitUsage, []string{"--nodes"}},
		{"ports of one node", []string{"--port-per-node"}, nil, exitUsage, []string{"--nodes"}},
		{"ports that do not exist", []string{"--nodes", "100", "--port-per-node", "--port", "65500"}, nil, exitUsage, []string{"65500", "--port"}},
		{"nodes with the identity of one", []string{"--nodes", "2", "--bootstrap-kubeconfig", file, "--cert-dir", filepath.Dir(file)}, nil, exitUsage, []string{"service account"}},
		{"nodes with one signed certificate", []string{"--nodes", "2", "--serving-certificate", "cluster", "--cert-dir", filepath.Dir(file)}, nil, exitUsage, []string{"self-signed"}},
		{"nodes of a provider for one", []string{"--nodes", "2", "--provider", "process"}, nil, exitUsage, []string{"process", "mock"}},
		{"no file of pools", []string{"--config", "/nonexistent"}, nil, exitUsage, []string{"--config", "/nonexistent"}},
		{"bad file of pools", []string{"--provider", "mock", "--config", pools}, nil, exitUsage, []string{pools, "pools[a].count", "-1", "from 0 on"}},
		{"nodes and pools", []string{"--config", pools, "--nodes", "2"}, nil, exitUsage, []string{"--config", "--nodes"}},
		{"pools with the identity of one", []string{"--config", pools, "--bootstrap-kubeconfig", file, "--cert-dir", filepath.Dir(file)}, nil, exitUsage, []string{"service account"}},
		{"negative number of shards", []string{"--nodes", "2", "--shards", "-1"}, nil, exitUsage, []string{"--shards"}},
		{"shards of one node", []string{"--shards", "1"}, nil, exitUsage, []string{"--shards", "--nodes"}},
		{"a leader of many nodes", []string{"--nodes", "2", "--leader-elect"}, nil, exitUsage, []string{"--leader-elect", "--shards"}},
		{"shards and a leader", []string{"--nodes", "2", "--shards", "2", "--leader-elect"}, nil, exitUsage, []string{"--leader-elect", "--shards"}},
		{"a leader with the identity of the node", []string{"--leader-elect", "--bootstrap-kubeconfig", file, "--cert-dir", filepath.Dir(file)}, nil, exitUsage, []string{"--leader-elect", "service account"}},
		{"shards that have to start in time", []string{"--nodes", "2", "--shards", "2", "--startup-timeout", "1m"}, nil, exitUsage, []string{"--startup-timeout"}},
		{"a lease too short", []string{"--leader-elect", "--leader-elect-lease-duration", "1s"}, nil, exitUsage, []string{"--leader-elect-lease-duration", "3s"}},
		{"a provider's configuration", []string{"--provider", "mock", "--provider-config", strange, "--leader-elect"}, nil, exitUsage, []string{"--provider-config", "kpu"}},
		{"no configuration of the provider", []string{"--provider", "mock", "--provider-config", "/nonexistent"}, nil, exitUsage, []string{"--provider-config", "/nonexistent"}},
		{"a name too long for a label", []string{"--provider", "mock", "--nodename", strings.Repeat("a", 64)}, nil, exitUsage, []string{"--nodename", "63"}},
		{"names too long for a label", []string{"--provider", "mock", "--nodename", strings.Repeat("a", 61), "--nodes", "11"}, nil, exitUsage, []string{"--nodename", "63"}},
		{"nodes without end", []string{"--provider", "mock", "--nodes", "1000000000"}, nil, exitUsage, []string{"--nodes", "10000"}},
		{"no namespace", []string{"--provider", "mock", "--namespace", "Not One"}, nil, exitUsage, []string{"--namespace", "Not One"}},
		{"no namespace of leases", []string{"--provider", "mock", "--leader-elect-namespace", ""}, nil, exitUsage, []string{"--leader-elect-namespace"}},
		{"taint key", []string{"--provider", "mock"}, map[string]string{"VKUBELET_TAINT_KEY": "a b"}, exitUsage, []string{"VKUBELET_TAINT_KEY", "a b"}},
		{"taint value", []string{"--provider", "mock"}, map[string]string{"VKUBELET_TAINT_VALUE": "a b"}, exitUsage, []string{"VKUBELET_TAINT_VALUE", "a b"}},
		{"address", []string{"--provider", "mock"}, map[string]string{"VKUBELET_POD_IP": "here"}, exitUsage, []string{"VKUBELET_POD_IP", "here", "no IP address"}},
		{"kubeconfig", []string{"--kubeconfig", "/nonexistent"}, nil, exitUsage, []string{"/nonexistent"}},
		{"no provider", nil, nil, exitUsage, []string{"--provider", "process"}},
		{"no provider of many nodes", []string{"--nodes", "2"}, nil, exitUsage, []string{"--provider", "kubernetes"}},
		{"no provider of a pool", []string{"--config", nameless}, nil, exitUsage, []string{"pools[a].provider", "--provider"}},
		{"no cluster", []string{"--provider", "mock"}, nil, exitFailed, []string{"no cluster", "--kubeconfig"}},
		{"broken kubeconfig", []string{"--provider", "mock", "--kubeconfig", file}, nil, exitFailed, []string{file}},
		{"unknown provider", []string{"providers", "nope"}, nil, exitUsage, []string{`"nope"`, "mock"}},
		{"output of the doctor", []string{"doctor", "-o", "xml"}, nil, exitUsage, []string{"xml", "json"}},
		{"account of the doctor", []string{"doctor", "--service-account", "x"}, nil, exitUsage, []string{"--service-account", "namespace"}},
		{"argument of the doctor", []string{"doctor", "--nodes", "2", "--config", "x"}, nil, exitUsage, []string{"--nodes", "--config"}},
		{"no cluster of the doctor", []string{"doctor"}, nil, exitFailed, []string{"no cluster", "--kubeconfig"}},
		{"account of deregister", []string{"deregister", "--service-account", "x"}, nil, exitUsage, []string{"--service-account", "namespace"}},
		{"argument of deregister", []string{"deregister", "vk"}, nil, exitUsage, []string{"vk"}},
		{"arguments of config check", []string{"config", "check", "a", "b"}, nil, exitUsage, []string{"2", "--help"}},
		{"no command of config", []string{"config", "chek"}, nil, exitUsage, []string{"chek", "--help"}},
		{"no cluster of deregister", []string{"deregister", "--yes"}, nil, exitFailed, []string{"no cluster", "--kubeconfig"}},
		{"version output", []string{"version", "-o", "xml"}, nil, exitUsage, []string{"xml", "json"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			noCluster(t)
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			status, _, stderr := execute(t, c.args...)
			if status != c.status {
				t.Errorf("exit status %d, want %d", status, c.status)
			}
			if lines := strings.Count(stderr, "\n"); lines != 1 {
				t.Errorf("%d lines, want one:\n%s", lines, stderr)
			}
			for _, say := range c.says {
				if !strings.Contains(stderr, say) {
					t.Errorf("%q does not say %q", stderr, say)
				}
			}
		})
	}
}

func TestEnvironmentIsTheDefaultOfFlags(t *testing.T) {
	env := map[string]string{"DEFAULT_NODE_NAME": "from-env", "KUBELET_PORT": "1234", "VKUBELET_TAINT_KEY": "k", "VKUBELET_TAINT_VALUE": "v", "VKUBELET_TAINT_EFFECT": "NoExecute"}
	var o options
	command := newRootCommand(func(name string) string { return env[name] })
	o.addFlags(command.PersistentFlags(), func(name string) string { return env[name] })
	if err := command.PersistentFlags().Parse([]string{"--nodename", "from-flag", "--provider", "mock"}); err != nil {
		t.Fatal(err)
	}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	if o.nodeName != "from-flag" || o.port != 1234 {
		t.Errorf("node %q, port %d; want the flag's name and the environment's port", o.nodeName, o.port)
	}
	spec := (&virtualNode{options: &o, address: "192.0.2.1"}).nodeSpec()
	if taint := spec.Spec.Taints[0]; taint.Key != "k" || taint.Value != "v" || taint.Effect != "NoExecute" {
		t.Errorf("taint %v, want that of the environment", taint)
	}
}

// Scripts use these flags: they stay.
func TestFlags(t *testing.T) {
	command := newRootCommand(func(string) string { return "" })
	for _, name := range strings.Fields(`kubeconfig nodename os provider provider-config cluster-domain listen-address port
		metrics-addr pod-sync-workers lost-pod-timeout disable-taint full-resync-period startup-timeout stream-idle-timeout stream-creation-timeout
		trace-exporter trace-service-name trace-tag trace-sample-rate log-level log-format namespace enable-node-lease
		kube-api-qps kube-api-burst debug-http v vmodule bootstrap-kubeconfig cert-dir serving-certificate tls-cert-file tls-private-key-file
		client-ca-file anonymous-auth event-qps event-burst nodes port-per-node config shards leader-elect leader-elect-namespace
		leader-elect-lease-duration`) {
		if command.Flags().Lookup(name) == nil {
			t.Errorf("there is no flag --%s", name)
		}
	}
}

// The help is as kubectl's: short phrases, the default last, and no flags of libraries.
func TestFlagHelp(t *testing.T) {
	var check func(command *cobra.Command)
	check = func(command *cobra.Command) {
		command.LocalFlags().VisitAll(func(f *pflag.Flag) {
			first, _ := utf8.DecodeRuneInString(f.Usage)
			_, after, hasDefault := strings.Cut(f.Usage, "(default: ")
			switch {
			case f.Hidden:
			case f.Usage == "" || unicode.IsUpper(first) && !strings.HasPrefix(f.Usage, "PEM") && !strings.HasPrefix(f.Usage, "DNS"):
				t.Errorf("%s --%s: %q does not begin with a small letter", command.Name(), f.Name, f.Usage)
			case strings.HasSuffix(f.Usage, "."), len(f.Usage) > 220:
				t.Errorf("%s --%s: %q is more than a phrase", command.Name(), f.Name, f.Usage)
			case hasDefault && strings.Index(after, ")") != len(after)-1:
				t.Errorf("%s --%s: in %q the default is not last", command.Name(), f.Name, f.Usage)
			}
		})
		for _, sub := range command.Commands() {
			check(sub)
		}
	}
	root := newRootCommand(func(string) string { return "" })
	check(root)
	if help := root.UsageString(); strings.Contains(help, "vmodule") || !strings.Contains(help, "--log-level") {
		t.Errorf("the help has klog's flags:\n%s", help)
	}
	if err := root.ParseFlags([]string{"--v=2", "-v", "2", "--vmodule", "a=1"}); err != nil {
		t.Errorf("klog's flags are refused: %v", err)
	}
	for _, name := range []string{"logtostderr", "alsologtostderr", "log-file", "log_file", "log_dir", "stderrthreshold", "skip_headers"} {
		if root.Flags().Lookup(name) != nil {
			t.Errorf("there is --%s, which has no effect", name)
		}
	}
}

// docs/configuration.md has the statuses of this binary.
func TestStatusesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	noCluster(t)
	for _, c := range []struct {
		status int
		args   []string
	}{
		{0, []string{"providers"}},
		{exitFailed, []string{"--provider", "mock"}},
		{exitFailed, []string{"doctor"}},
		{exitUsage, []string{"--port", "-1"}},
		{exitUsage, []string{"config", "check", "/nonexistent"}},
	} {
		if status, _, stderr := execute(t, c.args...); status != c.status || !strings.Contains(string(page), fmt.Sprintf("\n| %d | ", status)) {
			t.Errorf("%v: status %d, want %d, and that the page explains it: %s", c.args, status, c.status, stderr)
		}
	}
}

// The help names each environment variable that is read.
func TestHelpNamesEnvironment(t *testing.T) {
	read := map[string]bool{}
	help := newRootCommand(func(name string) string {
		read[name] = true
		return ""
	})
	text := help.Long + help.UsageString()
	for name := range read {
		if !strings.Contains(text, name) {
			t.Errorf("virtual-kubelet --help does not name %s, which is read", name)
		}
	}
	if !read["VKUBELET_POD_IP"] {
		t.Error("VKUBELET_POD_IP is not read")
	}
}

func TestSubcommands(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"version"}, "Kubernetes v1."},
		{[]string{"version", "-o", "json"}, `"kubernetes": "v1.`},
		{[]string{"providers"}, "mock"},
		{[]string{"providers", "mock"}, "Capabilities: notify, node-status, logs, exec, attach, port-forward, stats, metrics"},
		{[]string{"completion", "bash"}, "virtual-kubelet"},
		{[]string{"--help"}, "--provider-config"},
		{[]string{"conformance", "--help"}, "cat, cut, ls, sleep, tr, and nc or perl"},
	} {
		status, stdout, stderr := execute(t, c.args...)
		if status != 0 || !strings.Contains(stdout, c.says) {
			t.Errorf("%v: status %d, stdout %q, stderr %q; want %q", c.args, status, stdout, stderr, c.says)
		}
	}
}
