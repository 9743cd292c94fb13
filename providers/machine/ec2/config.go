package ec2

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine"
)

// Config is the field ec2 of the configuration file of provider machine. README.md has a table of
// the fields.
type Config struct {
	// Region is AWS's. Defaults to that of the credentials.
	Region string `json:"region,omitempty"`
	// Endpoint is the URL of EC2. Defaults to that of the environment or the profile, or of the region.
	Endpoint string `json:"endpoint,omitempty"`
	// ImageID is the AMI. Required, unless each type has one.
	ImageID string `json:"imageID,omitempty"`
	// RootDevice is the name of the images' root device. Defaults to /dev/xvda.
	RootDevice string `json:"rootDevice,omitempty"`
	// Script is a shell script that cloud-init of the image runs as root once the user data are in
	// BootstrapFile. Without it the image reads the user data itself.
	Script string `json:"script,omitempty"`
	// Subnets are those of machines: each is tried where the ones before have no room or capacity.
	// Required, unless each type has some.
	Subnets []string `json:"subnets,omitempty"`
	// SecurityGroups default to the VPC's own.
	SecurityGroups []string `json:"securityGroups,omitempty"`
	// PublicAddress gives machines a public address, too.
	PublicAddress bool `json:"publicAddress,omitempty"`
	// Spot has spot instances made.
	Spot bool `json:"spot,omitempty"`
	// VolumeGiB is the size of the root volume. Defaults to that of the image.
	VolumeGiB int `json:"volumeGiB,omitempty"`
	// InstanceProfile is the name or the ARN of one: what its role may do, pods may do.
	InstanceProfile string `json:"instanceProfile,omitempty"`
	// KeyName is a key pair with which people log in.
	KeyName string `json:"keyName,omitempty"`
	// Tags are further tags of instances, volumes and spot requests.
	Tags map[string]string `json:"tags,omitempty"`
}

// BootstrapFile is where a Script finds the user data of its machine.
const BootstrapFile = "/etc/virtual-kubelet/bootstrap"

const (
	// maxUserData is the size in bytes of the largest user data that EC2 takes, and maxScript that of
	// a script: the rest is the bootstrap data's.
	maxUserData, maxScript = 16 << 10, 12 << 10
	// maxTags are how many tags a resource can have, and ownTags how many of those are left to the
	// machine's.
	maxTags, ownTags = 50, 25
	// The lengths of a tag in characters.
	maxTagKey, maxTagValue = 128, 256
	// maxPlaces bounds the calls of one creation.
	maxPlaces = 16
)

var (
	imageID      = regexp.MustCompile(`^ami-[0-9a-f]{8,17}$`)
	subnetID     = regexp.MustCompile(`^subnet-[0-9a-f]{8,17}$`)
	groupID      = regexp.MustCompile(`^sg-[0-9a-f]{8,17}$`)
	regionName   = regexp.MustCompile(`^[a-z]+(-[a-z]+)+-[0-9]+$`)
	instanceType = regexp.MustCompile(`^[a-z0-9-]+\.[a-z0-9-]+$`)
	deviceName   = regexp.MustCompile(`^/dev/[a-z0-9]+$`)
)

// Check returns all that is wrong with the field ec2, and with the types, of a configuration of
// provider machine; it is for machine.ParseConfigWith.
func Check(c machine.Config) error {
	if len(c.EC2) == 0 {
		return nil
	}
	_, err := read(c)
	return err
}

// read decodes the field ec2 of a configuration, and checks it.
func read(c machine.Config) (*Config, error) {
	out := &Config{}
	err := config.Decoder{At: "ec2"}.Decode(c.EC2, out, func() error { return out.mistakes(c.Types) })
	return out, err
}

// mistakes sets defaults, and returns all mistakes.
func (c *Config) mistakes(types []machine.TypeConfig) error {
	var checks config.Checks
	c.RootDevice = cmp.Or(c.RootDevice, "/dev/xvda")
	checks.That(c.Region == "" || regionName.MatchString(c.Region), "ec2.region: %q is no region such as eu-west-1", c.Region)
	if c.Endpoint != "" {
		at, err := url.Parse(c.Endpoint)
		checks.That(err == nil && (at.Scheme == "https" || at.Scheme == "http") && at.Host != "", "ec2.endpoint: %q is no URL", c.Endpoint)
	}
	checks.That(len(c.Script) <= maxScript, "ec2.script: it has %d bytes, more than %d: have it fetch the rest", len(c.Script), maxScript)
	checks.That(len(c.SecurityGroups) <= 5, "ec2.securityGroups: there are %d, more than 5", len(c.SecurityGroups))
	for i, id := range c.SecurityGroups {
		checks.That(groupID.MatchString(id), "ec2.securityGroups[%d]: %q is no security group such as sg-0123456789abcdef0", i, id)
	}
	checks.That(len(c.Tags) <= maxTags-ownTags, "ec2.tags: there are %d, more than %d", len(c.Tags), maxTags-ownTags)
	for _, key := range slices.Sorted(maps.Keys(c.Tags)) {
		checks.That(isTag(key, c.Tags[key]) && !reserved(key), "ec2.tags[%s]: it is no tag of AWS, or one that machines have already", key)
	}
	checks.That(len(types) > 0, "types: the driver ec2 needs them: their names, or arguments, are types of instances")
	if len(types) == 0 { // with them, what they have instead counts
		c.launch("", nil, "ec2.", &checks)
	}
	first := config.Checks{}
	for i := range types {
		var wrong config.Checks
		c.launch(types[i].Name, types[i].Arguments, fmt.Sprintf("types[%d].arguments.", i), &wrong)
		for _, err := range wrong {
			if !slices.ContainsFunc(first, func(known error) bool { return known.Error() == err.Error() }) { // of ec2, once
				first = append(first, err)
			}
		}
	}
	return config.Join(checks.Err(), first.Err())
}

