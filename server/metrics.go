package server

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/sealane/sealane/catalog/plan"
	"github.com/sealane/sealane/lane"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/replication"
	"github.com/sealane/sealane/server/membership"
	"github.com/sealane/sealane/shard"
	"github.com/sealane/sealane/shard/host"
)

// Results of a submit, the values of label result.
const (
	resultAccepted     = "accepted"
	resultDeduplicated = "deduplicated"
	resultInvalid      = "invalid"      // refused by the door
	resultRejected     = "rejected"     // refused by the shard at apply
	resultNotAccepted  = "not_accepted" // the log did not take it
	resultMaybe        = "maybe_accepted"
)

// metrics are a node's numbers (R219). Labels are from closed sets, a shard's number, or a destination's name; never an id, a URL or a text.
type metrics struct {
	registry *prometheus.Registry

	submits       map[string]prometheus.Counter
	attempts      [4]prometheus.Counter // by policy.SideEffect
	dispositions  [8]prometheus.Counter // by policy.Disposition
	admissions    prometheus.Counter
	ended         [10]prometheus.Counter // by shard.GenerationState
	resolved      [4]prometheus.Counter  // by policy.SideEffect
	contradicted  prometheus.Counter
	transitions   map[lane.CircuitPhase]prometheus.Counter
	dueToSent     prometheus.Histogram
	claims        prometheus.Counter
	dropped       *prometheus.CounterVec
	notSent       *prometheus.CounterVec
	connectFailed *prometheus.CounterVec
	recovered     prometheus.Counter
	readErrors    prometheus.Counter
	calls         *prometheus.CounterVec

	proposalCommands prometheus.Histogram
	proposalQueued   prometheus.Histogram
	proposalTook     prometheus.Histogram
	applyTook        prometheus.Histogram
	proposalErrors   *prometheus.CounterVec
	refused          *prometheus.CounterVec
	snapshots        *prometheus.CounterVec

	steps   *prometheus.CounterVec
	filling prometheus.Gauge
}

// newMetrics makes a node's metrics in a registry of their own, so that several nodes fit one process.
func newMetrics(n *Node) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	m.register(m.registry)
	m.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), newScrape(n),
	)
	return m
}

// register makes every family. A name that is taken already is a programmer's error.
func (m *metrics) register(r prometheus.Registerer) {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "sealane_" + name, Help: help})
		r.MustRegister(c)
		return c
	}
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sealane_" + name, Help: help}, labels)
		r.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "sealane_" + name, Help: help, Buckets: buckets})
		r.MustRegister(h)
		return h
	}
	m.registerDelivery(counter, vector, histogram)

	m.proposalCommands = histogram("proposal_commands", "Commands packed into one log entry.", prometheus.ExponentialBuckets(1, 2, 10))
	m.proposalQueued = histogram("proposal_queued_seconds", "Time the oldest command of an entry had waited when it was packed.", latencyBuckets())
	m.proposalTook = histogram("proposal_seconds", "Time from queueing the oldest command of an entry to its answers.", latencyBuckets())
	m.applyTook = histogram("apply_batch_seconds", "Time to apply and commit one batch of entries to the state.", latencyBuckets())
	m.proposalErrors = vector("proposal_errors_total", "Log entries whose commands got no verdict, by certainty.", "certainty")
	m.refused = vector("proposals_refused_total", "Proposals that did not get into the queue, by class.", "class")
	m.snapshots = vector("snapshots_total", "Snapshot markers, by result.", "result")
	m.steps = vector("membership_steps_total", "Steps of the membership driver, by kind and result. Counted at the control group's leader.", "kind", "result")
	m.filling = prometheus.NewGauge(prometheus.GaugeOpts{Name: "sealane_replicas_filling", Help: "Replicas that are being brought up, at the control group's leader."})
	r.MustRegister(m.filling)
	m.calls = vector("calls_total", "Calls answered, by door, method and code.", "door", "method", "code")
	for _, class := range []replication.Class{replication.Client, replication.Engine} {
		m.refused.WithLabelValues(class.String())
	}
}

