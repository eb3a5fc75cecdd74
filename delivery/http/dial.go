package webhook

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/sealane/sealane/delivery"
)

// Classes of failures to connect. The set is closed.
const (
	ClassDNS         = "DNS"
	ClassRefused     = "DIAL_REFUSED"
	ClassUnreachable = "DIAL_UNREACHABLE"
	ClassDialTimeout = "DIAL_TIMEOUT"
	ClassDial        = "DIAL_FAILED"
	ClassTLS         = "TLS"
	ClassIdentity    = "TLS_IDENTITY_CHANGED"
	ClassPrivate     = "ADDRESS_NOT_PERMITTED"
	ClassSecret      = "SECRET_MISSING"
	ClassFull        = "CONNECTIONS_EXHAUSTED"
	ClassClosed      = "TARGET_CLOSED"
	ClassCancelled   = "CANCELLED"
)

// errPrivate travels through the dialler to be told apart by identity, not by text.
var errPrivate = errors.New("address is not permitted")

// pinError is a public key that is not the pinned one.
type pinError struct{ want, got string }

func (e *pinError) Error() string { return "the public key is " + e.got + ", pinned is " + e.want }

// prepareDial sets up what every connection of the target shares.
func (t *Target) prepareDial(pin []byte) {
	t.dialer = net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, ControlContext: t.a.opt.control}
	if t.url.Scheme != "https" {
		return
	}
	t.tls = &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: t.url.Hostname(), RootCAs: t.a.opt.Roots, NextProtos: []string{"h2", "http/1.1"},
	}
	if pin == nil {
		return
	}
	t.tls.VerifyConnection = func(s tls.ConnectionState) error {
		got := sha256.Sum256(s.PeerCertificates[0].RawSubjectPublicKeyInfo)
		if string(got[:]) == string(pin) {
			return nil
		}
		return &pinError{want: t.spec.TLSPin, got: "sha256/" + base64.StdEncoding.EncodeToString(got[:])}
	}
}

// control refuses addresses by what is really dialled, after name resolution.
func (o *Options) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q", errPrivate, address)
	}
	if o.permitted(ap.Addr()) {
		return nil
	}
	return fmt.Errorf("%w: %s", errPrivate, ap.Addr())
}

// dial makes one connection and reserves it for one request.
func (t *Target) dial(ctx context.Context) (*conn, error) {
	raw, err := t.dialer.DialContext(ctx, "tcp", t.address)
	if err != nil {
		return nil, dialError(err)
	}
	secured, h2, err := t.secure(ctx, raw)
	if err != nil {
		raw.Close()
		return nil, tlsError(err)
	}
	w := newWire(raw, secured, h2)
	transport := t.a.h1
	if h2 {
		transport = t.a.h2
	}
	cc, err := transport.NewClientConn(context.WithValue(ctx, handed{}, w), "http", t.address)
	if err != nil {
		raw.Close()
		return nil, dialError(err)
	}
	if err := cc.Reserve(); err != nil {
		cc.Close()
		return nil, failure(ClassDial, "the peer closed the connection at once", err)
	}
	return &conn{t: t, cc: cc, wire: w, remote: raw.RemoteAddr().String(), born: t.a.opt.Now()}, nil
}

// secure does the TLS handshake where the URL wants it.
func (t *Target) secure(ctx context.Context, raw net.Conn) (c net.Conn, h2 bool, err error) {
	if t.tls == nil {
		return raw, false, nil
	}
	limited, cancel := context.WithTimeout(ctx, tlsTimeout)
	defer cancel()
	s := tls.Client(raw, t.tls)
	if err := s.HandshakeContext(limited); err != nil {
		return nil, false, err
	}
	return s, s.ConnectionState().NegotiatedProtocol == "h2", nil
}

func failure(class, detail string, err error) *delivery.ConnectError {
	return &delivery.ConnectError{Class: class, Detail: delivery.Clean(detail), Err: err}
}

// dialError finds the class of a failure before TLS by the types of its errors.
func dialError(err error) *delivery.ConnectError {
	out := failure(ClassDial, err.Error(), err)
	var dns *net.DNSError
	switch {
	case errors.Is(err, errPrivate):
		out.Class, out.Blocked = ClassPrivate, true
	case errors.Is(err, context.Canceled):
		out.Class = ClassCancelled
	case errors.As(err, &dns):
		out.Class = ClassDNS
	case errors.Is(err, syscall.ECONNREFUSED):
		out.Class = ClassRefused
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		out.Class = ClassUnreachable
	case isTimeout(err):
		out.Class = ClassDialTimeout
	}
	return out
}

// tlsError is for what went wrong between the TCP connection and a secured one.
func tlsError(err error) *delivery.ConnectError {
	out := failure(ClassTLS, err.Error(), err)
	var pin *pinError
	switch {
	case errors.As(err, &pin):
		out.Class, out.Blocked, out.Old, out.New = ClassIdentity, true, pin.want, pin.got
	case errors.Is(err, context.Canceled):
		out.Class = ClassCancelled
	case isTimeout(err):
		out.Class = ClassDialTimeout
	}
	return out
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}
