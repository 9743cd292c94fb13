package logrus_test

import (
	"context"
	"os"

	"github.com/sirupsen/logrus"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	vklogrus "github.com/virtual-kubelet/virtual-kubelet/log/logrus"
)

func Example() {
	l := logrus.New()
	l.SetOutput(os.Stdout)
	l.SetFormatter(&logrus.TextFormatter{DisableTimestamp: true})

	// Programs assign it to log.L, or put it into the context.
	ctx := log.WithLogger(context.Background(), vklogrus.FromLogrus(logrus.NewEntry(l)))
	log.G(ctx).WithField("pod", "default/web").Info("created")
	// Output: level=info msg=created pod=default/web
}
