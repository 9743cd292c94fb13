package stackpath

import (
	"cmp"
	"errors"
	"strings"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
)

// Config has the settings of the provider that this one replaces.
type Config struct {
	AccountID    string `json:"account_id"` // which the API does not need
	StackID      string `json:"stack_id"`
	ClientID     string `json:"client_id"`
	ClientSecret Secret `json:"client_secret"`
	// BaseURL is the host of the API. Defaults to gateway.stackpath.com.
	BaseURL string `json:"base_url"`
	// CityCode is the place in which pods run, such as DFW.
	CityCode string `json:"city_code"`
	// ClusterName distinguishes clusters in one stack. Defaults to kubernetes.
	ClusterName string `json:"cluster_name"`
}

// Secret is a string that is never printed.
type Secret = config.Secret

// ParseConfig decodes a configuration file in YAML. The error, of class InvalidInput, names
// all mistakes.
func ParseConfig(data []byte) (c Config, err error) {
	return c, errdefs.AsInvalidInput(config.Decode(data, &c, nil))
}

// Merge overwrites settings with environment variables, as getenv returns them.
func (c *Config) Merge(getenv func(string) string) error {
	return config.Environment(getenv, map[string]any{
		"SP_STACK_ID": &c.StackID, "SP_CLIENT_ID": &c.ClientID, "SP_CLIENT_SECRET": (*string)(&c.ClientSecret), "SP_API_HOST": &c.BaseURL, "SP_CITY_CODE": &c.CityCode,
	})
}

// Complete sets defaults, and returns an error of class InvalidInput if a setting is missing.
func (c *Config) Complete() error {
	c.BaseURL, c.CityCode, c.ClusterName = cmp.Or(c.BaseURL, "gateway.stackpath.com"), strings.ToUpper(c.CityCode), cmp.Or(c.ClusterName, "kubernetes")
	if c.StackID == "" || c.ClientID == "" || c.ClientSecret == "" || c.CityCode == "" || strings.Contains(c.BaseURL, "/") {
		return errdefs.AsInvalidInput(errors.New("stackpath config: set stack_id, client_id, client_secret and city_code; base_url is a host"))
	}
	return nil
}