// registerDelivery makes the families of the delivery itself. Series of closed sets exist from the start, so that a rate over them is right
// from the first event on.
func (m *metrics) registerDelivery(counter func(string, string) prometheus.Counter,
	vector func(string, string, ...string) *prometheus.CounterVec, histogram func(string, string, []float64) prometheus.Histogram) {
	submits := vector("submits_total", "Submits, by result.", "result")
	m.submits = make(map[string]prometheus.Counter)
	for _, result := range []string{resultAccepted, resultDeduplicated, resultInvalid, resultRejected, resultNotAccepted, resultMaybe} {
		m.submits[result] = submits.WithLabelValues(result)
	}
	attempts := vector("attempts_total", "Attempts that got their initial outcome, by side effect. unknown is neither success nor failure.", "side_effect")
	resolved := vector("resolutions_total", "Unknown attempts that evidence or an operator decided, by side effect.", "side_effect")
	for s := policy.Published; s <= policy.Unknown; s++ {
		m.attempts[s] = attempts.WithLabelValues(lower(s.String()))
		if s != policy.Unknown {
			m.resolved[s] = resolved.WithLabelValues(lower(s.String()))
		}
	}
	dispositions := vector("attempt_dispositions_total", "Attempts that got their initial outcome, by disposition.", "disposition")
	for d := policy.OK; d <= policy.AdapterBug; d++ {
		m.dispositions[d] = dispositions.WithLabelValues(lower(d.String()))
	}
	ended := vector("generations_ended_total", "Generations that ended, by state.", "state")
	for s := shard.StateDelivered; s <= shard.StateSuperseded; s++ {
		m.ended[s] = ended.WithLabelValues(lower(s.String()))
	}
	transitions := vector("circuit_transitions_total", "Changes of a target's circuit, by the phase it went to.", "to")
	m.transitions = make(map[lane.CircuitPhase]prometheus.Counter)
	for p := lane.CircuitClosed; p <= lane.CircuitHalfOpen; p++ {
		m.transitions[p] = transitions.WithLabelValues(lower(p.String()))
	}
	m.admissions = counter("admissions_total", "Attempts admitted: the point of no return.")
	m.contradicted = counter("evidence_contradictions_total", "Evidence that contradicted an earlier decision.")
	m.dueToSent = histogram("due_to_sent_seconds", "Time from an attempt's due time until its request was handed to its connection.", latencyBuckets())
	m.claims = counter("admissions_proposed_total", "Admissions proposed to the log.")
	m.dropped = vector("claims_dropped_total", "Admissions that the log refused, by the check that failed.", "check")
	m.notSent = vector("admitted_not_sent_total", "Admitted attempts that were never sent, by cause.", "cause")
	m.connectFailed = vector("connect_failures_total", "Connections that could not be made, by class.", "class")
	m.readErrors = counter("metric_read_errors_total", "Reads for metrics that failed.")
	m.recovered = counter("recovered_unknown_total", "Attempts of an earlier process or leader that were recorded UNKNOWN.")
}

// latencyBuckets go from 50 microseconds to about 100 seconds.
func latencyBuckets() []float64 { return prometheus.ExponentialBuckets(50e-6, 2, 22) }

func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// submitted counts one submit by what became of it.
func (m *metrics) submitted(res shard.Result, err error) {
	switch {
	case err == nil && res.Rejected != nil:
		m.submits[resultRejected].Inc()
	case err == nil && res.Deduplicated:
		m.submits[resultDeduplicated].Inc()
	case err == nil:
		m.submits[resultAccepted].Inc()
	case notAccepted(err):
		m.submits[resultNotAccepted].Inc()
	default:
		m.submits[resultMaybe].Inc()
	}
}

// count is told what was applied on this node, on the apply goroutine.
func (m *metrics) count(effects []shard.Effect) {
	for i := range effects {
		e := &effects[i]
		switch e.Kind {
		case shard.EffectAdmitted:
			m.admissions.Inc()
		case shard.EffectSettled:
			if !e.First {
				inc(m.resolved[:], int(e.SideEffect))
				continue
			}
			inc(m.attempts[:], int(e.SideEffect))
			inc(m.dispositions[:], int(e.Disposition))
		case shard.EffectTerminal:
			inc(m.ended[:], int(e.State))
		case shard.EffectContradiction:
			m.contradicted.Inc()
		}
	}
}

func inc(counters []prometheus.Counter, i int) {
	if i >= 0 && i < len(counters) && counters[i] != nil {
		counters[i].Inc()
	}
}

// circuits finds changes of phase among the effects of one shard. It remembers only circuits that are not closed, so its memory is bounded
// by the targets in trouble. It belongs to the apply goroutine of its replica.
type circuits struct {
	phases map[circuitKey]lane.CircuitPhase
}

