package server

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/virtual-kubelet/virtual-kubelet/internal/listen"
)

// Listen listens on a unix socket, in place of a process that was killed and has left its file
// there. While another process answers at the path, it is an error. The file is for the user of this
// process alone: who can connect can read Secrets, and run pods.
func Listen(path string) (net.Listener, error) { return listen.Unix(path) }

// TLS are files in PEM, which are read for each connection, so that they can be replaced.
type TLS struct {
	// CertFile and KeyFile are what virtual kubelets are shown.
	CertFile, KeyFile string
	// ClientCAFile has the authorities that sign the certificates of the virtual kubelets that may
	// connect, and of nobody else.
	ClientCAFile string
}

// ListenAt listens at unix:///PATH, as Listen does, or at ADDRESS:PORT for virtual kubelets that show
// a certificate. Where files cannot be used any more, connections fail, and the log of ctx has why.
func ListenAt(ctx context.Context, address string, files TLS) (net.Listener, error) {
	switch {
	case strings.HasPrefix(address, "unix://"):
		if files != (TLS{}) {
			return nil, errors.New("a unix socket has no certificates: the rights of its file protect it")
		}
	case files.CertFile == "" || files.KeyFile == "" || files.ClientCAFile == "":
		return nil, errors.New("certificate, key and the authorities of clients are required for an address that is no unix socket: who can connect can read Secrets, and run pods")
	}
	return listen.At(ctx, address, listen.Files{Cert: files.CertFile, Key: files.KeyFile, ClientCA: files.ClientCAFile}, "h2")
}
