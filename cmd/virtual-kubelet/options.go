package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/settings"
	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// options are the values of the flags, and of environment variables without a flag.
type options struct {
	kubeconfig     string
	bootstrap      string
	certDir        string
	nodeName       string
	nodes          int    // 0: one, by the name itself
	poolsFile      string // configFile, if that has node pools
	shards         int    // 0: all nodes are in this process
	leaderElect    bool
	electNamespace string
	electDuration  time.Duration
	os             string
	provider       string
	providerConfig string // path of its file
	providerRead   []byte // the content of that, which complete has checked
	providerInline []byte // its configuration, if the file of --config has that
	clusterDomain  string
	namespace      string
	adoptNode      bool
	notReadyAtEnd  bool
	podUID         string // of the pod in which this process runs; empty if that is not known

	identity node.Identity // of this process, set by complete

	listenAddress string
	port          int
	portPerNode   bool
	metricsAddr   string
	nodeIP        string
	serving       string
	certFile      string
	keyFile       string
	clientCAFile  string
	anonymous     bool

	podSyncWorkers   int
	disableTaint     bool
	managedCluster   string
	taintKey         string
	taintValue       string
	taintEffect      string
	fullResyncPeriod time.Duration
	startupTimeout   time.Duration
	enableNodeLease  bool
	kubeAPIQPS       float32
	kubeAPIBurst     int
	eventQPS         float32
	eventSource      string
	eventBurst       int

	lostPodTimeout time.Duration

	streamIdleTimeout     time.Duration
	streamCreationTimeout time.Duration

	traceExporter    string
	traceServiceName string
	traceTags        map[string]string
	traceSampleRate  string
	logLevel         string
	logFormat        string

	debugHTTP bool

	flags    *pflag.FlagSet // all of them
	settings *settings.Table
	getenv   func(string) string

	configFile     string  // of --config
	configLoaded   bool    // it was read
	configContent  string  // its content
	configuration  []byte  // the same, if it has a configuration
	configMistakes []error // in it

	live *live // of the process that runs the nodes, set by runNode
}

// complete checks the values, and fills in defaults.
func (o *options) complete() error {
	err := o.completeAll()
	switch {
	case o.poolsFile != "": // its pools name their providers
	case o.provider == "":
		return config.Join(append(mistakes(err), fmt.Errorf("no provider is named: give --provider, with one of %s", strings.Join(providerNames(), ", ")))...)
	case err == nil:
		// A process that stands by would otherwise fail only when it is needed.
		return o.providerMistake()
	}
	return err
}

// mistakes returns the errors of which err consists.
func mistakes(err error) []error {
	if err == nil {
		return nil
	}
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		return several.Unwrap()
	}
	return []error{err}
}

// completeAll is complete for commands that need no provider.
func (o *options) completeAll() error {
	wrong := o.check()
	if o.kubeconfig != "" && o.bootstrap == "" {
		if _, err := os.Stat(o.kubeconfig); err != nil {
			wrong = append(wrong, o.settings.Mistake([]string{"kubeconfig"}, "%s cannot be used: %v", o.settings.Name("kubeconfig"), err))
		}
	}
	if o.poolsFile != "" && len(wrong) == 0 {
		if wanted, err := newPoolFile(o).Load(); wanted == nil {
			return err
		}
		// What is wrong with some of the pools does not keep the others from running.
	}
	o.identity = o.nodeIdentity()
	return config.Join(wrong...)
}

// check returns what is wrong with the values, as far as it shows without other files, and
// fills in defaults.
func (o *options) check() []error {
	o.loadConfig()
	all := slices.Clone(o.configMistakes)
	for _, more := range [][]settings.Mistake{o.settings.Check(), o.checkNodes(), o.checkElection(), o.completeCertificates()} {
		for _, mistake := range more {
			all = append(all, mistake)
		}
	}
	slices.SortStableFunc(all, func(a, b error) int { return lineOf(a) - lineOf(b) })
	return all
}

// lineOf returns the line of a mistake in the file of --config; zero for others.
func lineOf(err error) int {
	mistake, _ := errors.AsType[settings.Mistake](err)
	return mistake.Line
}

