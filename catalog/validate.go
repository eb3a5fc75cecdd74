package catalog

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sealane/sealane/policy"
)

// Bounds of a definition.
const (
	MaxNameBytes         = 63
	MaxURLBytes          = 2048
	MaxHeaders           = 64
	MaxHeaderBytes       = 8 << 10
	MaxSigningSecrets    = 2
	MaxTimeout           = 10 * time.Minute
	MaxInFlight          = 10_000
	MaxRatePerSecond     = 1_000_000
	MaxSpread            = 64
	MaxPending           = 1_000_000_000
	MaxRetention         = 366 * 24 * time.Hour
	MinIdempotencyWindow = time.Minute
)

// reserved are header names the adapter sets itself; a definition may not.
var reserved = []string{
	"webhook-id", "webhook-timestamp", "webhook-signature", "idempotency-key", "sealane-attempt", "host", "content-length", "content-type",
	"transfer-encoding", "connection", "traceparent", "te", "trailer", "upgrade", "expect", "keep-alive", "proxy-connection",
}

// Validate returns every problem of a definition with its defaults filled in, in the order of its fields. shards is the number of shards
// of the cluster, which bounds spread.
func (d Destination) Validate(shards uint32) []policy.Problem {
	v := validator{}
	v.check(ValidName(d.Name), "name", "must match [a-z0-9][a-z0-9._-]{0,62}")
	v.check(d.HTTP != nil, "http", "is required: it is the only adapter of this version")
	if d.HTTP != nil {
		v.http(d.HTTP)
	}
	v.add("", d.Retry.Validate())
	v.add("", d.Uncertainty.Validate())
	if d.HTTP != nil {
		v.add("", policy.ValidateTogether(d.Retry, d.Uncertainty, d.HTTP.Timeout))
	}
	if d.Probe != nil {
		v.url("uncertainty.probe.url", d.Probe.URL)
		v.check(len(d.Probe.Found) > 0, "uncertainty.probe.found", "needs at least one status")
	}
	v.lane(d.Lane, shards)
	v.add("", d.Circuit.Validate())
	v.between("retention", d.Retention, time.Minute, MaxRetention)
	v.between("idempotency_window", d.IdempotencyWindow, MinIdempotencyWindow, MaxRetention)
	v.between("dead_letter.retention", d.DeadLetter.Retention, time.Minute, MaxRetention)
	v.check(d.DeadLetter.Export == "" || ValidName(d.DeadLetter.Export), "dead_letter.export.destination", "must be a destination name")
	v.check(d.DeadLetter.Export == "" || d.DeadLetter.Export != d.Name, "dead_letter.export.destination", "must not be the destination itself")
	return v.problems
}

type validator struct{ problems []policy.Problem }

func (v *validator) check(ok bool, field, reason string) {
	if !ok {
		v.problems = append(v.problems, policy.Problem{Field: field, Reason: reason})
	}
}

func (v *validator) add(prefix string, ps []policy.Problem) {
	for _, p := range ps {
		p.Field = prefix + p.Field
		v.problems = append(v.problems, p)
	}
}

func (v *validator) between(field string, d, low, high time.Duration) {
	v.check(d >= low && d <= high, field, fmt.Sprintf("must be from %s to %s", low, high))
}

func (v *validator) url(field, s string) {
	v.check(len(s) <= MaxURLBytes, field, fmt.Sprintf("must be at most %d bytes", MaxURLBytes))
	u, err := url.Parse(s)
	if err != nil {
		v.check(false, field, "is not a URL")
		return
	}
	v.check(u.Scheme == "http" || u.Scheme == "https", field, "must begin with http:// or https://")
	v.check(validHost(u.Hostname()), field, "must name a host: an address, or a name of labels of 1 to 63 bytes, at most 253 together")
	v.check(validPort(u.Port()) && !strings.HasSuffix(u.Host, ":"), field, "must have a port from 1 to 65535, or none")
	v.check(u.User == nil, field, "must not hold user name or password")
	v.check(u.Fragment == "", field, "must not have a fragment")
}

