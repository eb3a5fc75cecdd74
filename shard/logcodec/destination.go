package logcodec

import (
	"errors"
	"time"

	logv1 "github.com/sealane/sealane/api/gen/sealane/log/v1"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

func duration(ns int64) time.Duration { return time.Duration(ns) }

func destinationToLog(d *shard.Destination) *logv1.Destination {
	return &logv1.Destination{
		Namespace: d.Namespace, Name: d.Name, Version: d.Version, Adapter: d.Adapter, Target: d.Target, TargetKey: d.TargetKey,
		Timeout: int64(d.Timeout), Retry: retryToLog(d.Retry), Uncertainty: uncertaintyToLog(d.Uncertainty), Spread: d.Spread,
		Limits: &logv1.LaneLimits{
			MaxInFlight: d.Limits.MaxInFlight, RatePerSecond: d.Limits.RatePerSecond, MaxPending: d.Limits.MaxPending,
			MaxPendingBytes: d.Limits.MaxPendingBytes, MaxBytesInFlight: d.Limits.MaxBytesInFly,
		},
		Circuit: circuitToLog(d.Circuit), Retention: int64(d.Retention), DeadLetterRetention: int64(d.DeadLetterRetention),
		IdempotencyWindow: int64(d.IdempotencyWindow), ExportTo: d.ExportTo, Deleted: d.Deleted,
	}
}

func installFromLog(m *logv1.InstallDestination) (*shard.InstallDestination, error) {
	d := m.GetDestination()
	if err := errors.Join(known(m), known(d), known(d.GetLimits()), knownPolicies(d.GetRetry(), d.GetUncertainty(), d.GetCircuit())); err != nil {
		return nil, err
	}
	l := d.GetLimits()
	return &shard.InstallDestination{Destination: shard.Destination{
		Namespace: d.GetNamespace(), Name: d.GetName(), Version: d.GetVersion(), Adapter: d.GetAdapter(), Target: d.GetTarget(),
		TargetKey: d.GetTargetKey(), Timeout: duration(d.GetTimeout()), Retry: retryFromLog(d.GetRetry()),
		Uncertainty: uncertaintyFromLog(d.GetUncertainty()), Spread: d.GetSpread(),
		Limits: shard.LaneLimits{
			MaxInFlight: l.GetMaxInFlight(), RatePerSecond: l.GetRatePerSecond(), MaxPending: l.GetMaxPending(),
			MaxPendingBytes: l.GetMaxPendingBytes(), MaxBytesInFly: l.GetMaxBytesInFlight(),
		},
		Circuit: circuitFromLog(d.GetCircuit()), Retention: duration(d.GetRetention()), DeadLetterRetention: duration(d.GetDeadLetterRetention()),
		IdempotencyWindow: duration(d.GetIdempotencyWindow()), ExportTo: d.GetExportTo(), Deleted: d.GetDeleted(),
	}}, nil
}

func retryToLog(r policy.Retry) *logv1.Retry {
	m := &logv1.Retry{
		MaxAttempts: r.MaxAttempts, InitialBackoff: int64(r.InitialBackoff), MaxBackoff: int64(r.MaxBackoff), Multiplier: r.Multiplier,
		Jitter: logv1.Jitter(r.Jitter), Lifetime: int64(r.Lifetime),
	}
	for _, s := range r.Schedule {
		m.Schedule = append(m.Schedule, int64(s))
	}
	return m
}

func retryFromLog(m *logv1.Retry) policy.Retry {
	r := policy.Retry{
		MaxAttempts: m.GetMaxAttempts(), InitialBackoff: duration(m.GetInitialBackoff()), MaxBackoff: duration(m.GetMaxBackoff()),
		Multiplier: m.GetMultiplier(), Jitter: policy.Jitter(m.GetJitter()), Lifetime: duration(m.GetLifetime()),
	}
	for _, s := range m.GetSchedule() {
		r.Schedule = append(r.Schedule, duration(s))
	}
	return r
}

func uncertaintyToLog(u policy.Uncertainty) *logv1.Uncertainty {
	return &logv1.Uncertainty{
		OnUncertain: logv1.OnUncertain(u.OnUncertain), MaxRetries: u.MaxRetries, ReceiverDedupWindow: int64(u.ReceiverDedupWindow),
		AcceptDuplicates: u.AcceptDuplicates, WhenExhausted: logv1.WhenExhausted(u.WhenExhausted),
	}
}

func uncertaintyFromLog(m *logv1.Uncertainty) policy.Uncertainty {
	return policy.Uncertainty{
		OnUncertain: policy.OnUncertain(m.GetOnUncertain()), MaxRetries: m.GetMaxRetries(), ReceiverDedupWindow: duration(m.GetReceiverDedupWindow()),
		AcceptDuplicates: m.GetAcceptDuplicates(), WhenExhausted: policy.WhenExhausted(m.GetWhenExhausted()),
	}
}

func circuitToLog(c policy.Circuit) *logv1.Circuit {
	return &logv1.Circuit{
		FailureThreshold: c.FailureThreshold, OpenFor: int64(c.OpenFor), MaxOpenFor: int64(c.MaxOpenFor),
		HalfOpenSuccesses: c.HalfOpenSuccesses, TrialTimeout: int64(c.TrialTimeout),
	}
}

func circuitFromLog(m *logv1.Circuit) policy.Circuit {
	return policy.Circuit{
		FailureThreshold: m.GetFailureThreshold(), OpenFor: duration(m.GetOpenFor()), MaxOpenFor: duration(m.GetMaxOpenFor()),
		HalfOpenSuccesses: m.GetHalfOpenSuccesses(), TrialTimeout: duration(m.GetTrialTimeout()),
	}
}
