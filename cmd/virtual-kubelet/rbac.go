package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/doctor"
	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
)

func newConfigCommand(getenv func(string) string) *cobra.Command {
	command := &cobra.Command{
		Use:   "config",
		Short: "Check and print configurations, and print manifests for a virtual node",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	command.AddCommand(newPrintRBACCommand(getenv), newConfigDefaultCommand(), newConfigCheckCommand(getenv), newConfigViewCommand(getenv), newConfigSchemaCommand())
	return command
}

func newPrintRBACCommand(getenv func(string) string) *cobra.Command {
	var o rbacOptions
	command := &cobra.Command{
		Use:   "print-rbac",
		Short: "Print a service account with the rights of a virtual node",
		Long: `Print manifests for kubectl apply: a service account, and roles with the rights
that a virtual node needs, and no others. A node with an identity of its own
(virtual-kubelet --bootstrap-kubeconfig) has the rights of nodes, and needs in
place of these the few that --node-identity prints.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.takeConfig(cmd.Flags(), getenv); err != nil {
				return usageError{err}
			}
			if o.nodeIdentity && cmd.Flags().Changed("service-account") {
				return usagef("--node-identity is of a node that needs no service account: leave out --service-account")
			}
			if err := o.complete(); err != nil {
				return usageError{err}
			}
			objects := o.objects()
			if o.rolesOnly && !o.nodeIdentity {
				objects = objects[1:]
			}
			text, err := toYAML(objects)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	nodeName := getenv("DEFAULT_NODE_NAME")
	if nodeName == "" {
		nodeName = defaultNodeName
	}
	command.Flags().StringVar(&o.nodeName, "nodename", nodeName, "name of the node to grant rights for; empty for any node ($DEFAULT_NODE_NAME)")
	command.Flags().StringVar(&o.namespace, "namespace", corev1.NamespaceAll, "grant rights for pods of this namespace only, as virtual-kubelet --namespace (default: all namespaces)")
	command.Flags().StringVar(&o.provider, "provider", "", "provider of the node, which may need further rights (default: rights that all providers need)")
	command.Flags().StringVar(&o.poolsFile, "config", "", "file with the configuration, pools of nodes, or both, as virtual-kubelet --config: grant the rights that it needs; pools have those of their providers and deleteNodes, for any node")
	command.Flags().BoolVar(&o.leaderElect, "leader-elect", false, "add the rights for virtual-kubelet --leader-elect")
	command.Flags().BoolVar(&o.shards, "shards", false, "add the rights for virtual-kubelet --shards")
	command.Flags().StringVar(&o.electNamespace, "leader-elect-namespace", metav1.NamespaceSystem, "namespace of the leases of --leader-elect and --shards; use one of its own with --shards, which needs rights on all leases there")
	command.Flags().StringVar(&o.account, "service-account", defaultAccount, "namespace and name of the service account")
	command.Flags().StringVar(&o.serving, "serving-certificate", "", "with cluster, add the rights for virtual-kubelet --serving-certificate cluster")
	command.Flags().BoolVar(&o.rolesOnly, "roles-only", false, "leave out the service account itself, for one that is made elsewhere, or to delete the roles and not the account")
	command.Flags().BoolVar(&o.nodeIdentity, "node-identity", false, "in place of all else, grant a node with an identity of its own what it needs beside the rights of nodes")
	return command
}

// defaultAccount is the namespace and name of the service account.
const defaultAccount = "kube-system/virtual-kubelet"

type rbacOptions struct {
	nodeName  string
	namespace string
	provider  string
	poolsFile string
	account   string // namespace/name

	nodeIdentity bool // the process is the node itself, and no account
	rolesOnly    bool // without the account

	providers           []string
	deleteNodes         bool
	serving             string // source of the serving certificate
	leaderElect, shards bool
	electNamespace      string

	accountNamespace, accountName string

	needs providerEntry // those of a provider that the binary does not have
}

// takeConfig sets what flags leave out to what the configuration in the file has. A file with
// pools alone has none.
func (o *rbacOptions) takeConfig(flags *pflag.FlagSet, getenv func(string) string) error {
	if o.poolsFile == "" {
		return nil
	}
	var file options
	file.addFlags(pflag.NewFlagSet("", pflag.ContinueOnError), getenv)
	file.configFile = o.poolsFile
	file.takeEnvironment(getenv)
	if file.configuration == nil {
		return nil // complete reports a file that cannot be read
	}
	if err := config.Join(file.configMistakes...); err != nil {
		return err
	}
	if o.poolsFile = file.poolsFile; file.nodes > 0 {
		file.nodeName = ""
	}
	for name, value := range map[string]string{
		"nodename": file.nodeName, "namespace": file.namespace, "provider": file.provider, "leader-elect": strconv.FormatBool(file.leaderElect),
		"shards": strconv.FormatBool(file.shards > 0), "leader-elect-namespace": file.electNamespace,
		"node-identity":       strconv.FormatBool(file.bootstrap != "" && file.kubeconfig == ""), // else it may have the credentials of an account
		"serving-certificate": file.serving,
	} {
		if flags.Changed(name) || name == "node-identity" && flags.Changed("service-account") {
			continue
		}
		if err := flags.Lookup(name).Value.Set(value); err != nil {
			return fmt.Errorf("--%s: %w", name, err)
		}
	}
	return nil
}

func (o *rbacOptions) complete() error {
	namespace, name, err := splitAccount(o.account)
	if err != nil {
		return err
	}
	if o.nodeName != "" {
		if problems := validation.IsDNS1123Subdomain(o.nodeName); len(problems) > 0 {
			return fmt.Errorf("%q cannot be the name of a node: %s", o.nodeName, strings.Join(problems, "; "))
		}
	}
	if o.namespace != "" {
		if problems := validation.IsDNS1123Label(o.namespace); len(problems) > 0 {
			return fmt.Errorf("%q cannot be the name of a namespace: %s", o.namespace, strings.Join(problems, "; "))
		}
	}
	if err := oneOf("--serving-certificate", o.serving, "", servingFiles, servingCluster, servingSelfSigned); err != nil {
		return err
	}
	if problems := validation.IsDNS1123Label(o.electNamespace); len(problems) > 0 {
		return fmt.Errorf("%q cannot be the name of a namespace: %s", o.electNamespace, strings.Join(problems, "; "))
	}
	if _, ok := providers[o.provider]; !ok && o.provider != "" {
		return fmt.Errorf("there is no provider %q: use one of %s", o.provider, strings.Join(providerNames(), ", "))
	}
	o.accountNamespace, o.accountName = namespace, name
	o.providers = []string{o.provider}
	if o.nodeIdentity && (o.nodeName == "" || o.poolsFile != "" || o.leaderElect || o.shards) {
		return errors.New("--node-identity is of one node, which may not elect a leader: give --nodename, without --leader-elect, --shards and pools of nodes")
	}
	if o.poolsFile == "" {
		return nil
	}
	wanted, err := poolRights(o.poolsFile, o.provider)
	if err != nil {
		return err
	}
	o.nodeName, o.providers, o.deleteNodes = "", wanted.Providers, wanted.DeleteNodes
	return nil
}

// splitAccount returns the namespace and the name of a service account.
func splitAccount(account string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(account, "/")
	if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return "", "", fmt.Errorf("--service-account is %q: give a namespace and a name, as in kube-system/virtual-kubelet", account)
	}
	return namespace, name, nil
}

// command returns the command that prints the objects, without --service-account.
func (o *rbacOptions) command() string {
	text := "virtual-kubelet config print-rbac"
	if o.poolsFile != "" {
		text += " --config " + doctor.Word(o.poolsFile)
	} else {
		text += " --nodename " + doctor.Word(o.nodeName)
	}
	if o.provider != "" {
		text += " --provider " + doctor.Word(o.provider)
	}
	if o.nodeIdentity {
		return text + " --node-identity"
	}
	if o.namespace != "" {
		text += " --namespace " + doctor.Word(o.namespace)
	}
	if o.leaderElect {
		text += " --leader-elect"
	}
	if o.shards {
		text += " --shards"
	}
	if o.leaderElect || o.shards {
		text += " --leader-elect-namespace " + doctor.Word(o.electNamespace)
	}
	if o.serving == servingCluster {
		text += " --serving-certificate cluster"
	}
	return text
}

// objects returns the service account, then its roles and their bindings.
func (o *rbacOptions) objects() []runtime.Object {
	name := o.roleName()
	if o.nodeIdentity {
		return o.nodeObjects(name)
	}
	objects := []runtime.Object{&corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Namespace: o.accountNamespace, Name: o.accountName},
	}}
	cluster := append(o.nodeRules(), clusterRules...)
	ofPods, more := o.providerRules()
	cluster = append(cluster, more...)
	if o.serving == servingCluster {
		cluster = append(cluster, requestRule)
	}
	if o.namespace == corev1.NamespaceAll {
		cluster = append(cluster, ofPods...)
	} else {
		podsName := name
		if o.namespace == metav1.NamespaceSystem || o.namespace == corev1.NamespaceNodeLease { // which have others of that name
			podsName += "-pods"
		}
		objects = append(objects, o.role(o.namespace, podsName, ofPods)...)
		if o.namespace != metav1.NamespaceDefault {
			objects = append(objects, o.role(metav1.NamespaceDefault, name, []rbacv1.PolicyRule{eventRule})...) // of the Node
		}
	}
	objects = append(objects, o.role(corev1.NamespaceNodeLease, name, o.leaseRules())...)
	if rules := o.electionRules(); rules != nil {
		objects = append(objects, o.role(o.electNamespace, name+"-election", rules)...)
	}
	// For the CA of client certificates.
	objects = append(objects, o.binding(metav1.NamespaceSystem, name, "extension-apiserver-authentication-reader"))
	return append(objects, o.clusterRole(name, cluster)...)
}

// nodeObjects returns roles and bindings with what the Node authorizer does not allow nodes: to
// read the CA of client certificates, and the UID of the cluster.
func (o *rbacOptions) nodeObjects(name string) []runtime.Object {
	objects := []runtime.Object{o.binding(metav1.NamespaceSystem, name, "extension-apiserver-authentication-reader")}
	if slices.ContainsFunc(o.entries(), func(entry providerEntry) bool { return entry.readsClusterUID }) {
		objects = append(objects, o.clusterRole(name, []rbacv1.PolicyRule{clusterUIDRule})...)
	}
	return objects
}

// roleName is the name of the roles and their bindings. Each account has its own, also
// accounts of one name in several namespaces: what is applied later must not take the
// rights of what was applied before. None begins with "virtual-kubelet.io:", as those of nodes
// and of the manifests in deploy/ that are not printed do, since a namespace has no dot.
func (o *rbacOptions) roleName() string {
	if o.nodeIdentity {
		return "virtual-kubelet.io:node:" + o.nodeName
	}
	name := o.accountName
	if o.accountNamespace != metav1.NamespaceSystem {
		name = o.accountNamespace + ":" + name
	}
	if o.nodeName != "" && o.nodeName != o.accountName {
		name += "-" + o.nodeName // one account may be that of several nodes
	}
	return name
}

// entries are those of the providers.
func (o *rbacOptions) entries() []providerEntry {
	entries := []providerEntry{o.needs}
	for _, name := range o.providers {
		entries = append(entries, providers[name])
	}
	return entries
}

// providerRules returns the rights that the providers need: on pods, and cluster-wide.
func (o *rbacOptions) providerRules() (ofPods, ofCluster []rbacv1.PolicyRule) {
	ofPods = slices.Clone(podRules)
	resolves, mountsVolumes, readsClusterUID := false, false, false
	for _, entry := range o.entries() {
		resolves = resolves || entry.resolves
		mountsVolumes = mountsVolumes || entry.resolves || entry.mountsVolumes
		readsClusterUID = readsClusterUID || entry.readsClusterUID
		ofPods = append(ofPods, entry.rights...)
	}
	if mountsVolumes {
		ofPods = append(ofPods, volumeRules...)
		ofCluster = append(ofCluster, claimRules...)
	}
	if resolves {
		ofCluster = append(ofCluster, classRules...)
	}
	if readsClusterUID {
		ofCluster = append(ofCluster, clusterUIDRule)
	}
	return ofPods, ofCluster
}

// nodeRules are the rights on the Node object.
func (o *rbacOptions) nodeRules() []rbacv1.PolicyRule {
	verbs := []string{"get", "list", "watch", "patch"}
	if o.deleteNodes {
		verbs = append(verbs, "delete")
	}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: verbs, ResourceNames: o.onlyNode()},
		{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}, ResourceNames: o.onlyNode()},
	}
}

// leaseRules are the rights on the node's heartbeat.
func (o *rbacOptions) leaseRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "update"}, ResourceNames: o.onlyNode()},
	}
}

// electionRules returns the rights on the leases of --leader-elect and --shards. The
// names of the latter are not known here.
func (o *rbacOptions) electionRules() (rules []rbacv1.PolicyRule) {
	rule := func(names []string, verbs ...string) {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: verbs, ResourceNames: names})
	}
	if o.leaderElect {
		var leader []string
		if o.nodeName != "" {
			leader = []string{leaderLease(o.nodeName)}
		}
		rule(nil, "create")
		rule(leader, "get", "update")
	}
	if o.shards {
		rule(nil, "create", "list", "update", "delete")
	}
	return rules
}

func (o *rbacOptions) onlyNode() []string {
	if o.nodeName == "" {
		return nil
	}
	return []string{o.nodeName}
}

// podRules are the rights on pods and what goes with them.
var podRules = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch", "delete"}},
	{APIGroups: []string{""}, Resources: []string{"pods/status"}, Verbs: []string{"patch"}},
	{APIGroups: []string{""}, Resources: []string{"configmaps", "secrets"}, Verbs: []string{"list", "watch"}},
	eventRule,
}

// clusterUIDRule is the right to read the UID that identifies the cluster.
var clusterUIDRule = rbacv1.PolicyRule{
	APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{metav1.NamespaceSystem}, Verbs: []string{"get"},
}

// requestRule is the right to request a certificate that the cluster signs, and to wait for it.
var requestRule = rbacv1.PolicyRule{
	APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"create", "get", "list", "watch"},
}

// eventRule is the right to record events.
var eventRule = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}}

// The further rights of a provider that does a kubelet's work: tokens of service
// accounts and claims, for volumes, and runtime classes.
var (
	tokenRule   = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}}
	volumeRules = []rbacv1.PolicyRule{
		tokenRule,
		{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: []string{"get"}},
	}
	claimRules = []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"persistentvolumes"}, Verbs: []string{"get"}},
	}
	classRules = []rbacv1.PolicyRule{
		{APIGroups: []string{"node.k8s.io"}, Resources: []string{"runtimeclasses"}, Verbs: []string{"get"}},
	}
)

// clusterRules are the rights in the whole cluster: services, for the environment of
// pods, and the authentication and authorization of callers of the kubelet API.
var clusterRules = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"list", "watch"}},
	{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
	{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
}

func (o *rbacOptions) role(namespace, name string, rules []rbacv1.PolicyRule) []runtime.Object {
	return []runtime.Object{
		&rbacv1.Role{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role"},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Rules:      rules,
		},
		o.binding(namespace, name, name),
	}
}

func (o *rbacOptions) binding(namespace, name, role string) runtime.Object {
	return &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
		Subjects:   o.subjects(),
	}
}

func (o *rbacOptions) clusterRole(name string, rules []rbacv1.PolicyRule) []runtime.Object {
	return []runtime.Object{
		&rbacv1.ClusterRole{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Rules:      rules,
		},
		&rbacv1.ClusterRoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   o.subjects(),
		},
	}
}

func (o *rbacOptions) subjects() []rbacv1.Subject {
	if o.nodeIdentity {
		return []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "system:node:" + o.nodeName}}
	}
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: o.accountNamespace, Name: o.accountName}}
}

// toYAML writes objects as one YAML stream.
func toYAML(objects []runtime.Object) ([]byte, error) {
	var all bytes.Buffer
	for i, object := range objects {
		text, err := yaml.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("cannot print %T: %w", object, err)
		}
		if i > 0 {
			all.WriteString("---\n")
		}
		all.Write(text)
	}
	return all.Bytes(), nil
}
