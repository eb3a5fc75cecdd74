package webhook

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sealane/sealane/delivery"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Kind is the adapter's name in destinations.
const Kind = "http"

// Limits of the adapter.
const (
	// MaxResponseBody and ResponseBodyTime bound what is read of an answer's body after its head decided.
	MaxResponseBody  = 64 << 10
	ResponseBodyTime = time.Second
	// MaxResponseHeader bounds an answer's head.
	MaxResponseHeader = 64 << 10
	// IdleTime is how long an unused connection is kept: shorter than what most servers keep, so that a request rarely meets one that is
	// just being closed.
	IdleTime = 30 * time.Second
	// DefaultMaxConns bounds the connections of one target.
	DefaultMaxConns = 1024
	dialTimeout     = 10 * time.Second
	tlsTimeout      = 10 * time.Second
)

// Header is one fixed header of a destination.
type Header struct{ Name, Value string }

// SecretRef says where a signing secret is found on this node; exactly one field is set.
type SecretRef struct{ Env, File string }

// Spec describes a target.
type Spec struct {
	URL      string
	Headers  []Header
	Strict   bool   // status_verdicts: strict, every 5xx is UNKNOWN
	TLSPin   string // sha256/<base64 of the SHA-256 of the public key info>
	Secrets  []SecretRef
	MaxConns int
}

// Options are the node's rules for all targets.
type Options struct {
	// AllowPrivate permits private, loopback and link-local addresses; AllowLoopback only loopback.
	AllowPrivate, AllowLoopback bool
	// Secret resolves a reference to its value. An error blocks the target's lane; its text must not hold the secret.
	Secret func(SecretRef) (string, error)
	// Now is the clock of timestamps and evidence; nil is time.Now.
	Now func() time.Time
}

// Adapter opens webhooks.
type Adapter struct{ opt Options }

// New returns the adapter.
func New(o Options) *Adapter {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Adapter{opt: o}
}

// Kind is "http".
func (a *Adapter) Kind() string { return Kind }

// Open prepares a target without any I/O on the network.
func (a *Adapter) Open(s Spec) (delivery.Target, error) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, fmt.Errorf("%w: url is not a URL", delivery.ErrSpec)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, fmt.Errorf("%w: url must be http:// or https:// and name a host", delivery.ErrSpec)
	}
	if s.MaxConns <= 0 {
		s.MaxConns = DefaultMaxConns
	}
	t := &Target{opt: a.opt, spec: s, url: u, address: address(u)}
	if t.fixed, err = fixedHeaders(s.Headers); err != nil {
		return nil, err
	}
	if t.transport, err = t.newTransport(); err != nil {
		return nil, err
	}
	return t, nil
}

func address(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "80"
		if u.Scheme == "https" {
			port = "443"
		}
	}
	host := u.Hostname()
	if strings.Contains(host, ":") {
		return "[" + host + "]:" + port
	}
	return host + ":" + port
}

func fixedHeaders(list []Header) (http.Header, error) {
	h := make(http.Header, len(list))
	for _, kv := range list {
		if strings.ContainsAny(kv.Value, "\r\n\x00") || strings.ContainsAny(kv.Name, "\r\n\x00 :") || kv.Name == "" {
			return nil, fmt.Errorf("%w: header %q has a character that headers may not have", delivery.ErrSpec, delivery.Clean(kv.Name))
		}
		h.Add(kv.Name, kv.Value)
	}
	return h, nil
}

// signers resolves the target's secrets and prepares their signatures, newest first. A missing one blocks the lane.
func (t *Target) signers() ([]*standardwebhooks.Webhook, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.signing != nil || len(t.spec.Secrets) == 0 {
		return t.signing, nil
	}
	var out []*standardwebhooks.Webhook
	for _, ref := range t.spec.Secrets {
		name := ref.Env + ref.File
		if t.opt.Secret == nil {
			return nil, blocked(ClassSecret, "secret "+name+" cannot be resolved on this node")
		}
		value, err := t.opt.Secret(ref)
		if err != nil {
			return nil, blocked(ClassSecret, "secret "+name+" is not available")
		}
		w, err := standardwebhooks.NewWebhook(value)
		if err != nil {
			return nil, blocked(ClassSecret, "secret "+name+" is not a Standard Webhooks secret (whsec_ and base64)")
		}
		out = append(out, w)
	}
	t.signing = out
	return out, nil
}

func blocked(class, detail string) *delivery.ConnectError {
	return &delivery.ConnectError{Class: class, Detail: delivery.Clean(detail), Blocked: true}
}
