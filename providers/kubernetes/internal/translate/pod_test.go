package translate

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
)

func options() *Options {
	return &Options{Home: Home{Cluster: "home", Node: "far", UID: "home-uid"}, Namespaces: Namespaces{Mapping: Same}}
}

func localPod(change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "api", UID: "u-1", ResourceVersion: "7",
			Labels:          map[string]string{"app": "api", "pod-template-hash": "x"},
			Annotations:     map[string]string{"note": "n"},
			OwnerReferences: []metav1.OwnerReference{{Name: "api-rs"}},
			Finalizers:      []string{"example.com/f"},
		},
		Spec: corev1.PodSpec{
			NodeName: "far", ServiceAccountName: "api", DeprecatedServiceAccount: "api", SchedulerName: "home-scheduler",
			NodeSelector:      map[string]string{"type": "virtual-kubelet", "zone": "a"},
			Tolerations:       []corev1.Toleration{{Key: "virtual-kubelet.io/provider"}, {Key: "gpu"}},
			Affinity:          &corev1.Affinity{},
			PriorityClassName: "high", Priority: ptr.To[int32](9), Overhead: corev1.ResourceList{},
			SchedulingGroup:  &corev1.PodSchedulingGroup{},
			ReadinessGates:   []corev1.PodReadinessGate{{ConditionType: "example.com/lb"}},
			ImagePullSecrets: []corev1.LocalObjectReference{{Name: "registry"}},
			Containers: []corev1.Container{{
				Name: "main", Image: "api:1", Args: []string{"$(POD_IP)", "$(NOBODY)", "a$(b)"},
				Env: []corev1.EnvVar{
					{Name: "PASSWORD", Value: "hunter2"},
					{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
					{Name: "URL", Value: "http://$(POD_IP)/$(OTHER)"},
					{Name: "EMPTY"},
					{Name: "KUBERNETES_SERVICE_HOST", Value: "10.96.0.1"},
				},
			}},
		},
	}
	if change != nil {
		change(pod)
	}
	return pod
}

func translated(t *testing.T, o *Options, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	remote, err := o.Pod(pod, nil)
	if err != nil {
		t.Fatal(err)
	}
	return remote
}

func TestPodLeavesHomeBehind(t *testing.T) {
	o := options()
	o.Labels.Exclude = []string{"pod-template-*"}
	pod := localPod(nil)
	before := pod.DeepCopy()
	remote := translated(t, o, pod)
	if pod.String() != before.String() {
		t.Error("the pod at home was changed")
	}
	if remote.Namespace != "shop" || remote.Name != "api" || remote.UID != "" || remote.ResourceVersion != "" || remote.OwnerReferences != nil || remote.Finalizers != nil {
		t.Errorf("metadata: %+v", remote.ObjectMeta)
	}
	if remote.Labels["app"] != "api" || remote.Labels["pod-template-hash"] != "" || remote.Annotations["note"] != "n" {
		t.Errorf("labels %v, annotations %v", remote.Labels, remote.Annotations)
	}
	if !o.Home.Owns(remote) || UIDOf(remote) != "u-1" || NameOf(remote) != Key(pod) {
		t.Errorf("it does not say where it comes from: %+v", remote.ObjectMeta)
	}
	if other := (Home{Cluster: "home", Node: "near", UID: "home-uid"}); other.Owns(remote) {
		t.Error("it is another node's too")
	}
	s := remote.Spec
	if s.NodeName != "" || s.SchedulerName != "" || len(s.NodeSelector) > 0 || len(s.Tolerations) > 0 || s.Affinity != nil || s.Priority != nil || s.PriorityClassName != "" || s.Overhead != nil || s.SchedulingGroup != nil {
		t.Errorf("scheduling: %+v", s)
	}
	if s.ServiceAccountName != "" || s.DeprecatedServiceAccount != "" || ptr.Deref(s.AutomountServiceAccountToken, true) || ptr.Deref(s.EnableServiceLinks, true) || s.ReadinessGates != nil {
		t.Errorf("identity: %+v", s)
	}
	if got := s.ImagePullSecrets[0].Name; got == "registry" || got != o.ObjectName(KindSecret, "shop", "registry") {
		t.Errorf("image pull secret %q", got)
	}
}