// isTag reports whether EC2 takes a tag.
func isTag(key, value string) bool {
	return key != "" && utf8.RuneCountInString(key) <= maxTagKey && utf8.RuneCountInString(value) <= maxTagValue &&
		!strings.HasPrefix(strings.ToLower(key), "aws:")
}

// reserved reports whether machines have a tag of this key, or of its first part.
func reserved(key string) bool {
	key, _, _ = strings.Cut(key, ".")
	return slices.Contains([]string{
		podgroup.TagClusterName, podgroup.TagClusterUID, podgroup.TagNodeName, podgroup.TagNamespace, podgroup.TagPodName, podgroup.TagUID, podgroup.TagCreationTimestamp,
		tagName, "TokenSHA256", "Authority", "MachineType", "Reserve",
	}, key)
}

// launch is what a machine of a type is made of.
type launch struct {
	instanceTypes, subnets []string
	imageID, rootDevice    string
	spot                   bool
	volumeGiB              int
}

// places returns where a machine can be made, in the order in which they are tried: each type of
// instances in all subnets.
func (l *launch) places() (all []place) {
	for _, t := range l.instanceTypes {
		for _, subnet := range l.subnets {
			all = append(all, place{t, subnet, l.spot})
		}
	}
	return all
}

// launch returns what a machine of a type is made of: what its arguments have, or else c. Mistakes in
// arguments are named by the path at, all others by ec2.
func (c *Config) launch(name string, arguments map[string]string, at string, checks *config.Checks) launch {
	l := launch{instanceTypes: []string{name}, imageID: c.ImageID, rootDevice: c.RootDevice, subnets: c.Subnets, spot: c.Spot, volumeGiB: c.VolumeGiB}
	paths := map[string]string{"imageID": "ec2.imageID", "rootDevice": "ec2.rootDevice", "subnets": "ec2.subnets", "volumeGiB": "ec2.volumeGiB", "instanceType": strings.TrimSuffix(at, "arguments.") + "name"}
	for _, key := range slices.Sorted(maps.Keys(arguments)) {
		value, err, want := arguments[key], error(nil), ""
		paths[key] = at + key
		switch key {
		case "instanceType":
			l.instanceTypes = listOf(value)
		case "imageID":
			l.imageID = value
		case "rootDevice":
			l.rootDevice = value
		case "subnets":
			l.subnets = listOf(value)
		case "spot":
			l.spot, err = strconv.ParseBool(value)
			want = "true or false"
		case "volumeGiB":
			l.volumeGiB, err = strconv.Atoi(value)
			want = "a number"
		default:
			checks.That(false, "%s: there is no such argument: instanceType, imageID, rootDevice, subnets, spot, volumeGiB", paths[key])
		}
		checks.That(err == nil, "%s: %q is not %s", paths[key], value, want)
	}
	checks.That(len(l.instanceTypes) > 0, "%s: there is none", paths["instanceType"])
	for _, t := range l.instanceTypes {
		checks.That(name == "" || instanceType.MatchString(t), "%s: %q is no type of instances such as m7i.large", paths["instanceType"], t)
	}
	checks.That(deviceName.MatchString(l.rootDevice), "%s: %q is no device such as /dev/xvda", paths["rootDevice"], l.rootDevice)
	checks.That(imageID.MatchString(l.imageID), "%s: %q is no AMI such as ami-0123456789abcdef0", paths["imageID"], l.imageID)
	checks.That(len(l.subnets) > 0, "%s: there is none", paths["subnets"])
	checks.That(len(l.places()) <= maxPlaces, "%s: %d in %d subnets are more than the %d that are tried", paths["instanceType"], len(l.instanceTypes), len(l.subnets), maxPlaces)
	for _, id := range l.subnets {
		checks.That(subnetID.MatchString(id), "%s: %q is no subnet such as subnet-0123456789abcdef0", paths["subnets"], id)
	}
	checks.That(l.volumeGiB >= 0 && l.volumeGiB <= 64<<10, "%s: %d is no size of a volume: 1 to 65536, 0 for that of the image", paths["volumeGiB"], l.volumeGiB)
	return l
}

// listOf returns what is between commas.
func listOf(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}
