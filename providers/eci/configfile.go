package eci

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
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

	Zone     string `json:"zone"`
	RAMRole  string `json:"ramRole"`
	Endpoint string `json:"endpoint"`
	CacheFor string `json:"cacheFor"`
}

// ParseConfig decodes a configuration file. It is TOML if its first line is a setting
// (name = value) or a table, otherwise YAML or JSON. It is strict: unknown fields and
// invalid values are errors of class InvalidInput, which contain no value that may be a
// secret. Empty data is an empty configuration; Merge and Complete do the rest.
func ParseConfig(data []byte) (Config, error) {
	var file fileConfig
	var err error
	if isTOML(data) {
		err = unmarshalTOML(data, &file)
	} else {
		err = yaml.UnmarshalStrict(data, &file)
	}
	if err == nil {
		var c Config
		if c, err = file.config(); err == nil {
			return c, nil
		}
	}
	return Config{}, errdefs.InvalidInputf("eci config: %w", err)
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

func unmarshalTOML(data []byte, file *fileConfig) error {
	meta, err := toml.Decode(string(data), file)
	if parse, ok := errors.AsType[toml.ParseError](err); ok {
		// Its message may quote the line.
		return fmt.Errorf("line %d, near %q, is not TOML", parse.Position.Line, parse.LastKey)
	}
	if err != nil {
		return err
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return fmt.Errorf("unknown field %q", unknown[0].String())
	}
	return nil
}

func (f *fileConfig) config() (Config, error) {
	c := Config{
		ClusterName: f.ClusterName, Region: f.Region, AccessKey: Secret(f.AccessKey), SecretKey: Secret(f.SecretKey),
		SecurityGroup: f.SecureGroup, VSwitch: f.VSwitch, Zone: f.Zone, RAMRole: f.RAMRole, Endpoint: f.Endpoint,
		OperatingSystem: f.OperatingSystem,
	}
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
			return c, fmt.Errorf("%s: %q is not a quantity", q.name, q.text)
		}
		*q.field = parsed
	}
	if f.CacheFor != "" {
		var err error
		if c.CacheFor, err = time.ParseDuration(f.CacheFor); err != nil || c.CacheFor <= 0 {
			return c, fmt.Errorf("CacheFor: %q is not a duration such as 2s", f.CacheFor)
		}
	}
	return c, nil
}
