package zun

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
)

// Config says where capsules are created, and how.
type Config struct {
	// Cloud is an entry of clouds.yaml, which CloudsFile names; without that it is looked
	// for in the places of the OpenStack client. Without Cloud the fields below count.
	Cloud      string `json:"cloud,omitempty"`
	CloudsFile string `json:"cloudsFile,omitempty"`
	// AuthURL is Keystone's, version 3.
	AuthURL string `json:"authURL,omitempty"`
	// Username, with the domain of the user, or UserID, and Password.
	Username       string `json:"username,omitempty"`
	UserID         string `json:"userID,omitempty"`
	UserDomainID   string `json:"userDomainID,omitempty"`
	UserDomainName string `json:"userDomainName,omitempty"`
	Password       Secret `json:"password,omitempty"`
	// ApplicationCredentialID, or its name and the user, and the secret, instead of a
	// password and a project.
	ApplicationCredentialID     string `json:"applicationCredentialID,omitempty"`
	ApplicationCredentialName   string `json:"applicationCredentialName,omitempty"`
	ApplicationCredentialSecret Secret `json:"applicationCredentialSecret,omitempty"`
	// ProjectID, or ProjectName with its domain. DomainID and DomainName are the domains of
	// user and project where these have none of their own.
	ProjectID         string `json:"projectID,omitempty"`
	ProjectName       string `json:"projectName,omitempty"`
	ProjectDomainID   string `json:"projectDomainID,omitempty"`
	ProjectDomainName string `json:"projectDomainName,omitempty"`
	DomainID          string `json:"domainID,omitempty"`
	DomainName        string `json:"domainName,omitempty"`
	// Region and Interface (public, internal or admin) choose the endpoint in the catalog.
	// Defaults to any region, and public.
	Region    string `json:"region,omitempty"`
	Interface string `json:"interface,omitempty"`
	// CACert is a file of certificates to verify the servers' with.
	CACert string `json:"caCert,omitempty"`

	// ClusterName distinguishes this cluster's capsules from those of others in the same
	// project. Defaults to kubernetes.
	ClusterName string `json:"clusterName,omitempty"`
	// Networks are the IDs of Neutron's networks of the capsules; not each version of Zun
	// takes them. Defaults to one that Zun chooses.
	Networks []string `json:"networks,omitempty"`
	// AvailabilityZone is that of the capsules. Defaults to any.
	AvailabilityZone string `json:"availabilityZone,omitempty"`
	// ImagePullPolicy sends the pods' policy, for which many clouds want an administrator.
	// Without it Zun pulls always.
	ImagePullPolicy bool `json:"imagePullPolicy,omitempty"`

	// OperatingSystem is Linux. CPU, Memory and Pods are the capacity of the node, by
	// default 20, 100Gi and 20.
	OperatingSystem string             `json:"operatingSystem,omitempty"`
	CPU             *resource.Quantity `json:"cpu,omitempty"`
	Memory          *resource.Quantity `json:"memory,omitempty"`
	Pods            *resource.Quantity `json:"pods,omitempty"`
}

// Secret is a string that is never printed.
type Secret = config.Secret

// ParseConfig decodes a configuration file: YAML or JSON, or the TOML of the provider that
// this one replaces. It is strict: the error, of class InvalidInput, names all mistakes.
// Empty data is an empty configuration; Merge and Complete do the rest.
func ParseConfig(data []byte) (c Config, err error) {
	err = (config.Decoder{Loose: true}).Decode(config.FromFlatTOML(data), &c, nil)
	return c, config.Invalid("zun", err)
}

// Merge overwrites settings with the environment variables of OpenStack's clients, as getenv
// returns them. An empty value is ignored.
func (c *Config) Merge(getenv func(string) string) error {
	// Of two names of a variable the first is the newer.
	c.ProjectID = cmp.Or(getenv("OS_PROJECT_ID"), getenv("OS_TENANT_ID"), c.ProjectID)
	c.ProjectName = cmp.Or(getenv("OS_PROJECT_NAME"), getenv("OS_TENANT_NAME"), c.ProjectName)
	c.UserID = cmp.Or(getenv("OS_USER_ID"), getenv("OS_USERID"), c.UserID)
	err := config.Environment(getenv, map[string]any{
		"OS_CLOUD": &c.Cloud, "OS_CLIENT_CONFIG_FILE": &c.CloudsFile, "OS_AUTH_URL": &c.AuthURL, "OS_REGION_NAME": &c.Region, "OS_INTERFACE": &c.Interface,
		"OS_CACERT": &c.CACert, "OS_USERNAME": &c.Username, "OS_PASSWORD": (*string)(&c.Password), "OS_DOMAIN_ID": &c.DomainID, "OS_DOMAIN_NAME": &c.DomainName,
		"OS_USER_DOMAIN_ID": &c.UserDomainID, "OS_USER_DOMAIN_NAME": &c.UserDomainName,
		"OS_PROJECT_DOMAIN_ID": &c.ProjectDomainID, "OS_PROJECT_DOMAIN_NAME": &c.ProjectDomainName,
		"OS_APPLICATION_CREDENTIAL_ID": &c.ApplicationCredentialID, "OS_APPLICATION_CREDENTIAL_NAME": &c.ApplicationCredentialName,
		"OS_APPLICATION_CREDENTIAL_SECRET": (*string)(&c.ApplicationCredentialSecret),
	})
	return config.Invalid("zun", err)
}

