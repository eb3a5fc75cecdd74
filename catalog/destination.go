package catalog

import (
	"time"

	"github.com/sealane/sealane/policy"
)

// Destination is the definition a client applies (DESIGN 12). Its JSON form is how the control group stores it: struct fields in order, no
// maps, so that equal definitions have equal bytes.
type Destination struct {
	Name              string             `json:"name"`
	HTTP              *HTTPTarget        `json:"http,omitempty"`
	Retry             policy.Retry       `json:"retry"`
	Uncertainty       policy.Uncertainty `json:"uncertainty"`
	Probe             *Probe             `json:"probe,omitempty"`
	Lane              LaneLimits         `json:"lane"`
	Circuit           policy.Circuit     `json:"circuit"`
	Retention         time.Duration      `json:"retention"`
	IdempotencyWindow time.Duration      `json:"idempotency_window"`
	DeadLetter        DeadLetter         `json:"dead_letter"`
}

// HTTPTarget is a webhook. Secrets are references, never values.
type HTTPTarget struct {
	URL            string        `json:"url"`
	Timeout        time.Duration `json:"timeout"`
	Headers        []Header      `json:"headers,omitempty"` // sorted by name
	StatusVerdicts string        `json:"status_verdicts"`   // receiver, strict
	TLSPin         string        `json:"tls_pin,omitempty"` // sha256/… of the receiver's public key
	SigningSecrets []SecretRef   `json:"signing_secrets,omitempty"`
}

// Header is one fixed header of a target.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// SecretRef says where a secret is found on the node that sends; exactly one field is set.
type SecretRef struct {
	Env  string `json:"env,omitempty"`
	File string `json:"file,omitempty"`
}

// Probe asks the receiver what it knows of a webhook id (C.6).
type Probe struct {
	URL                   string   `json:"url"`
	Found                 []uint32 `json:"found"`
	Absent                []uint32 `json:"absent,omitempty"`
	AbsentIsAuthoritative bool     `json:"absent_is_authoritative,omitempty"`
}

// LaneLimits bound a destination. Rate and concurrency are split evenly over the slots.
type LaneLimits struct {
	MaxInFlight     uint32 `json:"max_in_flight"`
	RatePerSecond   uint32 `json:"rate_per_second"` // 0: none
	Spread          uint32 `json:"spread"`
	MaxPending      uint64 `json:"max_pending"`
	MaxPendingBytes uint64 `json:"max_pending_bytes"`
	// MaxBytesInFlight bounds the payload bytes of requests in flight.
	MaxBytesInFlight uint64 `json:"max_bytes_in_flight"`
}

// DeadLetter says how long dead letters are kept and where they are exported.
type DeadLetter struct {
	Retention time.Duration `json:"retention"`
	Export    string        `json:"export,omitempty"`
}

// Version is one immutable version of a destination as the control group recorded it.
type Version struct {
	Namespace string      `json:"namespace"`
	Version   uint64      `json:"version"`
	CreatedAt policy.Time `json:"created_at"`
	Deleted   bool        `json:"deleted,omitempty"`
	Spec      Destination `json:"spec"`
}

// Defaults where a definition says nothing (DESIGN 5, 7, 8).
const (
	DefaultTimeout           = 15 * time.Second
	DefaultMaxInFlight       = 32
	DefaultMaxPending        = 1_000_000
	DefaultMaxPendingBytes   = 10 << 30
	DefaultBytesInFlight     = 64 << 20
	DefaultRetention         = 7 * 24 * time.Hour
	DefaultDeadLetterKeep    = 30 * 24 * time.Hour
	DefaultIdempotencyWindow = 24 * time.Hour
	VerdictsReceiver         = "receiver"
	VerdictsStrict           = "strict"
)

// WithDefaults returns the definition with every unset field filled in. Applying it twice changes nothing more.
func (d Destination) WithDefaults() Destination {
	if d.HTTP != nil {
		h := *d.HTTP
		setDefault(&h.Timeout, DefaultTimeout)
		setDefault(&h.StatusVerdicts, VerdictsReceiver)
		d.HTTP = &h
	}
	d.Retry = retryDefaults(d.Retry)
	c := policy.DefaultCircuit()
	setDefault(&d.Circuit.FailureThreshold, c.FailureThreshold)
	setDefault(&d.Circuit.OpenFor, c.OpenFor)
	setDefault(&d.Circuit.MaxOpenFor, max(c.MaxOpenFor, d.Circuit.OpenFor))
	setDefault(&d.Circuit.HalfOpenSuccesses, c.HalfOpenSuccesses)
	setDefault(&d.Circuit.TrialTimeout, c.TrialTimeout)
	setDefault(&d.Lane.MaxInFlight, DefaultMaxInFlight)
	setDefault(&d.Lane.Spread, 1)
	setDefault(&d.Lane.MaxPending, DefaultMaxPending)
	setDefault(&d.Lane.MaxPendingBytes, DefaultMaxPendingBytes)
	setDefault(&d.Lane.MaxBytesInFlight, DefaultBytesInFlight)
	setDefault(&d.Retention, DefaultRetention)
	setDefault(&d.IdempotencyWindow, DefaultIdempotencyWindow)
	setDefault(&d.DeadLetter.Retention, DefaultDeadLetterKeep)
	return d
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// retryDefaults fills the attempt budget and the backoff. An explicit initial backoff of zero cannot be told from an unset one here: the
// door turns it into a schedule of zero, which means the same.
func retryDefaults(r policy.Retry) policy.Retry {
	def := policy.DefaultRetry()
	setDefault(&r.MaxAttempts, def.MaxAttempts)
	setDefault(&r.MaxBackoff, def.MaxBackoff)
	setDefault(&r.Multiplier, def.Multiplier)
	setDefault(&r.Lifetime, def.Lifetime)
	if len(r.Schedule) == 0 {
		setDefault(&r.InitialBackoff, min(def.InitialBackoff, r.MaxBackoff))
	}
	return r
}
