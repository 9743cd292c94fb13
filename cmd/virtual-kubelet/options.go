package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// options are the values of the flags, and of environment variables without a flag.
type options struct {
	kubeconfig     string
	bootstrap      string
	certDir        string
	nodeName       string
	nodes          int // 0: one, by the name itself
	poolsFile      string
	shards         int // 0: all nodes are in this process
	leaderElect    bool
	electNamespace string
	electDuration  time.Duration
	os             string
	provider       string
	providerConfig string
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

	portText string         // KUBELET_PORT, until it is parsed
	flags    *pflag.FlagSet // all of them
}

const (
	defaultKubeletPort = 10250
	defaultNodeName    = "virtual-kubelet"
)

// addFlags declares the flags. Environment variables are the defaults of some.
func (o *options) addFlags(flags *pflag.FlagSet, getenv func(string) string) {
	env := func(name, otherwise string) string {
		if value := getenv(name); value != "" {
			return value
		}
		return otherwise
	}
	o.flags = flags
	o.portText = getenv("KUBELET_PORT")
	o.nodeIP = getenv("VKUBELET_POD_IP")
	o.podUID = getenv("VKUBELET_POD_UID")
	o.taintKey = env("VKUBELET_TAINT_KEY", "virtual-kubelet.io/provider")
	o.taintValue = getenv("VKUBELET_TAINT_VALUE")
	o.taintEffect = env("VKUBELET_TAINT_EFFECT", string(corev1.TaintEffectNoSchedule))

	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file (default: $KUBECONFIG, the pod's service account, or ~/.kube/config)")
	flags.StringVar(&o.bootstrap, "bootstrap-kubeconfig", "", "kubeconfig file to request the node's own client certificate with, as system:node:NAME, unless --kubeconfig has credentials; keep the file, and give --cert-dir")
	flags.StringVar(&o.certDir, "cert-dir", "", "directory for the certificates that the cluster signs for this node; not to be shared by nodes")
	flags.StringVar(&o.nodeName, "nodename", env("DEFAULT_NODE_NAME", defaultNodeName), "name of the node ($DEFAULT_NODE_NAME)")
	flags.IntVar(&o.nodes, "nodes", 0, "run this many nodes in one process, named after --nodename with -0, -1, ... (default: one node named --nodename)")
	flags.StringVar(&o.poolsFile, "config", "", "file with pools of nodes to run in one process; changes to it are applied while it runs (see docs/scale.md)")
	flags.IntVar(&o.shards, "shards", 0, "split the nodes of --nodes or --config into this many shards, shared by all replicas with the same nodes, --nodename and --shards; a dead replica's shards are taken over (default: one replica has all nodes)")
	flags.BoolVar(&o.leaderElect, "leader-elect", false, "run the node only while this process leads among those with the same --nodename; the others stand by")
	flags.StringVar(&o.electNamespace, "leader-elect-namespace", metav1.NamespaceSystem, "namespace of the leases of --leader-elect and --shards")
	flags.DurationVar(&o.electDuration, "leader-elect-lease-duration", 15*time.Second, "time after which leases of --leader-elect and --shards that are not renewed are taken over; the nodes' own leases last 40s")
	flags.StringVar(&o.os, "os", "linux", "operating system of the node: linux or windows")
	flags.StringVar(&o.provider, "provider", "", "provider that runs the pods; required unless all pools of --config name one (see virtual-kubelet providers)")
	flags.StringVar(&o.providerConfig, "provider-config", "", "configuration file of the provider")
	flags.StringVar(&o.clusterDomain, "cluster-domain", "cluster.local", "DNS domain of the cluster")
	flags.StringVar(&o.namespace, "namespace", corev1.NamespaceAll, "run only pods of this namespace (default: all namespaces)")
	flags.BoolVar(&o.adoptNode, "adopt-node", false, "adopt a Node of another provider, or one that no virtual kubelet made; the pods that run there are left alone")
	flags.StringVar(&o.listenAddress, "listen-address", "", "address to serve the kubelet API on (default: all addresses)")
	flags.IntVar(&o.port, "port", defaultKubeletPort, "port of the kubelet API, 0 for any free one ($KUBELET_PORT)")
	flags.BoolVar(&o.portPerNode, "port-per-node", false, "serve each node's kubelet API on a port of its own, from --port or the pool's basePort upwards, as metrics-server needs; with --nodes or --config")
	flags.StringVar(&o.serving, "serving-certificate", "", "source of the kubelet API's certificate: files, cluster (has to be approved; requires --cert-dir) or self-signed (default: files if --tls-cert-file is given, else self-signed)")
	flags.StringVar(&o.certFile, "tls-cert-file", getenv("APISERVER_CERT_LOCATION"), "PEM file with the kubelet API's certificate, reloaded when it changes ($APISERVER_CERT_LOCATION)")
	flags.StringVar(&o.keyFile, "tls-private-key-file", getenv("APISERVER_KEY_LOCATION"), "PEM file with the key of --tls-cert-file, reloaded when it changes ($APISERVER_KEY_LOCATION)")
	flags.StringVar(&o.clientCAFile, "client-ca-file", getenv("APISERVER_CA_CERT_LOCATION"), "PEM file with the CA of the kubelet API's client certificates, reloaded when it changes ($APISERVER_CA_CERT_LOCATION) (default: the cluster's CA)")
	flags.BoolVar(&o.anonymous, "anonymous-auth", false, "accept unauthenticated kubelet API requests as system:anonymous; authorization still applies")
	flags.StringVar(&o.metricsAddr, "metrics-addr", "", "address to serve metrics on, too, over plain HTTP without authentication (default: not served)")
	flags.IntVar(&o.podSyncWorkers, "pod-sync-workers", 10, "number of pods to sync at the same time")
	flags.BoolVar(&o.disableTaint, "disable-taint", false, "register the node without its taint")
	flags.DurationVar(&o.fullResyncPeriod, "full-resync-period", time.Minute, "interval between resyncs of all pods")
	flags.DurationVar(&o.startupTimeout, "startup-timeout", 0, "exit if the node is not ready after this time (default: keep trying)")
	flags.DurationVar(&o.lostPodTimeout, "lost-pod-timeout", node.DefaultLostPodTimeout, "fail a running pod that the provider has not known for this time, unless most pods of the node are missing at once (negative: never)")
	flags.BoolVar(&o.notReadyAtEnd, "not-ready-at-shutdown", false, "mark the nodes and their pods not ready at shutdown, so that the control plane taints the nodes at once; otherwise they stay ready until their leases expire, and a restart is not noticed")
	flags.BoolVar(&o.enableNodeLease, "enable-node-lease", true, "renew a lease as the node's heartbeat, rather than its status")
	flags.Float32Var(&o.kubeAPIQPS, "kube-api-qps", -1, "maximum requests per second to the API server (-1: unlimited)")
	flags.IntVar(&o.kubeAPIBurst, "kube-api-burst", 0, "maximum burst of requests to the API server (default: twice --kube-api-qps)")
	flags.StringVar(&o.eventSource, "event-source", "virtual-kubelet", "source component of events, by which some tools select them; a kubelet's is kubelet")
	flags.Float32Var(&o.eventQPS, "event-qps", 50, "maximum Normal events per second; excess is dropped, Warning events never (-1: unlimited)")
	flags.IntVar(&o.eventBurst, "event-burst", 100, "maximum burst of Normal events")
	flags.DurationVar(&o.streamIdleTimeout, "stream-idle-timeout", 4*time.Hour, "end exec, attach and port-forward after this time without traffic")
	flags.DurationVar(&o.streamCreationTimeout, "stream-creation-timeout", 30*time.Second, "end exec, attach and port-forward whose streams are not opened in this time")
	flags.BoolVar(&o.debugHTTP, "debug-http", false, "serve profiles at /debug/pprof/ of the kubelet API, to those who may get nodes/proxy")
	flags.StringVar(&o.traceExporter, "trace-exporter", o.tracing(getenv), "exporter of traces: otlp (configured by $OTEL_EXPORTER_OTLP_*), stdout or none ($OTEL_TRACES_EXPORTER; otlp if $OTEL_EXPORTER_OTLP_ENDPOINT is set)")
	flags.StringVar(&o.traceServiceName, "trace-service-name", env("OTEL_SERVICE_NAME", "virtual-kubelet"), "service name in traces ($OTEL_SERVICE_NAME)")
	flags.StringToStringVar(&o.traceTags, "trace-tag", nil, "attributes of traces as key=value, besides those of $OTEL_RESOURCE_ATTRIBUTES")
	flags.StringVar(&o.traceSampleRate, "trace-sample-rate", "", "percentage of traces to sample, always, or never (default: $OTEL_TRACES_SAMPLER, or always)")
	flags.StringVar(&o.logLevel, "log-level", "info", "minimum level to log: debug, info, warn or error")
	flags.StringVar(&o.logFormat, "log-format", "text", "format of the log: text or json")
	if o.portText != "" {
		// The help shows the value in force. complete reports one that is wrong.
		if port, err := strconv.Atoi(o.portText); err == nil {
			o.port = port
			flags.Lookup("port").DefValue = o.portText
			o.portText = ""
		}
	}
}

// complete checks the values, and fills in defaults.
func (o *options) complete() error {
	if err := o.completeAll(); err != nil {
		return err
	}
	if o.provider == "" && o.poolsFile == "" {
		return fmt.Errorf("no provider is named: give --provider, with one of %s", strings.Join(providerNames(), ", "))
	}
	return nil
}

// completeAll is complete for who needs no provider.
func (o *options) completeAll() error {
	if o.portText != "" {
		return fmt.Errorf("KUBELET_PORT is %q, which is no number: set a port from 0 to 65535", o.portText)
	}
	if o.port < 0 || o.port > 65535 {
		return fmt.Errorf("port %d does not exist: use one from 0 (any free one) to 65535", o.port)
	}
	if problems := validation.IsDNS1123Subdomain(o.nodeName); len(problems) > 0 {
		return fmt.Errorf("%q cannot be the name of a node: %s", o.nodeName, strings.Join(problems, "; "))
	}
	if err := o.checkNodes(); err != nil {
		return err
	}
	if err := o.checkElection(); err != nil {
		return err
	}
	if err := oneOf("--os", o.os, "linux", "windows"); err != nil {
		return err
	}
	if err := oneOf("--log-format", o.logFormat, "text", "json"); err != nil {
		return err
	}
	if err := oneOf("--log-level", o.logLevel, "debug", "info", "warn", "error"); err != nil {
		return err
	}
	if err := oneOf("--trace-exporter", o.traceExporter, "otlp", "stdout", "none"); err != nil {
		return err
	}
	if _, err := o.sampler(); err != nil {
		return err
	}
	if err := oneOf("VKUBELET_TAINT_EFFECT", o.taintEffect, string(corev1.TaintEffectNoSchedule),
		string(corev1.TaintEffectPreferNoSchedule), string(corev1.TaintEffectNoExecute)); err != nil {
		return err
	}
	if _, ok := providers[o.provider]; !ok && o.provider != "" {
		return fmt.Errorf("there is no provider %q: use one of %s", o.provider, strings.Join(providerNames(), ", "))
	}
	if o.podSyncWorkers < 1 {
		return fmt.Errorf("--pod-sync-workers is %d: at least 1 is needed", o.podSyncWorkers)
	}
	if o.kubeAPIQPS == 0 {
		return fmt.Errorf("--kube-api-qps is 0, which would allow no request: use a positive number, or -1 for no limit")
	}
	if o.eventQPS == 0 || o.eventBurst < 1 {
		return fmt.Errorf("--event-qps is %v and --event-burst %d: use positive numbers, or --event-qps=-1 for no limit", o.eventQPS, o.eventBurst)
	}
	for flag, value := range map[string]time.Duration{
		"--full-resync-period": o.fullResyncPeriod, "--startup-timeout": o.startupTimeout,
		"--stream-idle-timeout": o.streamIdleTimeout, "--stream-creation-timeout": o.streamCreationTimeout,
	} {
		if value < 0 {
			return fmt.Errorf("%s is %v: it must not be negative", flag, value)
		}
	}
	if err := o.completeCertificates(); err != nil {
		return err
	}
	if o.kubeconfig != "" && o.bootstrap == "" {
		if _, err := os.Stat(o.kubeconfig); err != nil {
			return fmt.Errorf("--kubeconfig cannot be used: %w", err)
		}
	}
	o.identity = o.nodeIdentity()
	if o.poolsFile != "" {
		if wanted, err := newPoolFile(o).Load(); wanted == nil {
			return err
		}
		// What is wrong with some of the pools does not keep the others from running.
	}
	return nil
}

// checkNodes refuses flags that contradict --nodes or --config.
func (o *options) checkNodes() error {
	several := fmt.Sprintf("--nodes asks for %d", o.nodes)
	if o.poolsFile != "" {
		several = "--config asks for pools of them"
	}
	switch {
	case o.nodes < 0:
		return fmt.Errorf("--nodes is %d: it must not be negative", o.nodes)
	case o.nodes > 0 && o.poolsFile != "":
		return fmt.Errorf("--nodes is %d, and --config is %s: leave out one of the two", o.nodes, o.poolsFile)
	case o.nodes == 0 && o.poolsFile == "" && o.portPerNode:
		return fmt.Errorf("--port-per-node is given, but there is one node only: give --nodes or --config, or leave it out")
	case o.nodes == 0 && o.poolsFile == "":
		return nil
	case o.portPerNode && o.port != 0 && o.port+o.nodes-1 > 65535:
		return fmt.Errorf("%d nodes have no ports from %d on: use a lower --port, or 0 for any free ones", o.nodes, o.port)
	case o.bootstrap != "":
		return fmt.Errorf("--bootstrap-kubeconfig gives this process the identity of one node, and %s: use a service account (see virtual-kubelet config print-rbac)", several)
	case o.serving == servingCluster:
		return fmt.Errorf("--serving-certificate=cluster is for one node, and %s: use files or self-signed", several)
	}
	if entry, ok := providers[o.provider]; ok && o.nodes > 1 && entry.oneNode {
		return fmt.Errorf("provider %s is for one node in a process, and --nodes asks for %d: start one process for each, or use the mock provider", o.provider, o.nodes)
	}
	return nil
}

// The sources of the serving certificate.
const (
	servingFiles      = "files"
	servingCluster    = "cluster"
	servingSelfSigned = "self-signed"
)

func (o *options) completeCertificates() error {
	if (o.certFile == "") != (o.keyFile == "") {
		return fmt.Errorf("only one of --tls-cert-file (APISERVER_CERT_LOCATION) and --tls-private-key-file (APISERVER_KEY_LOCATION) is set: set both, or none for a self-signed certificate")
	}
	files := o.certFile != ""
	if o.serving == "" {
		o.serving = servingSelfSigned
		if files {
			o.serving = servingFiles
		}
	}
	if err := oneOf("--serving-certificate", o.serving, servingFiles, servingCluster, servingSelfSigned); err != nil {
		return err
	}
	switch {
	case o.serving == servingFiles && !files:
		return fmt.Errorf("--serving-certificate is files, but there are none: give --tls-cert-file and --tls-private-key-file")
	case o.serving != servingFiles && files:
		return fmt.Errorf("--serving-certificate is %s, but --tls-cert-file is given (or APISERVER_CERT_LOCATION set): leave out one of the two", o.serving)
	case o.serving == servingCluster && o.certDir == "":
		return fmt.Errorf("--serving-certificate is cluster: give the directory in which it is kept, --cert-dir")
	case o.bootstrap != "" && o.certDir == "":
		return fmt.Errorf("--bootstrap-kubeconfig is given: give the directory in which the client certificate is kept, too, --cert-dir")
	}
	return nil
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
