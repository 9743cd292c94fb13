package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/pflag"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// providerFlags are the values of flags of commands that have a provider and no node.
type providerFlags struct {
	provider, providerConfig string
	logLevel, logFormat      string
}

// addTo adds the flags. The provider is by default the given one.
func (o *providerFlags) addTo(flags *pflag.FlagSet, provider, usage string) {
	flags.StringVar(&o.provider, "provider", provider, usage)
	flags.StringVar(&o.providerConfig, "provider-config", "", "configuration file of the provider")
	flags.StringVar(&o.logLevel, "log-level", "info", "minimum level to log: debug, info, warn or error")
	flags.StringVar(&o.logFormat, "log-format", "text", "format of the log: text or json")
}

// check checks the values but for the provider.
func (o *providerFlags) check() error {
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, o.logLevel) {
		return fmt.Errorf("--log-level is %q: give debug, info, warn or error", o.logLevel)
	}
	if o.logFormat != "text" && o.logFormat != "json" {
		return fmt.Errorf("--log-format is %q: give text or json", o.logFormat)
	}
	return nil
}

// withLog sets up the log of the process, and returns ctx with it.
func (o *providerFlags) withLog(ctx context.Context, stderr io.Writer) context.Context {
	format := new(logFormat)
	format.use(o.logFormat)
	return log.WithLogger(ctx, setUpLogging(logLevels[o.logLevel], format, stderr))
}
