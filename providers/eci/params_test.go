package eci

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

func TestAnnotations(t *testing.T) {
	for name, c := range map[string]struct {
		set, want map[string]string
	}{
		"storage":          {map[string]string{"eci-extra-ephemeral-storage": "50Gi"}, map[string]string{"EphemeralStorage": "50"}},
		"vSwitches":        {map[string]string{"eci-vswitch": "vsw-2,vsw-3", "eci-schedule-strategy": "VSwitchRandom"}, map[string]string{"VSwitchId": "vsw-2,vsw-3", "ScheduleStrategy": "VSwitchRandom"}},
		"spot":             {map[string]string{"eci-spot-strategy": "SpotWithPriceLimit", "eci-spot-price-limit": "0.5", "eci-spot-duration": "0", "eci-spot-fallback": "true"}, map[string]string{"SpotStrategy": "SpotWithPriceLimit", "SpotPriceLimit": "0.5", "SpotDuration": "0", "StrictSpot": "false"}},
		"registries":       {map[string]string{"acr-instance-id": "cri-1,cn-beijing:cri-2", "plain-http-registry": "a:80", "insecure-registry": "b"}, map[string]string{"AcrRegistryInfo.1.RegionId": "cn-test", "AcrRegistryInfo.1.InstanceId": "cri-1", "AcrRegistryInfo.2.RegionId": "cn-beijing", "AcrRegistryInfo.2.InstanceId": "cri-2", "PlainHttpRegistry": "a:80", "InsecureRegistry": "b"}},
		"a new address":    {map[string]string{"eci-with-eip": "true", "eip-bandwidth": "10", "eip-isp": "BGP", "eip-common-bandwidth-package-id": "cbwp-1"}, map[string]string{"AutoCreateEip": "true", "EipBandwidth": "10", "EipISP": "BGP", "EipCommonBandwidthPackage": "cbwp-1"}},
		"no new address":   {map[string]string{"eci-eip-instanceid": "eip-1", "eip-bandwidth": "10"}, map[string]string{"EipInstanceId": "eip-1"}},
		"IPv6":             {map[string]string{"eci-enable-ipv6": "true", "eci-ipv6-bandwidth-enable": "true", "eci-ipv6-bandwidth": "100M"}, map[string]string{"Ipv6AddressCount": "1", "Ipv6GatewayBandwidthEnable": "true", "Ipv6GatewayBandwidth": "100"}},
		"a fixed address":  {map[string]string{"eci-fixed-ip": "true", "eci-fixed-ip-retain-hour": "24"}, map[string]string{"FixedIp": "true", "FixedIpRetainHour": "24"}},
		"bandwidth":        {map[string]string{"kubernetes.io/ingress-bandwidth": "40M", "kubernetes.io/egress-bandwidth": "20M"}, map[string]string{"IngressBandwidth": "5000000", "EgressBandwidth": "2500000"}},
		"resource group":   {map[string]string{"eci-resource-group-id": "rg-1"}, map[string]string{"ResourceGroupId": "rg-1"}},
		"GPU driver":       {map[string]string{"eci-gpu-driver-version": "tesla=525.85.12"}, map[string]string{"GpuDriverVersion": "tesla=525.85.12"}},
		"lists":            {map[string]string{"eci-compute-category": "economy,general", "eci-ntp-server": "192.0.2.1"}, map[string]string{"ComputeCategory.1": "economy", "ComputeCategory.2": "general", "NtpServer.1": "192.0.2.1"}},
		"images, core":     {map[string]string{"eci-image-snapshot-id": "imc-1", "eci-image-cache": "true", "eci-core-pattern": "/core"}, map[string]string{"ImageSnapshotId": "imc-1", "AutoMatchImageCache": "true", "CorePattern": "/core"}},
		"those of nothing": {map[string]string{"eci-vswitch": "", "eci-enable-ipv6": "false", "something-else": "1"}, map[string]string{}},
	} {
		plain := request(t, newPod("a"))
		pod := newPod("a")
		pod.Annotations = map[string]string{}
		for annotation, value := range c.set {
			if !strings.Contains(annotation, "/") {
				annotation = annotationPrefix + annotation
			}
			pod.Annotations[annotation] = value
		}
		maps.Copy(plain, c.want)
		expect(t, name, request(t, pod), plain)
	}
	for _, annotation := range []string{annotationPrefix + "eci-extra-ephemeral-storage", "kubernetes.io/ingress-bandwidth"} {
		pod := newPod("a")
		pod.Annotations = map[string]string{annotation: "much"}
		if err := newRig(t, 0).CreatePod(t.Context(), pod); !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), annotation) {
			t.Errorf("%s gives %v", annotation, err)
		}
	}
}

