package eci

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
)

// fileConfig is a configuration file: the fields of the public ECI provider, and more.
type fileConfig struct {
	Region          string   `json:"region"`
	ClusterName     string   `json:"clusterName"`
	OperatingSystem string   `json:"operatingSystem"`
	CPU             quantity `json:"cpu"`
	Memory          quantity `json:"memory"`
	Pods            quantity `json:"pods"`
	GPU             quantity `json:"gpu"`
	VSwitch         string   `json:"vSwitch"`
	SecureGroup     string   `json:"secureGroup"`
	AccessKey       string   `json:"accessKey"`
	SecretKey       string   `json:"secretKey"`
	SecurityToken   string   `json:"securityToken"`
	RoleARN         string   `json:"roleARN"`
	OIDCProviderARN string   `json:"oidcProviderARN"`
	OIDCTokenFile   string   `json:"oidcTokenFile"`
	ECSRole         string   `json:"ecsRole"`

	Zone     string `json:"zone"`
	RAMRole  string `json:"ramRole"`
	Endpoint string `json:"endpoint"`
	CacheFor string `json:"cacheFor"`

	ClusterDNS    []string `json:"clusterDNS"`
	ClusterDomain string   `json:"clusterDomain"`
	UpdateFiles   bool     `json:"updateFiles"`
}

// ParseConfig decodes a configuration file. It is TOML if its first line is a setting
// (name = value) or a table, otherwise YAML or JSON. It is strict: the error, of class
// InvalidInput, names all unknown fields and invalid values, and contains no value that may
// be a secret. Empty data is an empty configuration; Merge and Complete do the rest.
func ParseConfig(data []byte) (Config, error) {
	var file fileConfig
	var c Config
	var err error
	if isTOML(data) {
		data, err = tomlToJSON(data)
	}
	if err == nil {
		err = config.Decoder{Loose: true}.Decode(data, &file, func() (err error) {
			c, err = file.config()
			return err
		})
	}
	if err != nil {
		return Config{}, errdefs.InvalidInputf("eci config: %w", err)
	}
	return c, nil
}

var tomlLine = regexp.MustCompile(`^\s*(\[|["\w.-]+\s*=)`)

func isTOML(data []byte) bool {
	for line := range strings.Lines(string(data)) {
		if text := strings.TrimSpace(line); text != "" && !strings.HasPrefix(text, "#") {
			return tomlLine.MatchString(text)
		}
	}
	return false
}

func tomlToJSON(data []byte) ([]byte, error) {
	var tree map[string]any
	_, err := toml.Decode(string(data), &tree)
	if parse, ok := errors.AsType[toml.ParseError](err); ok {
		// Its message may quote the line.
		return nil, fmt.Errorf("line %d, near %q, is not TOML", parse.Position.Line, parse.LastKey)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(tree)
}

func (f *fileConfig) config() (Config, error) {
	c := Config{
		ClusterName: f.ClusterName, Region: f.Region, AccessKey: Secret(f.AccessKey), SecretKey: Secret(f.SecretKey),
		SecurityGroup: f.SecureGroup, VSwitch: f.VSwitch, Zone: f.Zone, RAMRole: f.RAMRole, Endpoint: f.Endpoint,
		OperatingSystem: f.OperatingSystem, ClusterDNS: f.ClusterDNS, ClusterDomain: f.ClusterDomain, UpdateFiles: f.UpdateFiles,
		SecurityToken: Secret(f.SecurityToken), RoleARN: f.RoleARN, OIDCProviderARN: f.OIDCProviderARN, OIDCTokenFile: f.OIDCTokenFile, ECSRole: f.ECSRole,
	}
	var errs []error
	for _, q := range []struct {
		name  string
		text  quantity
		field *resource.Quantity
	}{{"CPU", f.CPU, &c.CPU}, {"Memory", f.Memory, &c.Memory}, {"Pods", f.Pods, &c.Pods}, {"GPU", f.GPU, &c.GPU}} {
		if q.text == "" {
			continue
		}
		parsed, err := resource.ParseQuantity(string(q.text))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %q is not a quantity", q.name, q.text))
		}
		*q.field = parsed
	}
	if f.CacheFor != "" {
		var err error
		if c.CacheFor, err = time.ParseDuration(f.CacheFor); err != nil || c.CacheFor <= 0 {
			errs = append(errs, fmt.Errorf("CacheFor: %q is not a duration such as 2s", f.CacheFor))
		}
	}
	return c, errors.Join(errs...)
}
