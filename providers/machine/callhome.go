package machine

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"time"

	"golang.org/x/time/rate"

	"github.com/virtual-kubelet/virtual-kubelet/internal/pendingconns"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine/agent"
)

const (
	// maxRequest is the size in bytes of a request for a certificate, and callers how many are
	// answered at the same time: who can connect can ask.
	maxRequest, callers = 16 << 10, 32
	callTimeout         = 20 * time.Second
)

// callHome answers agents that ask for certificates.
type callHome struct {
	b     *backend
	turns limiter
}

// serve answers until ctx ends.
func (b *backend) serve(ctx context.Context, listener net.Listener) error {
	h := &callHome{b, make(limiter, callers)}
	mux := http.NewServeMux()
	mux.Handle("POST "+agent.CertificatePath, h)
	warned := rate.Sometimes{Interval: time.Minute}
	// No request is let in but for as long as its answer takes: all connections are pending.
	pending := pendingconns.New(func(remote string) {
		warned.Do(func() {
			log.G(ctx).WithField("remote", remote).Warn("Closed a connection of a caller that has the most, since too many wait at the port for machines")
		})
	})
	server := &http.Server{
		Handler: mux, TLSConfig: b.authority.server(), MaxHeaderBytes: maxRequest, ConnState: pending.State,
		ReadHeaderTimeout: callTimeout, ReadTimeout: callTimeout, WriteTimeout: callTimeout, IdleTimeout: callTimeout,
		Protocols: new(http.Protocols),
		ErrorLog:  stdlog.New(io.Discard, "", 0), // anybody can connect, and write nonsense
	}
	server.Protocols.SetHTTP1(true)
	server.SetKeepAlivesEnabled(false) // an agent asks once
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.ServeTLS(pending.Listener(listener), "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// errToken is the error of a request that is refused for good.
var errToken = errors.New("this is not the machine's token, or it has been used")

// ServeHTTP implements http.Handler. An answer says nothing that helps to guess.
func (h *callHome) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest)) // which a caller may send slowly
	done, busy := h.turns.take(r.Context())
	if busy != nil {
		return // the caller has gone
	}
	defer done()
	var in agent.CertificateRequest
	if err != nil || json.Unmarshal(body, &in) != nil {
		http.Error(w, "this is no request for a certificate", http.StatusBadRequest)
		return
	}
	logger := log.G(r.Context()).WithFields(log.Fields{"machine": clip(in.Machine, 100), "from": r.RemoteAddr})
	public, digest, err := readCSR(in.CSR)
	if err != nil {
		http.Error(w, "the CSR is none of a new key of ECDSA", http.StatusBadRequest)
		return
	}
	m, err := h.b.admit(in.Machine, in.Token, digest)
	switch {
	case errors.Is(err, errToken):
		logger.Warn("Refused a certificate: the token is not the machine's, or was used with another key")
		http.Error(w, errToken.Error(), http.StatusForbidden)
		return
	case err != nil:
		logger.WithError(err).Debug("Gave no certificate")
		http.Error(w, "the machine is not known, or not yet: ask again", http.StatusServiceUnavailable)
		return
	}
	lifetime := h.b.cfg.CertificateLifetime.Duration
	certificate, err := h.b.authority.signMachine(in.Machine, public, lifetime)
	if err != nil {
		logger.WithError(err).Warn("Cannot sign a certificate")
		http.Error(w, "it cannot be signed: ask again", http.StatusInternalServerError)
		return
	}
	logger.Info("Gave a machine its certificate")
	h.b.wake()
	w.Header().Set("Content-Type", "application/json")
	// The machine asks again if this does not arrive.
	_ = json.NewEncoder(w).Encode(agent.CertificateAnswer{Certificate: string(certificate), Address: m.Address, RenewAfterSeconds: int64((lifetime / 2).Seconds())})
}

// readCSR returns the key of a CSR whose sender has it, and its digest.
func readCSR(der []byte) (public any, digest string, err error) {
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, "", err
	}
	key, ok := csr.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, "", errors.New("the key is none of ECDSA P-256")
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, "", err
	}
	return key, digestOf(string(csr.RawSubjectPublicKeyInfo)), nil
}

// digestOf returns the SHA-256 of a text.
func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// admit decides whether a key is a machine's: it was the first that came with the machine's token.
// That it was is on disk before the answer.
func (b *backend) admit(name, token, key string) (Machine, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.members[name]
	switch {
	case m != nil && m.record != nil && subtle.ConstantTimeCompare([]byte(m.record.Key), []byte(key)) == 1:
		return m.machine, nil // also while it is ended: its agent is to end the pod before
	case m == nil || m.ending:
		return Machine{}, errors.New("there is no such machine")
	case isReserve(m.machine) && !m.planned, // it may have a pod, of which there is no record
		m.record == nil && b.successorLocked(m) != nil: // it was replaced, and its token has been used
		return Machine{}, errToken
	case m.record == nil && !m.made && !m.listed && m.machine.Tags[tagToken] != digestOf(token):
		return Machine{}, errors.New("the machine is being made: it may have been before, with another token")
	case m.record != nil, m.machine.Tags[tagAuthority] != b.authority.fingerprint(),
		subtle.ConstantTimeCompare([]byte(m.machine.Tags[tagToken]), []byte(digestOf(token))) != 1:
		return Machine{}, errToken
	}
	one := &record{Name: name, Tags: m.machine.Tags, Created: m.since, Address: m.machine.Address, Port: b.cfg.AgentPort, Key: key}
	if err := b.records.save(one); err != nil {
		return Machine{}, err
	}
	m.record = one
	return m.machine, nil
}
