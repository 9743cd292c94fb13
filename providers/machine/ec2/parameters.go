package ec2

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine"
)

// The keys of tags: tagName is provider machine's with the name of a machine, and tagShown the one
// that AWS's console shows.
const (
	tagName  = "MachineName"
	tagShown = "Name"
)

// parameters returns those of RunInstances for a machine, without the place and the token. They are
// the same for the same Spec: else a repeated call would be refused.
func (c *Config) parameters(spec *machine.Spec, l *launch) (url.Values, error) {
	data := c.userData(spec.UserData)
	if len(data) > maxUserData {
		return nil, errdefs.AsPermanent(fmt.Errorf("the user data have %d bytes, and EC2 takes %d: make ec2.script shorter", len(data), maxUserData))
	}
	tags := map[string]string{tagShown: spec.Name}
	maps.Copy(tags, c.Tags)
	maps.Copy(tags, spec.Tags)
	if len(tags) > maxTags {
		return nil, errdefs.AsPermanent(fmt.Errorf("the machine would have %d tags, and EC2 takes %d: use fewer in ec2.tags", len(tags), maxTags))
	}
	p := url.Values{}
	set := func(name, value string) { p.Set(name, value) }
	set("MinCount", "1")
	set("MaxCount", "1")
	set("ImageId", l.imageID)
	set("UserData", base64.StdEncoding.EncodeToString([]byte(data)))
	set("InstanceInitiatedShutdownBehavior", "terminate")

	// Pods are to get nothing from the metadata service: see README.md.
	set("MetadataOptions.HttpEndpoint", "enabled")
	set("MetadataOptions.HttpTokens", "required")
	set("MetadataOptions.HttpPutResponseHopLimit", "1")
	set("MetadataOptions.HttpProtocolIpv6", "disabled")
	set("MetadataOptions.InstanceMetadataTags", "disabled")

	const network = "NetworkInterface.1."
	set(network+"DeviceIndex", "0")
	set(network+"DeleteOnTermination", "true")
	set(network+"AssociatePublicIpAddress", strconv.FormatBool(c.PublicAddress))
	for i, id := range c.SecurityGroups {
		set(network+"SecurityGroupId."+strconv.Itoa(i+1), id)
	}

	const disk = "BlockDeviceMapping.1."
	set(disk+"DeviceName", l.rootDevice)
	set(disk+"Ebs.Encrypted", "true")
	set(disk+"Ebs.DeleteOnTermination", "true")
	set(disk+"Ebs.VolumeType", "gp3")
	if l.volumeGiB > 0 {
		set(disk+"Ebs.VolumeSize", strconv.Itoa(l.volumeGiB))
	}

	if c.KeyName != "" {
		set("KeyName", c.KeyName)
	}
	switch {
	case strings.HasPrefix(c.InstanceProfile, "arn:"):
		set("IamInstanceProfile.Arn", c.InstanceProfile)
	case c.InstanceProfile != "":
		set("IamInstanceProfile.Name", c.InstanceProfile)
	}

	tagged := []string{"instance", "volume"}
	if l.spot {
		set("InstanceMarketOptions.MarketType", "spot")
		set("InstanceMarketOptions.SpotOptions.SpotInstanceType", "one-time")
		set("InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior", "terminate")
		tagged = append(tagged, "spot-instances-request") // by which notices are found
	}
	for i, kind := range tagged {
		at := fmt.Sprintf("TagSpecification.%d.", i+1)
		set(at+"ResourceType", kind)
		for n, key := range slices.Sorted(maps.Keys(tags)) {
			set(fmt.Sprintf("%sTag.%d.Key", at, n+1), key)
			set(fmt.Sprintf("%sTag.%d.Value", at, n+1), tags[key])
		}
	}
	return p, nil
}

// userData returns what an instance is started with: the bootstrap data as they are, or a shell
// script for cloud-init, which keeps the metadata service from pods before the agent has one.
func (c *Config) userData(bootstrap string) string {
	if c.Script == "" {
		return bootstrap
	}
	return `#!/bin/sh
set -eu
umask 077
mkdir -p /etc/virtual-kubelet
cat >` + BootstrapFile + ` <<'END-OF-BOOTSTRAP'
` + bootstrap + `
END-OF-BOOTSTRAP
ip route replace blackhole 169.254.169.254/32
umask 022
` + c.Script + "\n"
}

// tokenOf returns the client token of a creation, which is the same for the same machine, place and
// round: EC2 makes one instance for it.
func tokenOf(spec *machine.Spec, p place, round int) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{spec.Tags[podgroup.TagClusterUID], spec.Tags[podgroup.TagNodeName], spec.Name, p.instanceType, p.subnet, strconv.Itoa(round)}, "\n")))
	return hex.EncodeToString(sum[:])
}

// warnOfDevice logs that the configuration has another root device than the image: the instance has
// a second volume then, and settings of the root volume do not hold.
func (l *launch) warnOfDevice(ctx context.Context, i *instance) {
	if i.RootDevice != "" && i.RootDevice != l.rootDevice {
		log.G(ctx).WithFields(log.Fields{"image": i.ImageID, "rootDevice": i.RootDevice, "configured": l.rootDevice}).Warn("The image has another root device: set ec2.rootDevice, or that of the type, to it")
	}
}
