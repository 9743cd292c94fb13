package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/virtual-kubelet/virtual-kubelet/internal/listen"
)

// listenFlags are the values of the flags of commands that have others run pods here.
type listenFlags struct {
	listen, certFile, keyFile, clientCAFile string
}

func (o *listenFlags) addTo(flags *pflag.FlagSet) {
	flags.StringVar(&o.listen, "listen", "", "where to listen: unix:///PATH, or ADDRESS:PORT")
	flags.StringVar(&o.certFile, "tls-cert-file", "", "PEM file with the certificate, read for each connection, as the next two are")
	flags.StringVar(&o.keyFile, "tls-private-key-file", "", "PEM file with the key of --tls-cert-file")
	flags.StringVar(&o.clientCAFile, "client-ca-file", "", "PEM file with the CA of the certificates of those who may connect, and of nobody else")
}

// check checks the values. plainLoopback says that programs of this machine may connect over TCP
// without a certificate.
func (o *listenFlags) check(plainLoopback bool) error {
	const names = "--tls-cert-file, --tls-private-key-file and --client-ca-file"
	files := []string{o.certFile, o.keyFile, o.clientCAFile}
	if path, ok := strings.CutPrefix(o.listen, "unix://"); ok {
		switch {
		case !filepath.IsAbs(path):
			return fmt.Errorf("--listen is %q: write unix:///PATH", o.listen)
		case strings.Join(files, "") != "":
			return errors.New("a unix socket has no certificates: leave out " + names)
		}
		return nil
	}
	host, _, err := net.SplitHostPort(o.listen)
	if err != nil {
		return fmt.Errorf("--listen is %q: write unix:///PATH or ADDRESS:PORT", o.listen)
	}
	address, err := netip.ParseAddr(host)
	switch {
	case !slices.Contains(files, ""):
	case !plainLoopback:
		return fmt.Errorf("--listen is %q, where all who connect could run pods: give %s, or listen on unix:///PATH", o.listen, names)
	case err != nil || !address.IsLoopback():
		return fmt.Errorf("--listen is %q, where all who connect could run pods: give %s, or listen on unix:///PATH or 127.0.0.1", o.listen, names)
	case (o.certFile == "") != (o.keyFile == "") || o.clientCAFile != "":
		return errors.New("--tls-cert-file and --tls-private-key-file belong together, and with --client-ca-file: give all that are needed, or none")
	}
	return nil
}

// open listens. protocols are those of TLS.
func (o *listenFlags) open(ctx context.Context, protocols ...string) (net.Listener, error) {
	listener, err := listen.At(ctx, o.listen, listen.Files{Cert: o.certFile, Key: o.keyFile, ClientCA: o.clientCAFile}, protocols...)
	if err != nil {
		return nil, fmt.Errorf("cannot listen: %w", err)
	}
	return listener, nil
}
