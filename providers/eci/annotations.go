package eci

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

const annotationPrefix = "k8s.aliyun.com/"

// AnnotationInstanceType are the sizes and instance types of a pod's container group.
const AnnotationInstanceType = annotationPrefix + "eci-use-specs"

const annotationFailOnError = annotationPrefix + "pod-fail-on-create-err"

// annotated are the annotations that are parameters, without their prefix.
var annotated = map[string]string{
	"eci-security-group": "SecurityGroupId", "eci-vswitch": "VSwitchId", "eci-zone": "ZoneId", "eci-schedule-strategy": "ScheduleStrategy",
	"eci-ram-role-name": "RamRoleName", "eci-resource-group-id": "ResourceGroupId",
	"eci-eip-instanceid": "EipInstanceId", "eci-with-eip": "AutoCreateEip",
	"eci-fixed-ip": "FixedIp", "eci-fixed-ip-retain-hour": "FixedIpRetainHour", "eci-private-ip-address": "PrivateIpAddress",
	"eci-ipv6-bandwidth-enable": "Ipv6GatewayBandwidthEnable",
	"eci-spot-strategy":         "SpotStrategy", "eci-spot-price-limit": "SpotPriceLimit", "eci-spot-duration": "SpotDuration",
	"eci-image-snapshot-id": "ImageSnapshotId", "eci-image-cache": "AutoMatchImageCache",
	"eci-imc-id": "ImageSnapshotId", "eci-auto-imc": "AutoMatchImageCache", // newer names
	"eci-max-pending-minute": "MaxPendingMinute",
	"plain-http-registry":    "PlainHttpRegistry", "insecure-registry": "InsecureRegistry",
	"eci-gpu-driver-version": "GpuDriverVersion", "eci-cpu-option-core": "CpuOptionsCore", "eci-cpu-option-ht": "CpuOptionsThreadsPerCore",
	"eci-core-pattern": "CorePattern",
}

// annotatedEIP are those that the API takes with AutoCreateEip only.
var annotatedEIP = map[string]string{
	"eip-bandwidth": "EipBandwidth", "eip-common-bandwidth-package-id": "EipCommonBandwidthPackage", "eip-isp": "EipISP",
}

// annotatedQuantities are annotations that are quantities, and the unit of their parameter.
var annotatedQuantities = map[string]struct {
	parameter string
	unit      int64
}{
	annotationPrefix + "eci-extra-ephemeral-storage": {"EphemeralStorage", 1 << 30}, // in GiB
	"kubernetes.io/ingress-bandwidth":                {"IngressBandwidth", 8},       // in bytes; the annotation is in bits
	"kubernetes.io/egress-bandwidth":                 {"EgressBandwidth", 8},
}

// setAnnotated sets the parameters of annotations, which go before those of the
// configuration. An error is permanent.
func (p params) setAnnotated(pod *corev1.Pod, region string) error {
	value := func(name string) string { return strings.TrimSpace(pod.Annotations[annotationPrefix+name]) }
	for name, parameter := range annotated {
		p.set(parameter, value(name))
	}
	if value("eci-with-eip") == "true" {
		for name, parameter := range annotatedEIP {
			p.set(parameter, value(name))
		}
	} else {
		delete(p, "AutoCreateEip")
	}
	if fallback := value("eci-spot-fallback"); fallback != "" {
		p["StrictSpot"] = strconv.FormatBool(fallback != "true")
	}
	if value("eci-enable-ipv6") == "true" {
		p["Ipv6AddressCount"] = "1"
	}
	p.set("Ipv6GatewayBandwidth", strings.TrimSuffix(value("eci-ipv6-bandwidth"), "M"))
	p.set("ComputeCategory", split(value("eci-compute-category")))
	p.set("NtpServer", split(value("eci-ntp-server")))
	p.set("AcrRegistryInfo", each(split(value("acr-instance-id")+","+value("acr-instance-ids")), func(instance *string) object {
		if in, id, ok := strings.Cut(*instance, ":"); ok {
			return object{"RegionId": in, "InstanceId": id}
		}
		return object{"RegionId": region, "InstanceId": *instance}
	}))
	for name, of := range annotatedQuantities {
		text := strings.TrimSpace(pod.Annotations[name])
		if text == "" {
			continue
		}
		quantity, err := resource.ParseQuantity(text)
		if err != nil || quantity.Sign() < 0 {
			return errdefs.AsPermanent(fmt.Errorf("the annotation %s: %q is not a quantity such as 20Gi", name, text))
		}
		p[of.parameter] = strconv.FormatInt((quantity.Value()+of.unit-1)/of.unit, 10)
	}
	return nil
}
