package main

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/nodepools"
	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/settings"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// configurationKind is the kind of the configuration in the file of --config.
const configurationKind = "VirtualKubeletConfiguration"

const (
	defaultKubeletPort = 10250
	defaultNodeName    = "virtual-kubelet"
)

// addFlags declares the flags. Environment variables are the defaults of some.
func (o *options) addFlags(flags *pflag.FlagSet, getenv func(string) string) {
	o.flags, o.getenv = flags, getenv
	o.settings = o.newSettings()
	o.settings.AddFlags(flags, getenv)
}

// newSettings returns the one table of all settings. Flags, the configuration file, its
// schema and its documentation come from it.
func (o *options) newSettings() *settings.Table {
	table := &settings.Table{APIVersion: nodepools.APIVersion, Kind: configurationKind}
	for _, group := range [][]settings.Setting{
		o.invocationSettings(), o.providerSettings(), o.nodeSettings(), o.podSettings(), o.clusterSettings(), o.kubeletAPISettings(),
		o.sharingSettings(), o.eventSettings(), o.tracingSettings(), o.loggingSettings(),
	} {
		table.Settings = append(table.Settings, group...)
	}
	return table
}

func (o *options) invocationSettings() []settings.Setting {
	return []settings.Setting{
		{Flag: "config", Value: &o.configFile, OnlyFlag: "it names the file",
			Usage: "file with the configuration (see docs/configuration.md), pools of nodes to run in one process (see docs/scale.md), or both; what can be is reloaded when it changes"},
		{Env: "VKUBELET_POD_UID", Value: &o.podUID, OnlyFlag: "it differs with each pod that the process runs in",
			Usage: "UID of the pod that this process runs in"},
	}
}

func (o *options) providerSettings() []settings.Setting {
	return []settings.Setting{
		{Field: "provider", Flag: "provider", Value: &o.provider, OneOf: providerNames(),
			Usage: "provider that runs the pods; required unless all pools of --config name one (see virtual-kubelet providers)"},
		{Field: "providerConfig", Flag: "provider-config", Value: &o.providerConfig, Path: true, Object: &o.providerInline,
			Usage: "configuration file of the provider"},
	}
}

func (o *options) nodeSettings() []settings.Setting {
	return []settings.Setting{
		{Field: "node.name", Flag: "nodename", Env: "DEFAULT_NODE_NAME", Value: &o.nodeName, Default: defaultNodeName, Check: o.checkNodeName,
			Usage: "name of the node ($DEFAULT_NODE_NAME)"},
		{Field: "node.count", Flag: "nodes", Value: &o.nodes, Min: settings.Limit(0), Max: settings.Limit(nodepools.MaxNodes),
			Usage: "run this many nodes in one process, named after --nodename with -0, -1, ... (default: one node named --nodename)"},
		{Field: "node.os", Flag: "os", Value: &o.os, Default: "linux", OneOf: []string{"linux", "windows"},
			Usage: "operating system of the node: linux or windows"},
		{Field: "node.address", Env: "VKUBELET_POD_IP", Value: &o.nodeIP, Check: o.checkAddress,
			Usage: "address of the node, at which the API server reaches this process ($VKUBELET_POD_IP) (default: --listen-address, or the address from which this process reaches the API server)"},
		{Field: "node.clusterDomain", Flag: "cluster-domain", Value: &o.clusterDomain, Default: "cluster.local",
			Usage: "DNS domain of the cluster"},
		{Field: "node.managedCluster", Flag: "managed-cluster", Value: &o.managedCluster, OneOf: managedClusterNames(),
			Usage: "the cluster's service, whose controllers shall leave the node alone: aks, eks or gke (see docs/managed-clusters.md) (default: none)"},
		{Field: "node.adopt", Flag: "adopt-node", Value: &o.adoptNode,
			Usage: "adopt a Node of another provider, or one that no virtual kubelet made; the pods that run there are left alone"},
		{Field: "node.enableLease", Flag: "enable-node-lease", Value: &o.enableNodeLease, Default: true,
			Usage: "renew a lease as the node's heartbeat, rather than its status"},
		{Field: "node.startupTimeout", Flag: "startup-timeout", Value: &o.startupTimeout, Min: settings.Limit(0),
			Usage: "exit if the node is not ready after this time (default: keep trying)"},
		{Field: "node.notReadyAtShutdown", Flag: "not-ready-at-shutdown", Value: &o.notReadyAtEnd,
			Usage: "mark the nodes and their pods not ready at shutdown, so that the control plane taints the nodes at once; otherwise they stay ready until their leases expire, and a restart is not noticed"},
		{Field: "node.disableTaint", Flag: "disable-taint", Value: &o.disableTaint,
			Usage: "register the node without its taint"},
		{Field: "node.taint.key", Env: "VKUBELET_TAINT_KEY", Value: &o.taintKey, Default: "virtual-kubelet.io/provider", Check: quoting(&o.taintKey, validation.IsQualifiedName),
			Usage: "key of the node's taint ($VKUBELET_TAINT_KEY)"},
		{Field: "node.taint.value", Env: "VKUBELET_TAINT_VALUE", Value: &o.taintValue, Check: quoting(&o.taintValue, validation.IsValidLabelValue),
			Usage: "value of the taint ($VKUBELET_TAINT_VALUE) (default: the provider's name)"},
		{Field: "node.taint.effect", Env: "VKUBELET_TAINT_EFFECT", Value: &o.taintEffect, Default: string(corev1.TaintEffectNoSchedule),
			OneOf: []string{string(corev1.TaintEffectNoSchedule), string(corev1.TaintEffectPreferNoSchedule), string(corev1.TaintEffectNoExecute)},
			Usage: "effect of the taint: NoSchedule, PreferNoSchedule or NoExecute ($VKUBELET_TAINT_EFFECT)"},
	}
}

