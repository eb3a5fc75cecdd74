package webhook

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sealane/sealane/delivery"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Error classes: the closed set that evidence and connect failures use.
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
	ClassCancelled   = "CANCELLED"
)

// errPrivate and errPin travel through net/http's dialling to be told apart by identity, not by text.
var (
	errPrivate = errors.New("address is not permitted")
	errPin     = errors.New("public key is not the pinned one")
)

// Target keeps the connections to one URL.
type Target struct {
	opt       Options
	spec      Spec
	url       *url.URL
	address   string
	fixed     http.Header
	transport *http.Transport

	mu      sync.Mutex
	signing []*standardwebhooks.Webhook
	idle    []*conn // the last is the most recently used
	open    int
	closed  bool
}

func (t *Target) newTransport() (*http.Transport, error) {
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.spec.TLSPin != "" {
		want, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(t.spec.TLSPin, "sha256/"))
		if err != nil || len(want) != sha256.Size {
			return nil, fmt.Errorf("%w: tls.pin must be sha256/ and the base64 of 32 bytes", delivery.ErrSpec)
		}
		tlsConfig.VerifyConnection = func(s tls.ConnectionState) error {
			got := sha256.Sum256(s.PeerCertificates[0].RawSubjectPublicKeyInfo)
			if string(got[:]) != string(want) {
				return fmt.Errorf("%w: it is sha256/%s", errPin, base64.StdEncoding.EncodeToString(got[:]))
			}
			return nil
		}
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, ControlContext: t.control}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			g := &gateConn{Conn: c}
			if out, ok := ctx.Value(dialled{}).(**gateConn); ok {
				*out = g
			}
			return g, nil
		},
		TLSClientConfig: tlsConfig, TLSHandshakeTimeout: tlsTimeout, ForceAttemptHTTP2: true, DisableCompression: true,
		MaxResponseHeaderBytes: MaxResponseHeader, WriteBufferSize: 8 << 10, ReadBufferSize: 4 << 10,
	}, nil
}

// dialled is the context key by which Connect gets hold of the connection that the transport dialled for it.
type dialled struct{}

// control refuses addresses by what is really dialled, after name resolution.
func (t *Target) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q", errPrivate, address)
	}
	if t.permitted(ap.Addr()) {
		return nil
	}
	return fmt.Errorf("%w: %s", errPrivate, ap.Addr())
}

// Networks that are not public although netip has no word for them.
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2002::/16"),
	netip.MustParsePrefix("100::/64"), netip.MustParsePrefix("fec0::/10"),
}

func (t *Target) permitted(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if t.opt.AllowPrivate {
		return !a.IsUnspecified() && !a.IsMulticast()
	}
	if a.IsLoopback() {
		return t.opt.AllowLoopback
	}
	if !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLinkLocalUnicast() {
		return false
	}
	for _, p := range notPublic {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

// TryConn takes the most recently used idle connection that is still good. One that its peer has closed is noticed by the connection's own
// reader and thrown away here, so that no request is written to it; what remains is the instant between this check and the first byte.
func (t *Target) TryConn() (delivery.Conn, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.opt.Now()
	for len(t.idle) > 0 {
		c := t.idle[len(t.idle)-1]
		t.idle = t.idle[:len(t.idle)-1]
		if now.Sub(c.used) < IdleTime && c.cc.Err() == nil && c.cc.Reserve() == nil {
			return c, true
		}
		t.dropLocked(c)
	}
	return nil, false
}

func (t *Target) dropLocked(c *conn) {
	t.open--
	go c.cc.Close() // closing TLS may write; the lock is not for that
}

// Connect dials a new connection and reserves it.
func (t *Target) Connect(ctx context.Context) (delivery.Conn, error) {
	if _, err := t.signers(); err != nil {
		return nil, err
	}
	t.mu.Lock()
	if t.open >= t.spec.MaxConns {
		t.mu.Unlock()
		return nil, &delivery.ConnectError{Class: ClassFull, Detail: fmt.Sprintf("all %d connections are in use", t.spec.MaxConns)}
	}
	t.open++
	t.mu.Unlock()
	c, err := t.dial(ctx)
	if err != nil {
		t.mu.Lock()
		t.open--
		t.mu.Unlock()
		return nil, err
	}
	return c, nil
}

func (t *Target) dial(ctx context.Context) (*conn, error) {
	var g *gateConn
	cc, err := t.transport.NewClientConn(context.WithValue(ctx, dialled{}, &g), t.url.Scheme, t.address)
	if err != nil {
		return nil, connectError(ctx, err)
	}
	if err := cc.Reserve(); err != nil {
		cc.Close()
		return nil, &delivery.ConnectError{Class: ClassDial, Detail: "the connection was closed at once", Err: err}
	}
	c := &conn{t: t, cc: cc, gate: g, h1: cc.Available() == 0}
	if g != nil {
		c.remote = g.RemoteAddr().String()
	}
	return c, nil
}

// connectError finds the class of a failure by the types of its errors.
func connectError(ctx context.Context, err error) *delivery.ConnectError {
	out := &delivery.ConnectError{Class: ClassDial, Detail: delivery.Clean(err.Error()), Err: err}
	var dns *net.DNSError
	var unknownCA x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var verify *tls.CertificateVerificationError
	switch {
	case errors.Is(err, errPrivate):
		out.Class, out.Blocked = ClassPrivate, true
	case errors.Is(err, errPin):
		out.Class, out.Blocked = ClassIdentity, true
	case errors.As(err, &dns):
		out.Class = ClassDNS
	case errors.As(err, &unknownCA), errors.As(err, &hostname), errors.As(err, &invalid), errors.As(err, &record), errors.As(err, &alert), errors.As(err, &verify):
		out.Class = ClassTLS
	case errors.Is(err, syscall.ECONNREFUSED):
		out.Class = ClassRefused
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		out.Class = ClassUnreachable
	case errors.Is(err, context.Canceled):
		out.Class = ClassCancelled
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), ctx.Err() != nil, isTimeout(err):
		out.Class = ClassDialTimeout
	}
	return out
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// Close closes idle connections now and those in hand when they are released.
func (t *Target) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, c := range t.idle {
		t.dropLocked(c)
	}
	t.idle = nil
}

// Open is the number of connections of the target, in hand or idle.
func (t *Target) Open() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open
}
