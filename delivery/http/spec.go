package webhook

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sealane/sealane/delivery"
	"golang.org/x/net/http/httpguts"
)

// Kind is the adapter's name in destinations.
const Kind = "http"

// Limits of the adapter.
const (
	// MaxResponseBody and ResponseBodyTime bound what is read of an answer's body after its head decided.
	MaxResponseBody  = 64 << 10
	ResponseBodyTime = time.Second
	// MaxResponseHeader bounds an answer's heads in bytes, informational ones included.
	MaxResponseHeader = 64 << 10
	// IdleTime is how long an unused connection is kept: shorter than what most servers keep, so that a request rarely meets one that is
	// just being closed. LifeTime is how old a connection becomes before it is not reused, so that a changed name is looked up again.
	IdleTime = 30 * time.Second
	LifeTime = 10 * time.Minute
	// DefaultMaxConns bounds the connections of one target.
	// DefaultTotalConns bounds the connections of all targets where the node names no bound.
	DefaultTotalConns = 8192
	DefaultMaxConns   = 1024
	// MaxURL bounds a target's URL in bytes.
	MaxURL = 4096
	// MaxSecrets is two: the new one and the old one during a rotation.
	MaxSecrets = 2

	dialTimeout = 10 * time.Second
	tlsTimeout  = 10 * time.Second
)

// Header is one fixed header of a destination.
type Header struct{ Name, Value string }

// SecretRef says where a signing secret is found on this node; exactly one field is set.
type SecretRef struct{ Env, File string }

// Spec describes a target.
type Spec struct {
	URL     string   // http or https, no user, no fragment, at most MaxURL bytes
	Headers []Header // in the destination's order; not those that the adapter sets
	Strict  bool     // status_verdicts: strict, every 5xx is UNKNOWN
	TLSPin  string   // "sha256/" and the base64 of the SHA-256 of the leaf's SubjectPublicKeyInfo; in addition to the usual verification
	Secrets []SecretRef
	// MaxConns bounds the connections, idle ones included; 0 is DefaultMaxConns. One request at a time uses a connection, over HTTP/2 too.
	MaxConns int
}

// Options are the node's rules for all targets.
type Options struct {
	// AllowPrivate permits private, loopback and link-local addresses; AllowLoopback only loopback.
	AllowPrivate, AllowLoopback bool
	// Secret resolves a reference to its value. An error blocks the target's lane; its text is not shown.
	Secret func(SecretRef) (string, error)
	// Roots are the certificate authorities; nil is the system's.
	Roots *x509.CertPool
	// MaxConns bounds the connections of all targets together; 0 is DefaultTotalConns. From half of it on a connection is closed after its request
	// instead of being kept, so that targets that are done leave room for others.
	MaxConns int
	// Now is the clock of timestamps, evidence and idle times; nil is time.Now.
	Now func() time.Time
}

// Adapter opens webhooks.
type Adapter struct {
	opt    Options
	open   atomic.Int64    // connections of all targets
	h1, h2 *http.Transport // they only wrap connections that they are handed; they pool, dial and retry nothing
}

// New returns the adapter.
func New(o Options) *Adapter {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxConns <= 0 {
		o.MaxConns = DefaultTotalConns
	}
	return &Adapter{opt: o, h1: newTransport(false), h2: newTransport(true)}
}

// handed is the context key under which dial gives its connection to a transport.
type handed struct{}

var errNotHanded = errors.New("webhook: a transport tried to dial by itself")

func newTransport(h2 bool) *http.Transport {
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if w, ok := ctx.Value(handed{}).(*wire); ok {
				return w, nil
			}
			return nil, errNotHanded
		},
		Protocols: new(http.Protocols), DisableCompression: true, MaxResponseHeaderBytes: MaxResponseHeader,
		WriteBufferSize: 8 << 10, ReadBufferSize: 4 << 10,
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 2 * MaxResponseBody, MaxReceiveBufferPerConnection: 4 * MaxResponseBody},
	}
	t.Protocols.SetHTTP1(!h2)
	t.Protocols.SetUnencryptedHTTP2(h2) // in clear for net/http: the wire below it does TLS
	return t
}

// Kind is "http".
func (a *Adapter) Kind() string { return Kind }

// Open prepares a target without any I/O. The error is delivery.ErrSpec, naming each field that is wrong.
func (a *Adapter) Open(s Spec) (delivery.Target, error) {
	u, errs := checkURL(s.URL)
	fixed, err := fixedHeaders(s.Headers)
	errs = append(errs, err...)
	pin, err2 := checkPin(s.TLSPin)
	errs = append(errs, err2...)
	if len(s.Secrets) > MaxSecrets {
		errs = append(errs, fmt.Errorf("signing: at most %d secrets", MaxSecrets))
	}
	for _, ref := range s.Secrets {
		if (ref.Env == "") == (ref.File == "") {
			errs = append(errs, errors.New("signing: a secret names exactly one of env and file"))
		}
	}
	if s.MaxConns < 0 {
		errs = append(errs, errors.New("max_conns: must not be negative"))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("%w: %w", delivery.ErrSpec, errors.Join(errs...))
	}
	if s.MaxConns == 0 {
		s.MaxConns = DefaultMaxConns
	}
	t := &Target{a: a, spec: s, url: u, address: address(u), fixed: fixed}
	t.prepareDial(pin)
	return t, nil
}

func checkURL(text string) (*url.URL, []error) {
	if len(text) > MaxURL {
		return nil, []error{fmt.Errorf("url: at most %d bytes", MaxURL)}
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, []error{errors.New("url: is not a URL")} // without the cause: it would quote what may be a credential
	}
	var errs []error
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		errs = append(errs, errors.New("url: must be http:// or https:// and name a host"))
	}
	if u.User != nil || u.Fragment != "" {
		errs = append(errs, errors.New("url: must have no user and no fragment"))
	}
	return u, errs
}

// checkPin returns nil without a pin.
func checkPin(pin string) ([]byte, []error) {
	if pin == "" {
		return nil, nil
	}
	text, ok := strings.CutPrefix(pin, "sha256/")
	sum, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(sum) != sha256.Size {
		return nil, []error{errors.New("tls.pin: must be sha256/ and the base64 of 32 bytes")}
	}
	return sum, nil
}

func address(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "80"
		if u.Scheme == "https" {
			port = "443"
		}
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// fixedHeaders refuses what would change how a request is framed, and what the adapter sets itself.
func fixedHeaders(list []Header) (http.Header, []error) {
	h := make(http.Header, len(list))
	var errs []error
	for _, kv := range list {
		name := http.CanonicalHeaderKey(kv.Name)
		switch {
		case !httpguts.ValidHeaderFieldName(kv.Name) || !httpguts.ValidHeaderFieldValue(kv.Value):
			errs = append(errs, fmt.Errorf("headers: %q has a character that headers may not have", delivery.CleanTo(kv.Name, 64)))
		case ownHeader(name):
			errs = append(errs, fmt.Errorf("headers: %s is set by the adapter", name))
		default:
			h.Add(kv.Name, kv.Value)
		}
	}
	return h, errs
}

// ownHeader takes a canonical name.
func ownHeader(name string) bool {
	switch name {
	case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Proxy-Connection", "Upgrade", "Te", "Trailer", "Expect",
		"Idempotency-Key", "Traceparent", "Webhook-Id", "Webhook-Timestamp", "Webhook-Signature":
		return true
	}
	return strings.HasPrefix(name, "Sealane-")
}