func TestSchedulingKeepsWhatIsNamed(t *testing.T) {
	o := options()
	o.Scheduling = Scheduling{
		KeepNodeSelector: []string{"zo*"}, KeepTolerations: []string{"gpu"}, KeepAffinity: true,
		NodeSelector: map[string]string{"pool": "guests"}, Tolerations: []corev1.Toleration{{Key: "guests"}}, SchedulerName: "packer",
	}
	o.PriorityClasses = map[string]string{"high": "guest-high"}
	s := translated(t, o, localPod(nil)).Spec
	if len(s.NodeSelector) != 2 || s.NodeSelector["zone"] != "a" || s.NodeSelector["pool"] != "guests" {
		t.Errorf("node selector %v", s.NodeSelector)
	}
	if len(s.Tolerations) != 2 || s.Tolerations[0].Key != "gpu" || s.Tolerations[1].Key != "guests" {
		t.Errorf("tolerations %v", s.Tolerations)
	}
	if s.Affinity == nil || s.SchedulerName != "packer" || s.PriorityClassName != "guest-high" || s.Priority != nil {
		t.Errorf("%+v", s)
	}
}

// A pod can say where in the remote cluster it runs, but not beyond the nodes that the
// virtual node stands for.
func TestSchedulingOfThePod(t *testing.T) {
	o := options()
	o.Scheduling.NodeSelector = map[string]string{"pool": "guests"}
	asks := func(name, value string) *corev1.Pod {
		return localPod(func(pod *corev1.Pod) { pod.Annotations = map[string]string{name: value} })
	}
	s := translated(t, o, asks(AnnotationNodeSelector, "disk=ssd,pool=own")).Spec
	if len(s.NodeSelector) != 2 || s.NodeSelector["disk"] != "ssd" || s.NodeSelector["pool"] != "guests" {
		t.Errorf("node selector %v", s.NodeSelector)
	}
	s = translated(t, o, asks(AnnotationAffinity, `{"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}`)).Spec
	if s.Affinity == nil || s.Affinity.NodeAffinity != nil || s.Affinity.PodAntiAffinity == nil || s.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].TopologyKey != "zone" {
		t.Errorf("affinity %v", s.Affinity)
	}
	for value, name := range map[string]string{
		"disk in (ssd)": AnnotationNodeSelector, `{"podAfinity": {}}`: AnnotationAffinity, "nodeAffinity: {}\n---\npodAffinity: {}": AnnotationAffinity,
	} {
		if _, err := o.Pod(asks(name, value), nil); !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %s: %v", name, value, err)
		}
	}
}

