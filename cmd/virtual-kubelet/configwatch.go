package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/nodepools"
	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// configPollInterval is how often the file of --config is read. A change counts once the file
// was the same twice.
const configPollInterval = 2 * time.Second

// watchConfig applies changes of the configuration as far as a running process can, and logs
// what needs a restart, until ctx ends. Node pools are watched elsewhere.
func (o *options) watchConfig(ctx context.Context) {
	w := configWatch{options: o, inUse: o.settings.Values(), pools: o.poolsFile != ""}
	poll := time.NewTicker(configPollInterval)
	defer poll.Stop()
	last, seen := o.readConfig(), configContent{data: o.configContent}
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

// configContent is the content of the file, or why it cannot be read.
type configContent struct{ data, failure string }

func (o *options) readConfig() configContent {
	data, err := os.ReadFile(o.configFile)
	if err != nil {
		return configContent{failure: err.Error()}
	}
	return configContent{data: string(data)}
}

// configWatch is what a watch of the configuration knows.
type configWatch struct {
	*options
	inUse  map[string]string // the values in force, by field
	pools  bool              // the process has node pools
	logged string            // about the last content that is not in use as a whole
}

// changed applies a content of the file.
func (w *configWatch) changed(ctx context.Context, now configContent) {
	fresh, err := w.again(now)
	if err != nil {
		w.once(err.Error(), func() {
			log.G(ctx).WithError(err).Error("The configuration cannot be used; the values in force stay")
		})
		return
	}
	restart := []string{}
	values := fresh.settings.Values()
	for _, s := range fresh.settings.Settings {
		switch {
		case s.Field == "" || values[s.Field] == w.inUse[s.Field]:
		case s.Reloaded:
			w.inUse[s.Field] = values[s.Field]
			w.reload(ctx, fresh)
		default:
			restart = append(restart, s.Field)
		}
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
		log.G(ctx).Info("The configuration is again as this process uses it")
	}
}

// once logs what was not logged last.
func (w *configWatch) once(about string, logs func()) {
	if w.logged != about {
		w.logged = about
		logs()
	}
}

// reload applies what can be changed while the process runs.
func (w *configWatch) reload(ctx context.Context, fresh *options) {
	level := logLevels[fresh.logLevel]
	if level <= slog.LevelInfo {
		w.level.Set(level)
	}
	log.G(ctx).WithField("to", fresh.logLevel).Info("Changed the log level") // at the more talkative of the two levels
	w.level.Set(level)
}

// again returns the options of the same flags and environment with another content of the
// file.
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
	fresh.applyConfig([]byte(now.data))
	if w.configuration != nil && fresh.configuration == nil {
		return nil, fmt.Errorf("%s: there is no %s in it any more: write one, or restart", w.configFile, configurationKind)
	}
	fresh.takeEnvironment(w.getenv)
	return &fresh, config.Join(fresh.check()...)
}