// checkNodes refuses settings that contradict several nodes, or one.
func (o *options) checkNodes() (wrong []settings.Mistake) {
	add := func(names []string, format string, args ...any) {
		wrong = append(wrong, o.settings.Mistake(names, format, args...))
	}
	name := o.settings.Name
	several, by := fmt.Sprintf("%s asks for %d", name("nodes"), o.nodes), "nodes"
	if o.poolsFile != "" {
		several, by = "--config has pools of them", "config"
	}
	if o.nodes > 0 && o.poolsFile != "" {
		add([]string{"nodes"}, "%s is %d, and --config is %s, which has pools of nodes: leave out one of the two", name("nodes"), o.nodes, o.poolsFile)
	}
	if o.nodes <= 0 && o.poolsFile == "" {
		if o.portPerNode {
			add([]string{"port-per-node"}, "%s is given, but there is one node only: give --nodes or --config, or leave it out", name("port-per-node"))
		}
		return wrong
	}
	if o.portPerNode && o.port != 0 && o.port <= 65535 && o.port+o.nodes-1 > 65535 {
		add([]string{"port", "nodes"}, "%d nodes have no ports from %d on: use a lower %s, or 0 for any free ones", o.nodes, o.port, name("port"))
	}
	if o.bootstrap != "" {
		add([]string{"bootstrap-kubeconfig", by}, "%s gives this process the identity of one node, and %s: use a service account (see virtual-kubelet config print-rbac)", name("bootstrap-kubeconfig"), several)
	}
	if o.serving == servingCluster {
		add([]string{"serving-certificate", by}, "%s=cluster is for one node, and %s: use files or self-signed", name("serving-certificate"), several)
	}
	if entry, ok := providers[o.provider]; ok && o.nodes > 1 && entry.oneNode {
		add([]string{"nodes", "provider"}, "provider %s is for one node in a process, and %s asks for %d: start one process for each, or use the mock provider", o.provider, name("nodes"), o.nodes)
	}
	return wrong
}

// The sources of the serving certificate.
const (
	servingFiles      = "files"
	servingCluster    = "cluster"
	servingSelfSigned = "self-signed"
)

func (o *options) completeCertificates() (wrong []settings.Mistake) {
	add := func(names []string, format string, args ...any) {
		wrong = append(wrong, o.settings.Mistake(names, format, args...))
	}
	name := o.settings.Name
	if (o.certFile == "") != (o.keyFile == "") {
		add([]string{"tls-cert-file", "tls-private-key-file"}, "only one of --tls-cert-file (APISERVER_CERT_LOCATION) and --tls-private-key-file (APISERVER_KEY_LOCATION) is set: set both, or none for a self-signed certificate")
	}
	files := o.certFile != ""
	switch {
	case o.serving == "" && files:
		o.serving = servingFiles
	case o.serving == "":
		o.serving = servingSelfSigned
	case o.serving == servingFiles && !files:
		add([]string{"serving-certificate"}, "%s is files, but there are none: give --tls-cert-file and --tls-private-key-file", name("serving-certificate"))
	case o.serving != servingFiles && files:
		add([]string{"serving-certificate", "tls-cert-file"}, "%s is %s, but %s is given: leave out one of the two", name("serving-certificate"), o.serving, name("tls-cert-file"))
	}
	if o.serving == servingCluster && o.certDir == "" {
		add([]string{"serving-certificate"}, "%s is cluster: give the directory in which it is kept, %s", name("serving-certificate"), name("cert-dir"))
	}
	if o.bootstrap != "" && o.certDir == "" {
		add([]string{"bootstrap-kubeconfig"}, "%s is given: give the directory in which the client certificate is kept, too, %s", name("bootstrap-kubeconfig"), name("cert-dir"))
	}
	return wrong
}

// flagValues returns the values in force of all flags, by name.
func (o *options) flagValues() map[string]string {
	values := map[string]string{}
	o.flags.VisitAll(func(f *pflag.Flag) { values[f.Name] = f.Value.String() })
	return values
}

func oneOf(name, value string, allowed ...string) error {
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	return fmt.Errorf("%s is %q: use one of %s", name, value, strings.Join(allowed, ", "))
}