// Values of variables are in a Secret, and are not expanded again.
func TestEnvironment(t *testing.T) {
	o := options()
	pod := localPod(nil)
	remote := translated(t, o, pod)
	if strings.Contains(remote.String(), "hunter2") {
		t.Error("the password is in the remote pod")
	}
	c := remote.Spec.Containers[0]
	values := o.Environment(pod)
	got := map[string]string{}
	for _, v := range c.Env {
		switch {
		case v.ValueFrom == nil:
			got[v.Name] = v.Value
		case v.ValueFrom.SecretKeyRef != nil:
			value, ok := values[v.ValueFrom.SecretKeyRef.Key]
			if !ok || v.ValueFrom.SecretKeyRef.Name != o.EnvironmentName(pod) {
				t.Errorf("%s is in %+v, which has it not", v.Name, v.ValueFrom.SecretKeyRef)
			}
			got[v.Name] = "secret " + string(value)
		default:
			got[v.Name] = v.ValueFrom.FieldRef.FieldPath
		}
	}
	for name, want := range map[string]string{
		"PASSWORD": "secret hunter2", "POD_IP": "status.podIP", "URL": "http://$(POD_IP)/$$(OTHER)", "EMPTY": "", "KUBERNETES_SERVICE_HOST": "secret 10.96.0.1",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if want := []string{"$(POD_IP)", "$$(NOBODY)", "a$$(b)"}; !slices.Equal(c.Args, want) {
		t.Errorf("args %q, want %q", c.Args, want)
	}
}

// What is expanded already is not changed by the kubelet of the remote cluster, which
// knows the variables that it is to resolve itself alone.
func TestExpandedTextStaysAsItIs(t *testing.T) {
	ip := []corev1.EnvVar{{Name: "POD_IP", Value: "10.0.0.7"}}
	for text, want := range map[string]string{
		"a$$b": "a$$b", "$": "$", "$$": "$$", "$$$": "$$$", "a$b$": "a$b$", "$(": "$(", "$$(x": "$$(x", "$(x)": "$(x)", "$$(x)": "$$(x)",
		"$(a$$b)": "$(a$$b)", "$(a$(b)": "$(a$(b)", "$(POD_IP)": "10.0.0.7", "$$-$(POD_IP)$$": "$$-10.0.0.7$$", "a$$(POD_IP)": "a$10.0.0.7",
	} {
		if got := podenv.Expand(escape(text, []string{"POD_IP"}), ip); got != want {
			t.Errorf("%s becomes %s, want %s", text, got, want)
		}
	}
}

// The variables of a container that names none are of Services: they need no Secret. Those
// of others do, as one of them may have a value that only the resolved pod shows.
func TestVariablesOfServices(t *testing.T) {
	pod := localPod(func(pod *corev1.Pod) {
		pod.Spec.Containers = nil
		for _, name := range []string{"plain", "own", "from"} {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name, Env: []corev1.EnvVar{{Name: "KUBERNETES_SERVICE_HOST", Value: "10.96.0.1"}}})
		}
	})
	original := pod.DeepCopy()
	original.Spec.Containers[0].Env, original.Spec.Containers[2].Env = nil, nil
	original.Spec.Containers[2].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{}}}
	for _, known := range []bool{true, false} {
		o := options()
		o.APIServer.Host = "api.home.example.com"
		o.Unresolved = func(*corev1.Pod) *corev1.Pod {
			if known {
				return original
			}
			return nil
		}
		c := translated(t, o, pod).Spec.Containers
		if plain := c[0].Env[0]; (plain.Value == o.APIServer.Host && plain.ValueFrom == nil) != known {
			t.Errorf("the original is known: %t; the variable is %+v", known, plain)
		}
		if c[1].Env[0].ValueFrom == nil || c[2].Env[0].ValueFrom == nil {
			t.Errorf("variables of containers that name some are %+v and %+v", c[1].Env[0], c[2].Env[0])
		}
		if values := o.Environment(pod); len(values) != 3 {
			t.Errorf("the Secret has %q, which remote pods of an earlier version need", values)
		}
	}
}

// Files that the remote cluster can write from the labels and annotations of the remote pod
// are left to it; a service may be unable to.
func TestFilesFromMetadata(t *testing.T) {
	for _, c := range []struct {
		fields    []string
		isService bool
		want      bool
	}{
		{[]string{"metadata.name", "metadata.namespace", "metadata.uid"}, false, true},
		{[]string{"metadata.name"}, true, false},
		{[]string{"metadata.name", "metadata.labels"}, false, false},
	} {
		o := options()
		o.IsService = c.isService
		remote := translated(t, o, localPod(func(pod *corev1.Pod) {
			d := &corev1.DownwardAPIVolumeSource{}
			for _, field := range c.fields {
				d.Items = append(d.Items, corev1.DownwardAPIVolumeFile{Path: field, FieldRef: &corev1.ObjectFieldSelector{FieldPath: field}})
			}
			pod.Spec.Volumes = []corev1.Volume{{Name: "info", VolumeSource: corev1.VolumeSource{DownwardAPI: d}}}
		}))
		v := remote.Spec.Volumes[0]
		if got := v.DownwardAPI != nil && v.Secret == nil; got != c.want {
			t.Errorf("%+v: the volume is %+v", c, v)
		}
		if !c.want {
			continue
		}
		for i, want := range []string{remote.Annotations[AnnotationName], remote.Labels[LabelNamespace], remote.Labels[LabelUID]} {
			value, _, err := podenv.Field(remote, v.DownwardAPI.Items[i].FieldRef.FieldPath, podenv.Options{})
			if err != nil || value != want || want == "" {
				t.Errorf("%s is %q, want %q: %v", c.fields[i], value, want, err)
			}
		}
	}
}

