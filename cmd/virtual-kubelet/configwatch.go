package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/nodepools"
	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// configPollInterval is how often the files are read. A change counts once they were the same
// twice.
const configPollInterval = 2 * time.Second

// hasFiles reports whether there are files for watchConfig: that of --config, or that of
// the provider without one.
func (o *options) hasFiles() bool { return o.configFile != "" || o.providerConfig != "" }

// hasConfiguration reports whether there is a configuration besides that of node pools, which
// have metrics of their own.
func (o *options) hasConfiguration() bool {
	return o.configuration != nil || o.poolsFile == "" && o.providerConfig != ""
}

// watchConfig applies changes of the configuration as far as a running process can, and logs
// what needs a restart, until ctx ends. Node pools are watched elsewhere.
func (o *options) watchConfig(ctx context.Context, used prometheus.Gauge) {
	w := configWatch{options: o, inUse: o.settings.Values(), pools: o.poolsFile != "", used: used}
	used.Set(1)
	poll := time.NewTicker(configPollInterval)
	defer poll.Stop()
	last := o.readConfig()
	if o.poolsFile == "" && o.providerConfig != "" {
		inUse, _ := o.configOfProvider() // as it was when it was checked
		w.provider = string(inUse)
	}
	seen := configContent{data: o.configContent, provider: w.provider}
	for {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		}
		now := o.readConfig()
		if now == last && now != seen {
			seen = now
			w.changed(ctx, now)
		}
		last = now
	}
}

// newConfigMetric returns the metric that watchConfig sets.
func newConfigMetric() prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "vk_configuration_in_use",
		Help: "Whether the configuration is used as its files have it: not if it has mistakes, or waits for a restart.",
	})
}

// configContent is the content of the file of --config, if there is one, or why it cannot be
// read.
type configContent struct {
	data, failure string
	provider      string // content of the provider's own file, if there is one
}

func (o *options) readConfig() configContent {
	var now configContent
	if o.poolsFile == "" && o.providerConfig != "" { // that of pools is part of what they watch
		data, _ := os.ReadFile(o.providerConfig) // that it cannot be read is a mistake of the configuration
		now.provider = string(data)
	}
	if o.configFile == "" {
		return now
	}
	data, err := os.ReadFile(o.configFile)
	if err != nil {
		now.failure = err.Error()
		return now
	}
	now.data = string(data)
	return now
}

// configWatch is what a watch of the configuration knows.
type configWatch struct {
	*options
	inUse    map[string]string // the values in force, by field
	provider string            // content of the provider's file that is in force
	pools    bool              // the process has node pools
	logged   string            // about the last content that is not in use as a whole
	used     prometheus.Gauge  // 1 if it is
}

// changed applies a content of the files.
func (w *configWatch) changed(ctx context.Context, now configContent) {
	fresh, err := w.again(now)
	if err != nil {
		w.once(err.Error(), func() {
			log.G(ctx).WithError(err).Error("The configuration cannot be used; the values in force stay")
		})
		return
	}
	var restart, reloaded []string
	values := fresh.settings.Values()
	for _, s := range fresh.settings.Settings {
		switch {
		case s.Field == "" || values[s.Field] == w.inUse[s.Field]:
		case s.Reloaded:
			w.inUse[s.Field] = values[s.Field]
			reloaded = append(reloaded, s.Field)
		default:
			restart = append(restart, s.Field)
		}
	}
	if now.provider != w.provider {
		restart = append(restart, w.settings.Name("provider-config"))
	}
	if len(reloaded) > 0 {
		w.reload(ctx, fresh, reloaded)
	}
	if pools := fresh.poolsFile != ""; pools != w.pools {
		restart = append(restart, nodepools.Kind)
	}
	if fields := strings.Join(restart, ", "); fields != "" {
		w.once(fields, func() {
			log.G(ctx).WithField("fields", fields).Warn("The configuration has changed: restart to use it")
		})
		return
	}
	if w.logged != "" {
		w.logged = ""
		w.used.Set(1)
		log.G(ctx).Info("The configuration is again as this process uses it")
	}
}

// once logs what was not logged last.
func (w *configWatch) once(about string, logs func()) {
	w.used.Set(0)
	if w.logged != about {
		w.logged = about
		logs()
	}
}

// reload applies what can be changed while the process runs, and logs that at the more
// talkative of the two log levels.
func (w *configWatch) reload(ctx context.Context, fresh *options, fields []string) {
	before := w.live.level.Level()
	w.live.use(fresh)
	after := w.live.level.Level()
	w.live.level.Set(min(before, after))
	log.G(ctx).WithField("fields", strings.Join(fields, ", ")).Info("The configuration has changed, and is in use")
	w.live.level.Set(after)
}

// again returns the options of the same flags and environment with another content of the
// files.
func (w *configWatch) again(now configContent) (*options, error) {
	if now.failure != "" {
		return nil, fmt.Errorf("--config cannot be read: %s", now.failure)
	}
	var fresh options
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	fresh.addFlags(flags, w.getenv)
	var failed error
	w.flags.Visit(func(f *pflag.Flag) {
		if flags.Lookup(f.Name) == nil {
			return // it is no setting
		}
		value := f.Value.String()
		if f.Value.Type() == "stringToString" {
			value = strings.TrimSuffix(strings.TrimPrefix(value, "["), "]")
		}
		if err := flags.Set(f.Name, value); err != nil && failed == nil {
			failed = fmt.Errorf("--%s: %w", f.Name, err)
		}
	})
	if failed != nil {
		return nil, failed
	}
	if w.configFile != "" {
		fresh.applyConfig([]byte(now.data))
	}
	if w.configuration != nil && fresh.configuration == nil {
		return nil, fmt.Errorf("%s: there is no %s in it any more: write one, or restart", w.configFile, configurationKind)
	}
	fresh.takeEnvironment(w.getenv)
	if wrong := fresh.check(); len(wrong) > 0 || fresh.poolsFile != "" || fresh.provider == "" {
		return &fresh, config.Join(wrong...)
	}
	return &fresh, fresh.providerMistake()
}
