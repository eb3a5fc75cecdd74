package server

import (
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/policy"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// Bounds of secret references (the catalog bounds the rest).
const (
	maxEnvBytes  = 255
	maxFileBytes = 1024
)

// specReader reads a definition out of a request and notes what is wrong with its shape; the catalog checks the values.
type specReader struct{ checker }

// duration reads an optional duration. What is absent takes the default; an explicit zero is refused where it could be taken for absent.
func (r *specReader) duration(field string, d *durationpb.Duration) time.Duration {
	if d == nil {
		return 0
	}
	v := r.anyDuration(field, d)
	if v == 0 {
		r.bad(field, "must be more than 0s; leave it out for the default")
	}
	return v
}

func (r *specReader) anyDuration(field string, d *durationpb.Duration) time.Duration {
	if d.CheckValid() != nil {
		r.bad(field, "is not a valid duration")
		return 1
	}
	v := d.AsDuration()
	if v == math.MaxInt64 || v == math.MinInt64 {
		r.bad(field, "is out of range")
		return 1
	}
	return v
}

// destinationSpec converts a definition. The result has no defaults filled in.
func destinationSpec(d *sealanev1.Destination) (catalog.Destination, error) {
	r := &specReader{}
	out := catalog.Destination{
		Name: d.GetName(), Retention: r.duration("retention", d.GetRetention()),
		IdempotencyWindow: r.duration("idempotency_window", d.GetIdempotencyWindow()),
	}
	if h := d.GetHttp(); h != nil {
		out.HTTP = r.http(h)
	}
	if p := d.GetRetry(); p != nil {
		out.Retry = r.retry(p)
	}
	if u := d.GetUncertainty(); u != nil {
		out.Uncertainty, out.Probe = r.uncertainty(u)
	}
	if l := d.GetLane(); l != nil {
		out.Lane = catalog.LaneLimits{
			MaxInFlight: l.GetMaxInFlight(), RatePerSecond: l.GetRatePerSecond(), Spread: l.GetSpread(), MaxPending: l.GetMaxPending(),
			MaxPendingBytes: l.GetMaxPendingBytes(), MaxBytesInFlight: l.GetMaxBytesInFlight(),
		}
	}
	if c := d.GetCircuit(); c != nil {
		out.Circuit = policy.Circuit{
			FailureThreshold: c.GetFailureThreshold(), OpenFor: r.duration("circuit.open_for", c.GetOpenFor()),
			MaxOpenFor: r.duration("circuit.max_open_for", c.GetMaxOpenFor()), HalfOpenSuccesses: c.GetHalfOpenSuccesses(),
			TrialTimeout: r.duration("circuit.trial_timeout", c.GetTrialTimeout()),
		}
	}
	if l := d.GetDeadLetter(); l != nil {
		out.DeadLetter = catalog.DeadLetter{
			Retention: r.duration("dead_letter.retention", l.GetRetention()), Export: l.GetExport().GetDestination(),
		}
		if l.GetExport() != nil && out.DeadLetter.Export == "" {
			r.bad("dead_letter.export.destination", "is required")
		}
	}
	return out, r.err()
}

func (r *specReader) http(h *sealanev1.HttpTarget) *catalog.HTTPTarget {
	out := &catalog.HTTPTarget{URL: h.GetUrl(), Timeout: r.duration("http.timeout", h.GetTimeout()), TLSPin: h.GetTls().GetPin()}
	switch h.GetStatusVerdicts() {
	case sealanev1.StatusVerdicts_STATUS_VERDICTS_UNSPECIFIED, sealanev1.StatusVerdicts_receiver:
		out.StatusVerdicts = catalog.VerdictsReceiver
	case sealanev1.StatusVerdicts_strict:
		out.StatusVerdicts = catalog.VerdictsStrict
	default:
		r.bad("http.status_verdicts", "is %d, want receiver or strict", int32(h.GetStatusVerdicts()))
	}
	for _, name := range slices.Sorted(maps.Keys(h.GetHeaders())) {
		out.Headers = append(out.Headers, catalog.Header{Name: name, Value: h.GetHeaders()[name]})
	}
	if s := h.GetSigning().GetStandardWebhooks(); s != nil {
		if s.GetSecret() == nil {
			r.bad("http.signing.standard_webhooks.secret", "is required")
		} else {
			out.SigningSecrets = append(out.SigningSecrets, r.secret("http.signing.standard_webhooks.secret", s.GetSecret()))
		}
		if p := s.GetPreviousSecret(); p != nil {
			out.SigningSecrets = append(out.SigningSecrets, r.secret("http.signing.standard_webhooks.previous_secret", p))
		}
	}
	return out
}

func (r *specReader) secret(field string, s *sealanev1.SecretReference) catalog.SecretRef {
	ref := catalog.SecretRef{Env: s.GetEnv(), File: s.GetFile()}
	switch {
	case ref.Env != "":
		if len(ref.Env) > maxEnvBytes || !envName(ref.Env) {
			r.bad(field+".env", "must match [A-Za-z_][A-Za-z0-9_]* with at most %d bytes", maxEnvBytes)
		}
	case ref.File != "":
		if len(ref.File) > maxFileBytes || !filepath.IsAbs(ref.File) || strings.IndexFunc(ref.File, isControl) >= 0 {
			r.bad(field+".file", "must be an absolute path of at most %d bytes", maxFileBytes)
		}
	default:
		r.bad(field, "must name exactly one of env and file")
	}
	return ref
}

func envName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

func (r *specReader) retry(p *sealanev1.RetryPolicy) policy.Retry {
	out := policy.Retry{MaxAttempts: p.GetMaxAttempts(), Multiplier: p.GetMultiplier(), Lifetime: r.duration("retry.lifetime", p.GetLifetime())}
	for i, d := range p.GetSchedule() {
		out.Schedule = append(out.Schedule, r.anyDuration(scheduleField(i), d))
	}
	zeroBackoff := false
	if d := p.GetInitialBackoff(); d != nil {
		out.InitialBackoff = r.anyDuration("retry.initial_backoff", d)
		zeroBackoff = out.InitialBackoff == 0
	}
	if d := p.GetMaxBackoff(); d != nil {
		out.MaxBackoff = r.anyDuration("retry.max_backoff", d)
		if out.MaxBackoff == 0 && !zeroBackoff {
			r.bad("retry.max_backoff", "is 0s, less than initial_backoff")
		}
	}
	if zeroBackoff && len(out.Schedule) == 0 {
		out.Schedule = []time.Duration{0} // no wait at all, which the backoff cannot say since its zero means the default
	}
	switch p.GetJitter() {
	case sealanev1.Jitter_JITTER_UNSPECIFIED, sealanev1.Jitter_full:
		out.Jitter = policy.JitterFull
	case sealanev1.Jitter_equal:
		out.Jitter = policy.JitterEqual
	case sealanev1.Jitter_none:
		out.Jitter = policy.JitterNone
	default:
		r.bad("retry.jitter", "is %d, want full, equal or none", int32(p.GetJitter()))
	}
	return out
}

func (r *specReader) uncertainty(u *sealanev1.UncertaintyPolicy) (policy.Uncertainty, *catalog.Probe) {
	out := policy.Uncertainty{MaxRetries: u.GetMaxRetries(), AcceptDuplicates: u.GetAcceptDuplicates()}
	if d := u.GetReceiverDedupWindow(); d != nil {
		out.ReceiverDedupWindow = r.anyDuration("uncertainty.receiver_dedup_window", d)
	}
	switch u.GetOnUncertain() {
	case sealanev1.OnUncertain_ON_UNCERTAIN_UNSPECIFIED, sealanev1.OnUncertain_hold:
	case sealanev1.OnUncertain_retry:
		out.OnUncertain = policy.UncertainRetry
	default:
		r.bad("uncertainty.on_uncertain", "is %d, want hold or retry", int32(u.GetOnUncertain()))
	}
	switch u.GetWhenExhausted() {
	case sealanev1.WhenExhausted_WHEN_EXHAUSTED_UNSPECIFIED, sealanev1.WhenExhausted_hold:
	case sealanev1.WhenExhausted_dead_letter:
		out.WhenExhausted = policy.ExhaustedDeadLetter
	default:
		r.bad("uncertainty.when_exhausted", "is %d, want hold or dead_letter", int32(u.GetWhenExhausted()))
	}
	p := u.GetProbe()
	if p == nil {
		return out, nil
	}
	return out, &catalog.Probe{URL: p.GetUrl(), Found: p.GetFound(), Absent: p.GetAbsent(), AbsentIsAuthoritative: p.GetAbsentIsAuthoritative()}
}

// destinationOf converts a recorded version.
func destinationOf(v *catalog.Version) *sealanev1.Destination {
	d := &v.Spec
	out := &sealanev1.Destination{
		Name: d.Name, Retry: retryOf(&d.Retry), Uncertainty: uncertaintyOf(&d.Uncertainty, d.Probe),
		Lane: &sealanev1.LaneLimits{
			MaxInFlight: d.Lane.MaxInFlight, RatePerSecond: d.Lane.RatePerSecond, Spread: d.Lane.Spread, MaxPending: d.Lane.MaxPending,
			MaxPendingBytes: d.Lane.MaxPendingBytes, MaxBytesInFlight: d.Lane.MaxBytesInFlight,
		},
		Circuit: &sealanev1.CircuitPolicy{
			FailureThreshold: d.Circuit.FailureThreshold, OpenFor: durationpb.New(d.Circuit.OpenFor), MaxOpenFor: durationpb.New(d.Circuit.MaxOpenFor),
			HalfOpenSuccesses: d.Circuit.HalfOpenSuccesses, TrialTimeout: durationpb.New(d.Circuit.TrialTimeout),
		},
		DeadLetter: &sealanev1.DeadLetterPolicy{Retention: durationpb.New(d.DeadLetter.Retention)},
		Retention:  durationpb.New(d.Retention), IdempotencyWindow: durationpb.New(d.IdempotencyWindow), Version: uint32(v.Version),
		CreatedAt: timestamp(v.CreatedAt), Namespace: v.Namespace,
	}
	if d.DeadLetter.Export != "" {
		out.DeadLetter.Export = &sealanev1.DeadLetterExportPolicy{Destination: d.DeadLetter.Export}
	}
	if d.HTTP != nil {
		out.Adapter = &sealanev1.Destination_Http{Http: httpOf(d.HTTP)}
	}
	return out
}

func httpOf(h *catalog.HTTPTarget) *sealanev1.HttpTarget {
	out := &sealanev1.HttpTarget{Url: h.URL, Timeout: durationpb.New(h.Timeout), StatusVerdicts: sealanev1.StatusVerdicts_receiver}
	if h.StatusVerdicts == catalog.VerdictsStrict {
		out.StatusVerdicts = sealanev1.StatusVerdicts_strict
	}
	if len(h.Headers) > 0 {
		out.Headers = make(map[string]string, len(h.Headers))
		for _, kv := range h.Headers {
			out.Headers[kv.Name] = kv.Value
		}
	}
	if h.TLSPin != "" {
		out.Tls = &sealanev1.HttpTls{Pin: h.TLSPin}
	}
	if len(h.SigningSecrets) > 0 {
		s := &sealanev1.StandardWebhooks{Secret: secretOf(h.SigningSecrets[0])}
		if len(h.SigningSecrets) > 1 {
			s.PreviousSecret = secretOf(h.SigningSecrets[1])
		}
		out.Signing = &sealanev1.HttpSigning{Scheme: &sealanev1.HttpSigning_StandardWebhooks{StandardWebhooks: s}}
	}
	return out
}

func secretOf(s catalog.SecretRef) *sealanev1.SecretReference {
	if s.Env != "" {
		return &sealanev1.SecretReference{Source: &sealanev1.SecretReference_Env{Env: s.Env}}
	}
	return &sealanev1.SecretReference{Source: &sealanev1.SecretReference_File{File: s.File}}
}

func retryOf(p *policy.Retry) *sealanev1.RetryPolicy {
	out := &sealanev1.RetryPolicy{
		MaxAttempts: p.MaxAttempts, Multiplier: p.Multiplier, MaxBackoff: durationpb.New(p.MaxBackoff), Lifetime: durationpb.New(p.Lifetime),
	}
	for _, d := range p.Schedule {
		out.Schedule = append(out.Schedule, durationpb.New(d))
	}
	if len(p.Schedule) == 0 {
		out.InitialBackoff = durationpb.New(p.InitialBackoff)
	}
	switch p.Jitter {
	case policy.JitterEqual:
		out.Jitter = sealanev1.Jitter_equal
	case policy.JitterNone:
		out.Jitter = sealanev1.Jitter_none
	default:
		out.Jitter = sealanev1.Jitter_full
	}
	return out
}

func uncertaintyOf(u *policy.Uncertainty, p *catalog.Probe) *sealanev1.UncertaintyPolicy {
	out := &sealanev1.UncertaintyPolicy{
		OnUncertain: sealanev1.OnUncertain_hold, MaxRetries: u.MaxRetries, AcceptDuplicates: u.AcceptDuplicates, WhenExhausted: sealanev1.WhenExhausted_hold,
	}
	if u.OnUncertain == policy.UncertainRetry {
		out.OnUncertain = sealanev1.OnUncertain_retry
	}
	if u.WhenExhausted == policy.ExhaustedDeadLetter {
		out.WhenExhausted = sealanev1.WhenExhausted_dead_letter
	}
	if u.ReceiverDedupWindow > 0 {
		out.ReceiverDedupWindow = durationpb.New(u.ReceiverDedupWindow)
	}
	if p != nil {
		out.Probe = &sealanev1.HttpProbe{Url: p.URL, Found: p.Found, Absent: p.Absent, AbsentIsAuthoritative: p.AbsentIsAuthoritative}
	}
	return out
}