func TestAPIServer(t *testing.T) {
	o := options()
	o.APIServer = APIServer{Host: "api.home.example.com", Port: 6443}
	values := o.Environment(localPod(nil))
	if got := string(values["main.KUBERNETES_SERVICE_HOST"]); got != "api.home.example.com" {
		t.Errorf("the API server is at %q", got)
	}
	pod := localPod(func(pod *corev1.Pod) {
		pod.Annotations[AnnotationAPIServer] = "remote"
		pod.Spec.Volumes = []corev1.Volume{apiAccess()}
	})
	remote := translated(t, o, pod)
	for _, v := range remote.Spec.Containers[0].Env {
		if strings.HasPrefix(v.Name, "KUBERNETES_") {
			t.Errorf("%s is set", v.Name)
		}
	}
	if s := remote.Spec.Volumes[0].Projected.Sources; s[0].ServiceAccountToken == nil || s[1].ConfigMap.Name != rootCA {
		t.Errorf("the token and the certificate authority are not the remote ones: %+v", s)
	}
}

// With tokens disabled the volume that each pod has lacks its token, and a token volume
// of the pod's own is refused; tokens of the remote cluster are not affected.
func TestTokensThatStayAtHome(t *testing.T) {
	o := options()
	o.NoTokens = true
	mounted, own := apiAccess(), apiAccess()
	mounted.Name = "kube-api-access-x7f2p"
	with := func(v corev1.Volume, change ...func(*corev1.Pod)) *corev1.Pod {
		return localPod(func(pod *corev1.Pod) {
			pod.Spec.Volumes = []corev1.Volume{v}
			for _, f := range change {
				f(pod)
			}
		})
	}
	sources := translated(t, o, with(mounted)).Spec.Volumes[0].Projected.Sources
	if len(sources) != 2 || sources[0].ConfigMap == nil || sources[1].DownwardAPI == nil || len(sources[1].DownwardAPI.Items) != 1 {
		t.Errorf("the volume has %+v", sources)
	}
	if _, err := o.Pod(with(own), nil); !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), "tokens: disabled") {
		t.Errorf("a token of the pod's own: %v", err)
	}
	remote := func(pod *corev1.Pod) { pod.Annotations = map[string]string{AnnotationAPIServer: "remote"} }
	if sources := translated(t, o, with(own, remote)).Spec.Volumes[0].Projected.Sources; sources[0].ServiceAccountToken == nil {
		t.Errorf("a token of the remote cluster: %+v", sources)
	}
	left, paths := o.WithoutTokens(with(mounted), Files(with(mounted))[0])
	if len(paths) != 1 || paths[0] != "token" || len(left.Projected.Sources) != 1 {
		t.Errorf("left out are %q, left is %+v", paths, left)
	}
}

// apiAccess is the volume that the API server adds to pods.
func apiAccess() corev1.Volume {
	return corev1.Volume{Name: "access", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: rootCA}}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}},
	}}}}
}