type circuitKey struct {
	lane   shard.LaneID
	target shard.TargetID
}

// observe reads the lanes whose circuits may have changed and counts the changes.
func (c *circuits) observe(m *metrics, r shard.Reader, effects []shard.Effect) {
	for i := range effects {
		e := &effects[i]
		if e.Kind != shard.EffectLane || e.Target == 0 {
			continue
		}
		rec, ok, err := shard.GetLane(r, e.Lane)
		if err != nil {
			m.readErrors.Inc() // only a number is lost: whoever needs the lane reads it again and meets the error
			continue
		}
		if ok && int(e.Target) <= len(rec.Targets) {
			c.now(m, circuitKey{e.Lane, e.Target}, rec.Targets[e.Target-1].Circuit.Phase)
		}
	}
}

func (c *circuits) now(m *metrics, k circuitKey, phase lane.CircuitPhase) {
	if c.phases[k] == phase {
		return
	}
	m.transitions[phase].Inc()
	if phase == lane.CircuitClosed {
		delete(c.phases, k)
		return
	}
	if c.phases == nil {
		c.phases = make(map[circuitKey]lane.CircuitPhase)
	}
	c.phases[k] = phase
}

// host gives the observer of one shard's host.
func (m *metrics) host() host.Observer { return hostObserver{m} }

type hostObserver struct{ m *metrics }

func (o hostObserver) Claimed(n int)             { o.m.claims.Add(float64(n)) }
func (o hostObserver) ClaimDropped(check string) { o.m.dropped.WithLabelValues(check).Inc() }

func (o hostObserver) Sent(_ host.LaneName, lag time.Duration) {
	o.m.dueToSent.Observe(max(lag, 0).Seconds())
}

func (o hostObserver) NotSent(_ host.LaneName, why host.NotSentCause) {
	o.m.notSent.WithLabelValues(lower(string(why))).Inc()
}

// Returned counts nothing: outcomes are counted when they are applied.
func (o hostObserver) Returned(host.LaneName, policy.SideEffect, policy.Disposition) {}

func (o hostObserver) ConnectFailed(_ host.LaneName, class string) {
	o.m.connectFailed.WithLabelValues(lower(class)).Inc()
}

func (o hostObserver) Recovered(n int) { o.m.recovered.Add(float64(n)) }

// replication gives the observer of one group. The numbers of all groups go into the same series.
func (m *metrics) replication(uint32) replication.Observer { return groupObserver{m} }

type groupObserver struct{ m *metrics }

func (o groupObserver) EntryProposed(commands, _ int, waited time.Duration) {
	o.m.proposalCommands.Observe(float64(commands))
	o.m.proposalQueued.Observe(waited.Seconds())
}

func (o groupObserver) EntryAnswered(_ int, took time.Duration, err error) {
	switch {
	case err == nil:
		o.m.proposalTook.Observe(took.Seconds())
	case replication.NotAccepted(err):
		o.m.proposalErrors.WithLabelValues("not_accepted").Inc()
	default:
		o.m.proposalErrors.WithLabelValues("maybe_accepted").Inc()
	}
}

func (o groupObserver) BatchApplied(_, _, _ int, took time.Duration) {
	o.m.applyTook.Observe(took.Seconds())
}

func (o groupObserver) SnapshotTaken(_ uint64, _ time.Duration, err error) {
	if err != nil {
		o.m.snapshots.WithLabelValues("failed").Inc()
		return
	}
	o.m.snapshots.WithLabelValues("taken").Inc()
}

func (o groupObserver) Refused(class replication.Class, _ error) {
	o.m.refused.WithLabelValues(class.String()).Inc()
}

// membership gives the observer of the membership driver.
func (m *metrics) membership() membership.Observer { return driverObserver{m} }

type driverObserver struct{ m *metrics }

// Round needs nothing: the cluster's numbers are read when they are scraped.
func (o driverObserver) Round(int, int, int) {}

func (o driverObserver) Step(kind plan.StepKind, err error) {
	result := "done"
	if err != nil {
		result = "failed"
	}
	o.m.steps.WithLabelValues(lower(kind.String()), result).Inc()
}

func (o driverObserver) Filling(replicas int) { o.m.filling.Set(float64(replicas)) }