func TestDNS(t *testing.T) {
	own := &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.7"}, Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To("2")}, {Name: "edns0"}}}
	for name, c := range map[string]struct {
		policy  corev1.DNSPolicy
		config  *corev1.PodDNSConfig
		cluster []string
		want    map[string]string
	}{
		"the network's": {policy: corev1.DNSClusterFirst, want: map[string]string{}},
		"the network's, and the pod's": {policy: corev1.DNSClusterFirst, config: own, want: map[string]string{
			"DnsConfig.NameServer.1": "192.0.2.7", "DnsConfig.Option.1.Name": "ndots", "DnsConfig.Option.1.Value": "2", "DnsConfig.Option.2.Name": "edns0",
		}},
		"the pod's alone": {policy: corev1.DNSNone, config: own, want: map[string]string{
			"DnsPolicy": "None", "DnsConfig.NameServer.1": "192.0.2.7", "DnsConfig.Option.1.Name": "ndots", "DnsConfig.Option.1.Value": "2", "DnsConfig.Option.2.Name": "edns0",
		}},
		"the cluster's": {policy: corev1.DNSClusterFirst, cluster: []string{"172.21.0.10"}, want: map[string]string{
			"DnsPolicy": "None", "DnsConfig.NameServer.1": "172.21.0.10", "DnsConfig.Option.1.Name": "ndots", "DnsConfig.Option.1.Value": "5",
			"DnsConfig.Search.1": "default.svc.cluster.local", "DnsConfig.Search.2": "svc.cluster.local", "DnsConfig.Search.3": "cluster.local",
		}},
		"the network's by choice": {policy: corev1.DNSDefault, cluster: []string{"172.21.0.10"}, want: map[string]string{}},
	} {
		r := newRig(t, 0, func(config *Config) { config.ClusterDNS, config.ClusterDomain = c.cluster, "cluster.local" })
		pod := newPod("a")
		pod.Spec.DNSPolicy, pod.Spec.DNSConfig = c.policy, c.config
		r.create(t, pod)
		params, err := r.api.Params("a")
		if err != nil {
			t.Fatal(err)
		}
		expect(t, name, params, c.want, "Dns")
	}
}

func TestClaims(t *testing.T) {
	pod := newPod("a")
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	csi := func(driver string, attributes map[string]string) corev1.PersistentVolumeSource {
		return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "d-1", FSType: "ext4", VolumeAttributes: attributes}}
	}
	for name, c := range map[string]struct {
		source corev1.PersistentVolumeSource
		want   map[string]string // nil is a refusal
	}{
		"disk": {csi(diskDriver, nil), map[string]string{"Type": "DiskVolume", "DiskVolume.DiskId": "d-1", "DiskVolume.FsType": "ext4"}},
		"NAS": {csi(nasDriver, map[string]string{"server": "nas.example", "path": "/share"}), map[string]string{
			"Type": "NFSVolume", "NFSVolume.Server": "nas.example", "NFSVolume.Path": "/share", "NFSVolume.ReadOnly": "false",
		}},
		"NFS": {corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nfs", Path: "/", ReadOnly: true}}, map[string]string{
			"Type": "NFSVolume", "NFSVolume.Server": "nfs", "NFSVolume.Path": "/", "NFSVolume.ReadOnly": "true",
		}},
		"flexVolume":      {corev1.PersistentVolumeSource{FlexVolume: &corev1.FlexPersistentVolumeSource{Driver: "alicloud/oss", Options: map[string]string{"bucket": "b"}}}, map[string]string{"Type": "FlexVolume", "FlexVolume.Driver": "alicloud/oss", "FlexVolume.Options": `{"bucket":"b"}`}},
		"another driver":  {csi("ossplugin.csi.alibabacloud.com", nil), nil},
		"without a share": {csi(nasDriver, nil), nil},
		"host path":       {corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}, nil},
	} {
		bound := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: c.source}}
		bound.Name = "pv-1"
		claims := map[string]*corev1.PersistentVolume{"data": bound}
		if c.want == nil {
			b, err := newBackend(testConfig(""))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.createParams(&podgroup.Request{Pod: pod, Claims: claims}); !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), "pv-1") {
				t.Errorf("%s gives %v", name, err)
			}
			continue
		}
		want := map[string]string{"Volume.1.Name": "data"}
		for parameter, value := range c.want {
			want["Volume.1."+parameter] = value
		}
		expect(t, name, request(t, pod, func(_ *Config, r *podgroup.Request) { r.Claims = claims }), want, "Volume.")
	}
}

// Long names, and those with dots, come back as they were after a restart.
func TestHostileNames(t *testing.T) {
	r := newRig(t, 0)
	want := map[string]bool{}
	for i, name := range []string{strings.Repeat("a", 253), "a.b.c", "x-" + strings.Repeat("9", 126) + ".y"} {
		pod := newPod(name)
		pod.UID = types.UID(fmt.Sprint("uid-", i))
		r.create(t, pod)
		want[name] = true
	}
	r.Provider = r.newProvider(t, r.cfg)
	pods, err := r.GetPods(t.Context())
	for _, pod := range pods {
		if !want[pod.Name] || pod.Namespace != "default" {
			t.Errorf("there is a pod %s/%s", pod.Namespace, pod.Name)
		}
	}
	if err != nil || len(pods) != len(want) {
		t.Errorf("there are %d pods, want %d: %v", len(pods), len(want), err)
	}
}

// A command that the API would refuse is refused without a call.
func TestCommandsThatAreTooLong(t *testing.T) {
	r := newRig(t, 0)
	r.create(t, newPod("a"))
	for name, command := range map[string][]string{"words": strings.Split(strings.Repeat("a", 21), ""), "a word": {"echo", strings.Repeat("a", 257)}} {
		if err := r.exec(t.Context(), &streams{}, command...); !errdefs.IsInvalidInput(err) {
			t.Errorf("too long %s give %v", name, err)
		}
	}
	if n := r.api.Calls("ExecContainerCommand"); n != 0 {
		t.Errorf("there were %d calls", n)
	}
	s := &streams{}
	if err := r.exec(t.Context(), s, "echo", strings.Repeat("é", 256)); err != nil {
		t.Errorf("256 characters give %v", err)
	}
}