func (o *options) podSettings() []settings.Setting {
	return []settings.Setting{
		{Field: "pods.namespace", Flag: "namespace", Value: &o.namespace, Check: o.checkNamespace,
			Usage: "run only pods of this namespace (default: all namespaces)"},
		{Field: "pods.syncWorkers", Flag: "pod-sync-workers", Value: &o.podSyncWorkers, Default: 10, Min: settings.Limit(1),
			Usage: "number of pods to sync at the same time"},
		{Field: "pods.fullResyncPeriod", Flag: "full-resync-period", Value: &o.fullResyncPeriod, Default: time.Minute, Min: settings.Limit(0),
			Usage: "interval between resyncs of all pods"},
		{Field: "pods.lostPodTimeout", Flag: "lost-pod-timeout", Value: &o.lostPodTimeout, Default: node.DefaultLostPodTimeout,
			Usage: "fail a running pod that the provider has not known for this time, unless most pods of the node are missing at once (negative: never)"},
	}
}

func (o *options) clusterSettings() []settings.Setting {
	return []settings.Setting{
		{Field: "clientConnection.kubeconfig", Flag: "kubeconfig", Value: &o.kubeconfig, Path: true,
			Usage: "kubeconfig file (default: $KUBECONFIG, the pod's service account, or ~/.kube/config)"},
		{Field: "clientConnection.bootstrapKubeconfig", Flag: "bootstrap-kubeconfig", Value: &o.bootstrap, Path: true,
			Usage: "kubeconfig file to request the node's own client certificate with, as system:node:NAME, unless --kubeconfig has credentials; keep the file, and give --cert-dir"},
		{Field: "clientConnection.certDirectory", Flag: "cert-dir", Value: &o.certDir, Path: true,
			Usage: "directory for the certificates that the cluster signs for this node; not to be shared by nodes"},
		{Field: "clientConnection.qps", Flag: "kube-api-qps", Value: &o.kubeAPIQPS, Default: float32(-1), NotZero: true, Reloaded: true,
			Usage: "maximum requests per second to the API server, leases and watches aside (-1: unlimited)"},
		{Field: "clientConnection.burst", Flag: "kube-api-burst", Value: &o.kubeAPIBurst, Reloaded: true,
			Usage: "maximum burst of requests to the API server (default: twice --kube-api-qps)"},
	}
}