// Complete sets defaults and validates the rest. The error, of class InvalidInput, names
// all mistakes.
func (c *Config) Complete() error {
	c.ClusterName, c.Interface = cmp.Or(c.ClusterName, "kubernetes"), cmp.Or(c.Interface, "public")
	var wrong config.Checks
	check := wrong.That
	wrong.Quantity("cpu", &c.CPU, "20")
	wrong.Quantity("memory", &c.Memory, "100Gi")
	wrong.Quantity("pods", &c.Pods, "20")
	check(c.OperatingSystem == "" || strings.EqualFold(c.OperatingSystem, "linux"), "operatingSystem: %q is not Linux, which capsules run", c.OperatingSystem)
	check(slices.Contains([]string{"public", "internal", "admin"}, strings.TrimSuffix(c.Interface, "URL")), "interface: %q is none of public, internal and admin", c.Interface)
	if c.Cloud == "" {
		u, err := url.Parse(c.AuthURL)
		check(err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") && u.User == nil, "authURL: it is not a URL such as https://keystone.example:5000/v3, and cloud names no entry of clouds.yaml")
		hasUser := c.UserID != "" || c.Username != ""
		switch {
		case c.ApplicationCredentialID != "" || c.ApplicationCredentialName != "":
			check(c.ApplicationCredentialSecret != "", "applicationCredentialSecret: it is missing")
			check(c.ApplicationCredentialID != "" || hasUser, "applicationCredentialName: it needs a user, too")
		default:
			check(hasUser && c.Password != "", "username and password, or an application credential: they are missing")
			check(c.ProjectID != "" || c.ProjectName != "", "projectID or projectName: one has to be set")
		}
	}
	return config.Invalid("zun", wrong.Err())
}

// credentials returns what to authenticate with, which endpoints to use, and how to connect.
// The settings without Cloud are made an entry of a clouds.yaml.
func (c *Config) credentials() (gophercloud.AuthOptions, gophercloud.EndpointOpts, *tls.Config, error) {
	options := []clouds.ParseOption{
		clouds.WithCloudName(cmp.Or(c.Cloud, "settings")), clouds.WithEndpointType(strings.TrimSuffix(c.Interface, "URL")),
		clouds.WithRegion(c.Region), clouds.WithCACertPath(c.CACert),
	}
	if c.Cloud == "" {
		file, err := json.Marshal(clouds.Clouds{Clouds: map[string]clouds.Cloud{"settings": {AuthInfo: c.entry()}}})
		if err != nil {
			return gophercloud.AuthOptions{}, gophercloud.EndpointOpts{}, nil, err
		}
		options = append(options, clouds.WithCloudsYAML(bytes.NewReader(file)))
	} else if c.CloudsFile != "" {
		options = append(options, clouds.WithLocations(c.CloudsFile))
	}
	auth, endpoints, certificates, err := clouds.Parse(options...)
	auth.AllowReauth = auth.TokenID == "" // a token ends, and nothing renews it
	return auth, endpoints, certificates, err
}

// entry returns the settings as those of an entry of clouds.yaml.
func (c *Config) entry() *clouds.AuthInfo {
	info := &clouds.AuthInfo{
		AuthURL: c.AuthURL, Username: c.Username, UserID: c.UserID, Password: c.Password.Reveal(),
		ApplicationCredentialID: c.ApplicationCredentialID, ApplicationCredentialName: c.ApplicationCredentialName,
		ApplicationCredentialSecret: c.ApplicationCredentialSecret.Reveal(),
	}
	if c.UserID == "" && c.Username != "" { // an ID needs no domain, and may have none
		info.UserDomainID, info.UserDomainName = oneOf(c.UserDomainID, c.UserDomainName, c.DomainID, c.DomainName)
	}
	switch {
	case c.ApplicationCredentialID != "" || c.ApplicationCredentialName != "": // it belongs to a project
	case c.ProjectID != "":
		info.ProjectID = c.ProjectID
	default:
		info.ProjectName = c.ProjectName
		info.ProjectDomainID, info.ProjectDomainName = oneOf(c.ProjectDomainID, c.ProjectDomainName, c.DomainID, c.DomainName)
	}
	return info
}

// oneOf returns the first ID or name of a domain: Keystone takes one of them. Without any it
// is the domain that each Keystone has.
func oneOf(ids ...string) (id, name string) {
	for i, value := range ids {
		switch {
		case value == "":
		case i%2 == 0:
			return value, ""
		default:
			return "", value
		}
	}
	return "default", ""
}
