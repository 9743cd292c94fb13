package eci

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// The annotations of a pod that are parameters of its container group.
const (
	annotationPrefix         = "k8s.aliyun.com/"
	AnnotationInstanceType   = annotationPrefix + "eci-use-specs"
	AnnotationSecurityGroup  = annotationPrefix + "eci-security-group"
	AnnotationVSwitch        = annotationPrefix + "eci-vswitch"
	AnnotationZone           = annotationPrefix + "eci-zone"
	AnnotationRAMRole        = annotationPrefix + "eci-ram-role-name"
	AnnotationEIP            = annotationPrefix + "eci-eip-instanceid"
	AnnotationWithEIP        = annotationPrefix + "eci-with-eip"
	AnnotationEIPBandwidth   = annotationPrefix + "eip-bandwidth"
	AnnotationSpotStrategy   = annotationPrefix + "eci-spot-strategy"
	AnnotationSpotPriceLimit = annotationPrefix + "eci-spot-price-limit"
	AnnotationImageSnapshot  = annotationPrefix + "eci-image-snapshot-id"
	AnnotationImageCache     = annotationPrefix + "eci-image-cache"

	annotationFailOnError        = annotationPrefix + "pod-fail-on-create-err"
	annotationInstanceFamily     = annotationPrefix + "eci-instance-family"
	annotationInstanceGeneration = annotationPrefix + "eci-instance-generation"
	annotationSpotFallback       = annotationPrefix + "eci-spot-fallback"
	annotationStorage            = annotationPrefix + "eci-extra-ephemeral-storage"
	annotationIPv6               = annotationPrefix + "eci-enable-ipv6"
	annotationIPv6Bandwidth      = annotationPrefix + "eci-ipv6-bandwidth"
	annotationRegistryInstance   = annotationPrefix + "acr-instance-id"
	annotationIngressBandwidth   = "kubernetes.io/ingress-bandwidth"
	annotationEgressBandwidth    = "kubernetes.io/egress-bandwidth"
)

// annotated are the parameters whose values are those of annotations.
var annotated = map[string]string{
	AnnotationSecurityGroup: "SecurityGroupId",
	AnnotationVSwitch:       "VSwitchId",
	AnnotationZone:          "ZoneId",
	AnnotationRAMRole:       "RamRoleName",
	AnnotationEIP:           "EipInstanceId",
	AnnotationWithEIP:       "AutoCreateEip",
	AnnotationEIPBandwidth:  "EipBandwidth",
	annotationPrefix + "eip-common-bandwidth-package-id": "EipCommonBandwidthPackage",
	annotationPrefix + "eip-isp":                         "EipISP",
	AnnotationSpotStrategy:                               "SpotStrategy",
	AnnotationSpotPriceLimit:                             "SpotPriceLimit",
	annotationPrefix + "eci-spot-duration":               "SpotDuration",
	AnnotationImageSnapshot:                              "ImageSnapshotId",
	AnnotationImageCache:                                 "AutoMatchImageCache",
	annotationPrefix + "eci-schedule-strategy":           "ScheduleStrategy",
	annotationPrefix + "eci-gpu-driver-version":          "GpuDriverVersion",
	annotationPrefix + "eci-cpu-option-core":             "CpuOptionsCore",
	annotationPrefix + "eci-cpu-option-ht":               "CpuOptionsThreadsPerCore",
	annotationPrefix + "plain-http-registry":             "PlainHttpRegistry",
	annotationPrefix + "insecure-registry":               "InsecureRegistry",
	annotationPrefix + "eci-fixed-ip":                    "FixedIp",
	annotationPrefix + "eci-fixed-ip-retain-hour":        "FixedIpRetainHour",
	annotationPrefix + "eci-private-ip-address":          "PrivateIpAddress",
	annotationPrefix + "eci-core-pattern":                "CorePattern",
	annotationPrefix + "eci-ipv6-bandwidth-enable":       "Ipv6GatewayBandwidthEnable",
}

// forNewEIP are parameters that the API takes with AutoCreateEip only.
var forNewEIP = []string{"EipBandwidth", "EipCommonBandwidthPackage", "EipISP"}

// setAnnotated sets the parameters of annotations. They go before those of the
// configuration. An error is permanent.
func (p params) setAnnotated(pod *corev1.Pod, region string) error {
	value := func(name string) string { return strings.TrimSpace(pod.Annotations[name]) }
	withEIP := value(AnnotationWithEIP) == "true"
	for name, parameter := range annotated {
		if withEIP || parameter != "AutoCreateEip" && !slices.Contains(forNewEIP, parameter) {
			p.set(parameter, value(name))
		}
	}
	if fallback := value(annotationSpotFallback); fallback != "" {
		p["StrictSpot"] = strconv.FormatBool(fallback != "true")
	}
	if value(annotationIPv6) == "true" {
		p["Ipv6AddressCount"] = "1"
	}
	p.set("Ipv6GatewayBandwidth", strings.TrimSuffix(value(annotationIPv6Bandwidth), "M"))
	p.setList("ComputeCategory", split(value(annotationPrefix+"eci-compute-category")))
	p.setList("NtpServer", split(value(annotationPrefix+"eci-ntp-server")))
	for i, instance := range split(value(annotationRegistryInstance)) {
		prefix := fmt.Sprintf("AcrRegistryInfo.%d.", i+1)
		in, id, ok := strings.Cut(instance, ":")
		if !ok {
			in, id = region, instance
		}
		p[prefix+"RegionId"], p[prefix+"InstanceId"] = in, id
	}
	for name, of := range map[string]struct {
		parameter string
		unit      int64
	}{
		annotationStorage:          {"EphemeralStorage", 1 << 30}, // in GiB
		annotationIngressBandwidth: {"IngressBandwidth", 8},       // in bytes; the annotation is in bits
		annotationEgressBandwidth:  {"EgressBandwidth", 8},
	} {
		if value(name) == "" {
			continue
		}
		quantity, err := resource.ParseQuantity(value(name))
		if err != nil {
			return errdefs.AsPermanent(fmt.Errorf("the annotation %s: %q is not a quantity such as 20Gi", name, value(name)))
		}
		p[of.parameter] = strconv.FormatInt((quantity.Value()+of.unit-1)/of.unit, 10)
	}
	return nil
}