func (o *options) kubeletAPISettings() []settings.Setting {
	return []settings.Setting{
		{Field: "kubeletAPI.address", Flag: "listen-address", Value: &o.listenAddress,
			Usage: "address to serve the kubelet API on (default: all addresses)"},
		{Field: "kubeletAPI.port", Flag: "port", Env: "KUBELET_PORT", Value: &o.port, Default: defaultKubeletPort, Min: settings.Limit(0), Max: settings.Limit(65535),
			Usage: "port of the kubelet API, 0 for any free one ($KUBELET_PORT)"},
		{Field: "kubeletAPI.portPerNode", Flag: "port-per-node", Value: &o.portPerNode,
			Usage: "serve each node's kubelet API on a port of its own, from --port or the pool's basePort upwards, as metrics-server needs; with --nodes or --config"},
		{Field: "kubeletAPI.servingCertificate", Flag: "serving-certificate", Value: &o.serving, OneOf: []string{servingFiles, servingCluster, servingSelfSigned},
			Usage: "source of the kubelet API's certificate: files, cluster (has to be approved; requires --cert-dir) or self-signed (default: files if --tls-cert-file is given, else self-signed)"},
		{Field: "kubeletAPI.tlsCertFile", Flag: "tls-cert-file", Env: "APISERVER_CERT_LOCATION", Value: &o.certFile, Path: true,
			Usage: "PEM file with the kubelet API's certificate, reloaded when it changes ($APISERVER_CERT_LOCATION)"},
		{Field: "kubeletAPI.tlsPrivateKeyFile", Flag: "tls-private-key-file", Env: "APISERVER_KEY_LOCATION", Value: &o.keyFile, Path: true,
			Usage: "PEM file with the key of --tls-cert-file, reloaded when it changes ($APISERVER_KEY_LOCATION)"},
		{Field: "kubeletAPI.clientCAFile", Flag: "client-ca-file", Env: "APISERVER_CA_CERT_LOCATION", Value: &o.clientCAFile, Path: true,
			Usage: "PEM file with the CA of the kubelet API's client certificates, reloaded when it changes ($APISERVER_CA_CERT_LOCATION) (default: the cluster's CA)"},
		{Field: "kubeletAPI.anonymousAuth", Flag: "anonymous-auth", Value: &o.anonymous,
			Usage: "accept unauthenticated kubelet API requests as system:anonymous; authorization still applies"},
		{Field: "kubeletAPI.streamIdleTimeout", Flag: "stream-idle-timeout", Value: &o.streamIdleTimeout, Default: 4 * time.Hour, Min: settings.Limit(0),
			Usage: "end exec, attach and port-forward after this time without traffic"},
		{Field: "kubeletAPI.streamCreationTimeout", Flag: "stream-creation-timeout", Value: &o.streamCreationTimeout, Default: 30 * time.Second, Min: settings.Limit(0),
			Usage: "end exec, attach and port-forward whose streams are not opened in this time"},
		{Field: "kubeletAPI.debugHTTP", Flag: "debug-http", Value: &o.debugHTTP,
			Usage: "serve profiles at /debug/pprof/ of the kubelet API, to those who may get nodes/proxy"},
		{Field: "metrics.address", Flag: "metrics-addr", Value: &o.metricsAddr,
			Usage: "address to serve metrics and health on, too, over plain HTTP without authentication (default: not served)"},
	}
}

func (o *options) sharingSettings() []settings.Setting {
	return []settings.Setting{
		{Field: "leaderElection.leaderElect", Flag: "leader-elect", Value: &o.leaderElect,
			Usage: "run the node only while this process leads among those with the same --nodename; the others stand by"},
		{Field: "leaderElection.shards", Flag: "shards", Value: &o.shards, Min: settings.Limit(0),
			Usage: "split the nodes of --nodes or --config into this many shards, shared by all replicas with the same nodes, --nodename and --shards; a dead replica's shards are taken over (default: one replica has all nodes)"},
		{Field: "leaderElection.resourceNamespace", Flag: "leader-elect-namespace", Value: &o.electNamespace, Default: metav1.NamespaceSystem, Check: quoting(&o.electNamespace, validation.IsDNS1123Label),
			Usage: "namespace of the leases of --leader-elect and --shards"},
		{Field: "leaderElection.leaseDuration", Flag: "leader-elect-lease-duration", Value: &o.electDuration, Default: 15 * time.Second, Check: o.checkLeaseDuration,
			Usage: "time after which leases of --leader-elect and --shards that are not renewed are taken over; the nodes' own leases last 40s"},
	}
}