func (v *validator) http(h *HTTPTarget) {
	v.url("http.url", h.URL)
	v.between("http.timeout", h.Timeout, 10*time.Millisecond, MaxTimeout)
	v.check(len(h.Headers) <= MaxHeaders, "http.headers", fmt.Sprintf("must be at most %d", MaxHeaders))
	total := 0
	seen := make([]string, 0, len(h.Headers))
	for _, kv := range h.Headers {
		total += len(kv.Name) + len(kv.Value)
		field := "http.headers." + clean(kv.Name)
		v.check(validToken(kv.Name), field, "is not a header name")
		v.check(validHeaderValue(kv.Value), field, "must have a value of printable ASCII without space around it")
		v.check(!isReserved(kv.Name), field, "is set by Sealane and may not be overridden")
		low := strings.ToLower(kv.Name)
		v.check(!slices.Contains(seen, low), field, "is given twice: header names have no case")
		seen = append(seen, low)
	}
	v.check(total <= MaxHeaderBytes, "http.headers", fmt.Sprintf("must be at most %d bytes together", MaxHeaderBytes))
	v.check(h.StatusVerdicts == VerdictsReceiver || h.StatusVerdicts == VerdictsStrict, "http.status_verdicts", "must be receiver or strict")
	v.check(h.TLSPin == "" || validPin(h.TLSPin), "http.tls.pin", "must be sha256/ and the base64 of 32 bytes")
	v.check(len(h.SigningSecrets) <= MaxSigningSecrets, "http.signing.standard_webhooks", fmt.Sprintf("must be at most %d secrets", MaxSigningSecrets))
	for _, s := range h.SigningSecrets {
		v.check((s.Env == "") != (s.File == ""), "http.signing.standard_webhooks.secret", "must name exactly one of env and file")
	}
}

func (v *validator) lane(l LaneLimits, shards uint32) {
	v.check(l.MaxInFlight >= 1 && l.MaxInFlight <= MaxInFlight, "lane.max_in_flight", fmt.Sprintf("must be from 1 to %d", MaxInFlight))
	v.check(l.RatePerSecond <= MaxRatePerSecond, "lane.rate_per_second", fmt.Sprintf("must be at most %d", MaxRatePerSecond))
	v.check(l.Spread >= 1 && l.Spread <= min(shards, MaxSpread), "lane.spread", fmt.Sprintf("must be from 1 to the number of shards, %d", min(shards, MaxSpread)))
	v.check(l.MaxPending >= 1 && l.MaxPending <= MaxPending, "lane.max_pending", fmt.Sprintf("must be from 1 to %d", MaxPending))
	v.check(l.MaxPendingBytes >= 1, "lane.max_pending_bytes", "must be at least 1")
	v.check(l.MaxBytesInFlight >= 1, "lane.max_bytes_in_flight", "must be at least 1")
	v.check(l.MaxInFlight >= l.Spread, "lane.max_in_flight", "must be at least lane.spread, it is split over the slots")
	v.check(l.RatePerSecond == 0 || l.RatePerSecond >= l.Spread, "lane.rate_per_second", "must be 0 or at least lane.spread")
}

// ValidName is the rule for destination names and namespaces (DESIGN 12).
func ValidName(s string) bool {
	if s == "" || len(s) > MaxNameBytes {
		return false
	}
	for i := range len(s) {
		c := s[i]
		plain := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !plain && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return true
}

func validToken(s string) bool {
	if s == "" {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte("()<>@,;:\\\"/[]?={}", c) >= 0 {
			return false
		}
	}
	return true
}

// validHeaderValue keeps to what every receiver reads the same: printable ASCII, and no space that a transport would drop.
func validHeaderValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c >= 0x7f {
			return false
		}
	}
	return strings.TrimSpace(s) == s
}

// validHost takes addresses and host names as DNS can hold them.
func validHost(s string) bool {
	if strings.Contains(s, ":") {
		return true // an IPv6 address: net/url has checked its brackets
	}
	s = strings.TrimSuffix(s, ".")
	if s == "" || len(s) > 253 {
		return false
	}
	for _, label := range strings.Split(s, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
	}
	return true
}

func validPort(s string) bool {
	if s == "" {
		return true
	}
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

func isReserved(name string) bool {
	low := strings.ToLower(name)
	for _, r := range reserved {
		if low == r {
			return true
		}
	}
	return strings.HasPrefix(low, "sealane-")
}

func validPin(s string) bool {
	b64, ok := strings.CutPrefix(s, "sha256/")
	if !ok {
		return false
	}
	b, err := base64.StdEncoding.DecodeString(b64)
	return err == nil && len(b) == 32
}

func clean(name string) string {
	if validToken(name) && len(name) <= 64 {
		return name
	}
	return fmt.Sprintf("%.64q", name)
}