func TestVolumes(t *testing.T) {
	o := options()
	pod := localPod(func(pod *corev1.Pod) {
		pod.Spec.Volumes = []corev1.Volume{
			apiAccess(),
			{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}},
			{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "keys", Optional: ptr.To(true)}}},
			{Name: "info", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{DefaultMode: ptr.To[int32](0o400),
				Items: []corev1.DownwardAPIVolumeFile{{Path: "a/labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}}},
		}
	})
	v := translated(t, o, pod).Spec.Volumes
	access := v[0].Projected.Sources
	files := o.FilesName(pod)
	if access[0].ServiceAccountToken != nil || access[0].Secret.Name != files || access[0].Secret.Items[0] != (corev1.KeyToPath{Key: FileKey("access", "token"), Path: "token"}) {
		t.Errorf("token: %+v", access[0])
	}
	if access[1].ConfigMap.Name == rootCA {
		t.Error("the certificate authority is the remote cluster's")
	}
	if d := access[2].DownwardAPI; d == nil || d.Items[0].Path != "namespace" || d.Items[0].FieldRef.FieldPath != "metadata.labels['home.virtual-kubelet.io/namespace']" {
		t.Errorf("downward API: %+v", access[2])
	}
	if v[1].ConfigMap.Name != o.ObjectName(KindConfigMap, "shop", "settings") || v[2].Secret.SecretName != o.ObjectName(KindSecret, "shop", "keys") || !*v[2].Secret.Optional {
		t.Errorf("%+v", v)
	}
	if v[3].DownwardAPI != nil || v[3].Secret.SecretName != files || *v[3].Secret.DefaultMode != 0o400 || v[3].Secret.Items[0].Key != FileKey("info", "a/labels") {
		t.Errorf("%+v", v[3])
	}
	if found := Files(pod); len(found) != 2 || len(found[0].Projected.Sources) != 2 {
		t.Errorf("files of one's own: %+v", found)
	}
	want := map[Object]bool{{KindSecret, "registry"}: true, {KindSecret, "keys"}: false, {KindConfigMap, "settings"}: true, {KindConfigMap, rootCA}: true}
	if found := Objects(pod); !maps.Equal(found, want) {
		t.Errorf("objects, and whether they have to be there: %v, want %v", found, want)
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		what, says string
		change     func(*corev1.Pod)
		allow      func(*Options)
	}{
		{"host network", "hostNetwork", func(p *corev1.Pod) { p.Spec.HostNetwork = true }, func(o *Options) { o.AllowHostNamespaces = true }},
		{"host port", "hostPort", func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
		}, func(o *Options) { o.AllowHostNamespaces = true }},
		{"host path", "volume v of kind hostPath", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		}, func(o *Options) { o.AllowHostPath = true }},
		{"claim", "volume v of kind persistentVolumeClaim", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}}}
		}, nil},
		{"runtime class", "runtime class gvisor", func(p *corev1.Pod) { p.Spec.RuntimeClassName = ptr.To("gvisor") }, func(o *Options) { o.RuntimeClasses = map[string]string{"gvisor": "runsc"} }},
		{"resource claims", "resourceClaims", func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }, nil},
		{"namespace", "namespace shop", nil, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			o := options()
			if c.what == "namespace" {
				o.Namespaces = Namespaces{Mapping: Mapped, Map: map[string]string{"other": "other"}}
			}
			_, err := o.Pod(localPod(c.change), nil)
			if err == nil || !errdefs.IsPermanent(err) || !strings.HasPrefix(err.Error(), "ProviderNotSupported: "+c.says) {
				t.Fatalf("got %v", err)
			}
			if c.allow != nil {
				c.allow(o)
				translated(t, o, localPod(c.change))
			}
		})
	}
}