func (o *options) eventSettings() []settings.Setting {
	return []settings.Setting{
		{Field: "events.source", Flag: "event-source", Value: &o.eventSource, Default: "virtual-kubelet",
			Usage: "source component of events, by which some tools select them; a kubelet's is kubelet"},
		{Field: "events.qps", Flag: "event-qps", Value: &o.eventQPS, Default: float32(50), NotZero: true,
			Usage: "maximum Normal events per second; excess is dropped, Warning events never (-1: unlimited)"},
		{Field: "events.burst", Flag: "event-burst", Value: &o.eventBurst, Default: 100, Min: settings.Limit(1),
			Usage: "maximum burst of Normal events"},
	}
}

func (o *options) tracingSettings() []settings.Setting {
	return []settings.Setting{
		{Field: "tracing.exporter", Flag: "trace-exporter", Env: "OTEL_TRACES_EXPORTER", FromEnv: traceExporter, Value: &o.traceExporter, Default: "none", OneOf: []string{"otlp", "stdout", "none"},
			Usage: "exporter of traces: otlp (configured by $OTEL_EXPORTER_OTLP_*), stdout or none ($OTEL_TRACES_EXPORTER; otlp if $OTEL_EXPORTER_OTLP_ENDPOINT is set)"},
		{Field: "tracing.serviceName", Flag: "trace-service-name", Env: "OTEL_SERVICE_NAME", Value: &o.traceServiceName, Default: "virtual-kubelet",
			Usage: "service name in traces ($OTEL_SERVICE_NAME)"},
		{Field: "tracing.tags", Flag: "trace-tag", Value: &o.traceTags,
			Usage: "attributes of traces as key=value, besides those of $OTEL_RESOURCE_ATTRIBUTES"},
		{Field: "tracing.sampleRate", Flag: "trace-sample-rate", Env: "OTEL_TRACES_SAMPLER", FromEnv: func(getenv func(string) string) (string, bool) {
			return "", getenv("OTEL_TRACES_SAMPLER") != "" // the library reads it
		}, Value: &o.traceSampleRate, Check: o.checkSampleRate, Reloaded: true,
			Usage: "percentage of traces to sample, always, or never (default: $OTEL_TRACES_SAMPLER, or always)"},
	}
}

func (o *options) loggingSettings() []settings.Setting {
	return []settings.Setting{
		{Field: "logging.level", Flag: "log-level", Value: &o.logLevel, Default: "info", OneOf: []string{"debug", "info", "warn", "error"}, Reloaded: true,
			Usage: "minimum level to log: debug, info, warn or error"},
		{Field: "logging.format", Flag: "log-format", Value: &o.logFormat, Default: "text", OneOf: []string{"text", "json"}, Reloaded: true,
			Usage: "format of the log: text or json"},
	}
}

// quoting returns a Check of a text that has the problems that validate returns.
func quoting(text *string, validate func(string) []string) func() string {
	return func() string {
		if problems := validate(*text); len(problems) > 0 {
			return fmt.Sprintf("it is %q: %s", *text, strings.Join(problems, "; "))
		}
		return ""
	}
}

func (o *options) checkNodeName() string {
	name := o.nodeName
	if o.nodes > 0 {
		name += "-" + strconv.Itoa(o.nodes-1) // the longest of them
	}
	if problems := nodepools.NameProblems(name); len(problems) > 0 {
		return fmt.Sprintf("it is %q, which cannot be the name of a node; %s", o.nodeName, strings.Join(problems, "; "))
	}
	return ""
}

func (o *options) checkAddress() string {
	if o.nodeIP != "" && net.ParseIP(o.nodeIP) == nil {
		return fmt.Sprintf("it is %q, which is no IP address", o.nodeIP)
	}
	return ""
}

func (o *options) checkNamespace() string {
	if o.namespace == "" {
		return "" // all of them
	}
	return quoting(&o.namespace, validation.IsDNS1123Label)()
}

func (o *options) checkLeaseDuration() string {
	if o.electDuration < 3*time.Second || o.electDuration%time.Second != 0 {
		return "it is " + o.electDuration.String() + ": use whole seconds, at least 3s"
	}
	return ""
}

func (o *options) checkSampleRate() string {
	switch o.traceSampleRate {
	case "", "always", "never":
		return ""
	}
	if percent, err := strconv.ParseFloat(o.traceSampleRate, 64); err != nil || !(percent >= 0 && percent <= 100) {
		return fmt.Sprintf("it is %q: use a percentage from 0 to 100, always, or never", o.traceSampleRate)
	}
	return ""
}