func TestVolumesOfClaims(t *testing.T) {
	pod := localPod(func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{
			{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data", ReadOnly: true}}},
			{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
		}
	})
	remote, err := options().Pod(pod, map[string]string{"data": "far-data", "scratch": "far-scratch"})
	if err != nil {
		t.Fatal(err)
	}
	data, scratch := remote.Spec.Volumes[0].PersistentVolumeClaim, remote.Spec.Volumes[1].PersistentVolumeClaim
	if data == nil || data.ClaimName != "far-data" || !data.ReadOnly || scratch == nil || scratch.ClaimName != "far-scratch" || remote.Spec.Volumes[1].Ephemeral != nil {
		t.Errorf("volumes %+v", remote.Spec.Volumes)
	}
	if pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "data" {
		t.Error("the pod at home was changed")
	}
}

func TestNames(t *testing.T) {
	o := options()
	o.Namespaces = Namespaces{Mapping: Fixed, Name: "guests"}
	one, err := o.PodName("a", "web")
	if err != nil {
		t.Fatal(err)
	}
	two, _ := o.PodName("b", "web")
	if one.Namespace != "guests" || one == two || !strings.HasPrefix(one.Name, "web-") {
		t.Errorf("%v and %v", one, two)
	}
	if got := translated(t, o, localPod(nil)).Spec.Hostname; got != "api" {
		t.Errorf("host name %q, want the pod's name at home", got)
	}
	// A hostname is one label: the API server refuses a pod with dots in it.
	for name, want := range map[string]string{"api.v1": "api-v1", "10.0.0.1": "10-0-0-1"} {
		dotted := translated(t, o, localPod(func(pod *corev1.Pod) { pod.Name = name }))
		if got := dotted.Spec.Hostname; got != want || len(validation.IsDNS1123Label(got)) > 0 || len(validation.IsDNS1123Subdomain(dotted.Name)) > 0 {
			t.Errorf("pod %s has the name %q, and the hostname %q, want %q", name, dotted.Name, got, want)
		}
	}
	deep := translated(t, o, localPod(func(pod *corev1.Pod) { pod.Name = strings.Repeat("a.", 62) + "b" }))
	if problems := validation.IsDNS1123Label(deep.Spec.Hostname); len(problems) > 0 {
		t.Errorf("hostname %q: %s", deep.Spec.Hostname, problems)
	}
	long := strings.Repeat("x", 253)
	if name := o.ObjectName(KindSecret, "a", long); len(name) > 253 || name == o.ObjectName(KindSecret, "a", long[:252]+"y") {
		t.Errorf("long names: %q", name)
	}
	other := options()
	other.Home.Node = "near"
	if o.ObjectName(KindSecret, "a", "s") == other.ObjectName(KindSecret, "a", "s") {
		t.Error("two nodes have the same copy")
	}
}

func TestUpdate(t *testing.T) {
	o := options()
	remote := translated(t, o, localPod(nil))
	remote.Labels["injected"] = "theirs"
	if o.UpdateFields(localPod(nil), remote) {
		t.Error("what has not changed is changed")
	}
	changed := o.UpdateFields(localPod(func(pod *corev1.Pod) {
		pod.Labels = map[string]string{"app": "api2"}
		pod.Spec.Containers[0].Image = "api:2"
	}), remote)
	if !changed || remote.Labels["app"] != "api2" || remote.Labels["pod-template-hash"] != "" || remote.Labels["injected"] != "theirs" || remote.Spec.Containers[0].Image != "api:2" {
		t.Errorf("%v %+v", changed, remote)
	}
}

func TestStatus(t *testing.T) {
	o := options()
	o.PodIPs = []Range{{netip.MustParsePrefix("10.1.16.0/20"), netip.MustParsePrefix("192.168.32.0/20")}}
	remote := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationRestarts: `{"main":2}`}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, HostIP: "1.2.3.4", PodIP: "10.1.17.9", PodIPs: []corev1.PodIP{{IP: "10.1.17.9"}, {IP: "fd00::1"}},
			Conditions:        []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue, ObservedGeneration: 3}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "main", RestartCount: 1}, {Name: "side", RestartCount: 4}},
			QOSClass:          corev1.PodQOSBurstable,
		},
	}
	s := o.Status(remote)
	if s.PodIP != "192.168.33.9" || s.PodIPs[0].IP != "192.168.33.9" || s.PodIPs[1].IP != "fd00::1" || s.HostIP != "" || s.QOSClass != "" {
		t.Errorf("%+v", s)
	}
	if len(s.Conditions) != 2 || s.Conditions[0].Type != corev1.PodReady || s.Conditions[0].ObservedGeneration != 0 {
		t.Errorf("conditions %+v", s.Conditions)
	}
	if s.ContainerStatuses[0].RestartCount != 3 || s.ContainerStatuses[1].RestartCount != 4 {
		t.Errorf("restarts %+v", s.ContainerStatuses)
	}
	unscheduled := &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "no node"}}}}
	if s := o.Status(unscheduled); s.Phase != corev1.PodPending || s.Reason != "Unschedulable" || !strings.Contains(s.Message, "no node") || len(s.Conditions) != 3 || s.Conditions[0].Status != corev1.ConditionTrue {
		t.Errorf("%+v", s)
	}
}

func TestAgain(t *testing.T) {
	remote := translated(t, options(), localPod(nil))
	remote.UID, remote.ResourceVersion, remote.Spec.NodeName = "far-1", "5", "remote-1"
	remote.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")} // as admission does it
	for round, want := range []int32{1, 2} {
		remote.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		next := Recreate(remote)
		if next.UID != "" || next.ResourceVersion != "" || next.Spec.NodeName != "" || UIDOf(next) != "u-1" || next.Spec.Overhead != nil {
			t.Fatalf("%+v, with overhead %v", next.ObjectMeta, next.Spec.Overhead)
		}
		next.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main"}}
		if got := options().Status(next).ContainerStatuses[0].RestartCount; got != want {
			t.Errorf("round %d: restarted %d times, want %d", round, got, want)
		}
		remote = next
	}
}

func TestGone(t *testing.T) {
	running := corev1.PodStatus{
		Phase:             corev1.PodRunning,
		Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
	}
	s := Deleted(running, "gone", metav1.Now())
	if s.Phase != corev1.PodFailed || s.ContainerStatuses[0].State.Terminated == nil || s.Conditions[0].Status != corev1.ConditionFalse {
		t.Errorf("%+v", s)
	}
	if s := Deleted(corev1.PodStatus{Phase: corev1.PodSucceeded}, "gone", metav1.Now()); s.Phase != corev1.PodSucceeded || s.Reason != "" {
		t.Errorf("what had succeeded is %+v", s)
	}
}
