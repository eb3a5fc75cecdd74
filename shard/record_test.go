package shard

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/sealane/sealane/lane"
	"github.com/sealane/sealane/policy"
	"pgregory.net/rapid"
)

// recordCodec is one kind of record, for the tests that hold for all of them.
type recordCodec struct {
	name   string
	full   any // every field set, each to another value
	random func(t *rapid.T) any
	encode func(v any) []byte
	decode func(b []byte) (any, error)
}

func codecOf[T any](name string, full *T, fix func(*T), encode func(*T) []byte, decode func([]byte) (*T, error)) recordCodec {
	return recordCodec{
		name: name, full: full,
		random: func(t *rapid.T) any {
			v := rapid.Make[T]().Draw(t, name)
			if fix != nil {
				fix(&v)
			}
			return &v
		},
		encode: func(v any) []byte { return encode(v.(*T)) },
		decode: func(b []byte) (any, error) {
			v, err := decode(b)
			return v, err
		},
	}
}

type dedupRecord struct {
	ID    MessageID
	Until policy.Time
}

// openAttemptAt is a place in the index of open attempts; the key holds what the value leaves out.
var openAttemptAt = openAttemptKey(goldenID.Local(), 2, 3)

var goldenID = NewMessageID(0x0102030405060708, 0x0a0b, 0x0c0d0e0f1011, [10]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10})

func hashFrom(first byte) (h [32]byte) {
	for i := range h {
		h[i] = first + byte(i)
	}
	return h
}

var recordCodecs = []recordCodec{
	codecOf("message", fullMessage(), fixMessage, encodeMessage, decodeMessage),
	codecOf("generation", fullGeneration(), fixGeneration, encodeGeneration, decodeGeneration),
	codecOf("attempt", fullAttempt(), fixAttempt, encodeAttempt, decodeAttempt),
	codecOf("lane", fullLane(), fixLane, encodeLane, decodeLane),
	codecOf("destination", fullDestination(), fixDestination, encodeDestination, decodeDestination),
	codecOf("dead letter", &DeadLetter{
		ID: goldenID, Generation: 2, State: StateExpired, Reason: ReasonLifetime, Lane: 3, DestinationVersion: 4, FailedAt: 5, FailedIndex: 6, Attempts: 7,
		RetryCount: 8, FirstErrorClass: "FIRST", LastErrorClass: "LAST", OpenUnknown: 9, PossibleDuplicate: true, Export: ExportNotConfigured, ReplayedAs: 10,
	}, nil, encodeDeadLetter, decodeDeadLetter),
	codecOf("meta", &ShardMeta{Clock: -1, NextLane: 2, Submitted: 300, Contradictions: 4}, nil, encodeMeta, func(b []byte) (*ShardMeta, error) {
		m, err := decodeMeta(b)
		return &m, err
	}),
	codecOf("tombstone", &Tombstone{ID: goldenID, Reason: "RETENTION", Actor: "ada", At: 5, UnknownAttempts: 6}, nil, encodeTombstone, decodeTombstone),
	codecOf("dedup", &dedupRecord{goldenID, 7}, nil, func(v *dedupRecord) []byte {
		e := newRecord(48)
		e.raw(v.ID[:])
		e.time(v.Until)
		return e.b
	}, func(b []byte) (*dedupRecord, error) {
		id, until, err := decodeDedup(b)
		return &dedupRecord{id, until}, err
	}),
	codecOf("open attempt", &OpenAttempt{
		Ref: Ref{goldenID, 2}, Attempt: 3, Lane: 4, Target: 5, Owner: Epoch{Node: "n1", Boot: 0x0102030405060708, Term: 6}, Deadline: 7, Trial: true,
		Cursor: openAttemptAt,
	}, func(o *OpenAttempt) {
		o.Ref, o.Attempt, o.Cursor = Ref{goldenID, 2}, 3, openAttemptAt
	}, encodeOpenAttempt, func(b []byte) (*OpenAttempt, error) {
		o, err := decodeOpenAttempt(openAttemptAt, b)
		return &o, err
	}),
}

func fullMessage() *Message {
	return &Message{
		ID: goldenID, Namespace: "ns", Destination: "billing", Slot: 1, Lane: 2, OrderingKey: "order", IdempotencyKey: "idem", ContentType: "text/plain",
		TraceParent: "00-trace", Attributes: []Attribute{{"a", "1"}, {"b", "2"}}, PayloadHash: hashFrom(3), PayloadBytes: 400, DeliverAt: 5, ExpireAt: 6,
		AcceptedAt: 7, AcceptedIndex: 8, Current: 9, Kept: 10, TrimmedUnknown: 11,
	}
}

func fixMessage(m *Message) {
	if len(m.Attributes) == 0 {
		m.Attributes = nil
	}
}

func fullGeneration() *Generation {
	return &Generation{
		Number: 1, State: StateUncertain, Work: WorkOperatorRetry, Lane: 2, Target: 3, DestinationVersion: 4, Origin: OriginReschedule, OriginID: "r1",
		CreatedAt: 5, CreatedIndex: 6, CreatedOrdinal: 7, DeliverAt: 8, ExpireAt: 9, Deadline: 10, DeadlineByLifetime: true, DeadlineArmed: true,
		NextAt: 11, NextReason: "OPERATOR", Attempts: 12, Counted: 13, UncertainRetries: 14, OpenUnknown: 15, OpenInFlight: 16, FirstAdmittedAt: 17,
		PossibleDuplicate: true, OrderAfterUnknown: true, Ordered: true, OrderHead: true, PayloadBytes: 18, TerminalAt: 19, TerminalIndex: 20,
		TerminalReason: ReasonOperatorGiveUp, FirstErrorClass: "FIRST", LastErrorClass: "LAST", GivenUpBy: "ada",
	}
}

func fixGeneration(g *Generation) {
	g.State = StateScheduled + g.State%StateSuperseded
	g.Work %= WorkOperatorRetry + 1
	g.TerminalReason %= ReasonReplayed + 1
}

func fullEvidence(rule string) Evidence {
	return Evidence{Rule: rule, Statement: "RECEIVER_STATEMENT", ErrorClass: "HTTP_500", Detail: "détail", Status: 500, RemoteAddr: "192.0.2.1:443", BytesWritten: 99, At: -100}
}

func fullAttempt() *Attempt {
	return &Attempt{
		Number: 1, AdmittedAt: 2, AdmittedIndex: 3, Owner: Epoch{Node: "n1", Boot: 0x0102030405060708, Term: 4}, RequestHash: hashFrom(5), Deadline: 6,
		Work: WorkUncertainRetry, Trial: true, DuplicateSafe: true, Settled: true,
		Outcome:   Outcome{SideEffect: policy.Unknown, Disposition: policy.LaneThrottled, RetryAfter: 7, HasRetryAfter: true, Evidence: fullEvidence("HTTP_H15")},
		OutcomeAt: 8, OutcomeIndex: 9, Decision: "HOLD HOLD_POLICY", NextAt: 10, SideEffect: policy.Published,
		Resolutions: []Resolution{{
			SideEffect: policy.Published, Evidence: fullEvidence("PROBE"), Override: true, Actor: "ada", Reason: "seen", OperationID: "op", At: 11, Index: 12, Effect: effectResolved,
		}},
	}
}

// fixAttempt clears what an attempt in flight does not have.
func fixAttempt(a *Attempt) {
	if !a.Settled {
		a.Outcome, a.OutcomeAt, a.OutcomeIndex, a.Decision, a.NextAt = Outcome{}, 0, 0, "", 0
	}
	if len(a.Resolutions) == 0 {
		a.Resolutions = nil
	}
}

func fullLane() *LaneRecord {
	return &LaneRecord{
		ID: 1, Namespace: "ns", Destination: "billing", Slot: 2, Gate: lane.GatePaused, GateReason: "why", GateActor: "ada", ControlVersion: 3, CreatedAt: 4,
		Targets: []TargetRecord{{ID: 1, Key: "https://one", Circuit: lane.CircuitState{
			Phase: lane.CircuitHalfOpen, ConsecutiveFailures: 5, Openings: 6, TrialSuccesses: 7, OpenUntil: 8, TrialInFlight: true, TrialDeadline: 9, RampLimit: 10,
			RampSuccesses: 11, Reason: lane.ReasonThrottled,
		}, LastError: "DIAL", LastDetail: "refused", ChangedAt: 12}, {ID: 2, Key: "https://two"}},
		Counts: LaneCounts{Scheduled: 13, InFlight: 14, Uncertain: 15, Terminal: [5]uint64{16, 17, 18, 19, 20}, OpenAttempts: 21, PendingBytes: 22},
	}
}

func fixLane(l *LaneRecord) {
	if len(l.Targets) == 0 {
		l.Targets = nil
	}
}

func fullDestination() *Destination {
	return &Destination{
		Namespace: "ns", Name: "billing", Version: 1, Adapter: "http", Target: []byte(`{"url":"x"}`), TargetKey: "https://one", Timeout: 2 * time.Second,
		Retry: policy.Retry{
			MaxAttempts: 3, InitialBackoff: 4, MaxBackoff: 5, Multiplier: 6, Jitter: policy.JitterEqual, Schedule: []time.Duration{7, 8}, Lifetime: 9,
		},
		Uncertainty: policy.Uncertainty{OnUncertain: policy.UncertainRetry, MaxRetries: 10, ReceiverDedupWindow: 11, AcceptDuplicates: true, WhenExhausted: policy.ExhaustedDeadLetter},
		Spread:      12, Limits: LaneLimits{MaxInFlight: 13, RatePerSecond: 14, MaxPending: 15, MaxPendingBytes: 16, MaxBytesInFly: 17},
		Circuit:   policy.Circuit{FailureThreshold: 18, OpenFor: 19, MaxOpenFor: 20, HalfOpenSuccesses: 21, TrialTimeout: 22},
		Retention: 23, DeadLetterRetention: 24, IdempotencyWindow: 25, ExportTo: "archive", Deleted: true,
	}
}

func fixDestination(d *Destination) {
	if len(d.Target) == 0 {
		d.Target = nil
	}
	if len(d.Retry.Schedule) == 0 {
		d.Retry.Schedule = nil
	}
}

// TestGoldenSamplesAreFull: every field of a sample is set, so that the golden bytes show where each one goes.
func TestGoldenSamplesAreFull(t *testing.T) {
	for _, c := range recordCodecs {
		v := reflect.ValueOf(c.full).Elem()
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("the sample of %q leaves out %s", c.name, v.Type().Field(i).Name)
			}
		}
	}
}

// TestRecordRoundTrip: what is encoded decodes to the same, for any values.
func TestRecordRoundTrip(t *testing.T) {
	for _, c := range recordCodecs {
		t.Run(c.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				v := c.random(t)
				got, err := c.decode(c.encode(v))
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(got, v) {
					t.Fatalf("got  %+v\nwant %+v", got, v)
				}
			})
		})
	}
}

// TestRecordDamage: a record cut short anywhere, with a byte too many, or of another version is corrupt and never something else.
func TestRecordDamage(t *testing.T) {
	for _, c := range recordCodecs {
		b := c.encode(c.full)
		for n := range len(b) {
			if _, err := c.decode(b[:n]); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s cut to %d of %d bytes: %v", c.name, n, len(b), err)
			}
		}
		if _, err := c.decode(append(bytes.Clone(b), 0)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s with a byte too many: %v", c.name, err)
		}
		other := bytes.Clone(b)
		other[0] = recordVersion + 1
		if _, err := c.decode(other); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s of version %d: %v", c.name, other[0], err)
		}
	}
}

// TestRecordBounds: a damaged count or number is refused before memory is asked for.
func TestRecordBounds(t *testing.T) {
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}
	for name, read := range map[string]func(d *decoder){
		"count": func(d *decoder) { d.count() }, "text": func(d *decoder) { _ = d.text() }, "bytes": func(d *decoder) { _ = d.bytes() },
		"u32": func(d *decoder) { d.u32() },
	} {
		d := decoder{b: bytes.Clone(huge), what: name}
		read(&d)
		if !errors.Is(d.finish(), ErrCorrupt) {
			t.Errorf("%s of 2^62: %v", name, d.finish())
		}
	}
	for name, read := range map[string]func(d *decoder){
		"uint": func(d *decoder) { d.uint() }, "int": func(d *decoder) { d.int() }, "byte": func(d *decoder) { d.byte() }, "bool": func(d *decoder) { d.bool() },
		"u64fixed": func(d *decoder) { d.u64fixed() }, "fixed": func(d *decoder) { d.fixed(make([]byte, 3)) },
	} {
		d := decoder{what: name}
		read(&d)
		if !errors.Is(d.finish(), ErrCorrupt) {
			t.Errorf("%s of nothing: %v", name, d.finish())
		}
	}
	d := decoder{b: []byte{2}, what: "flag"}
	if d.bool(); !errors.Is(d.finish(), ErrCorrupt) {
		t.Errorf("a flag of 2: %v", d.finish())
	}
}

// FuzzRecord decodes arbitrary bytes as every kind of record: no panic, and what decodes survives another round.
func FuzzRecord(f *testing.F) {
	for i, c := range recordCodecs {
		b := c.encode(c.full)
		f.Add(uint8(i), b)
		f.Add(uint8(i), b[:len(b)/2])
	}
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		c := recordCodecs[int(kind)%len(recordCodecs)]
		v, err := c.decode(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%s: %v", c.name, err)
			}
			return
		}
		again, err := c.decode(c.encode(v))
		if err != nil || !reflect.DeepEqual(again, v) {
			t.Fatalf("%s: %v\n%+v\n%+v", c.name, err, v, again)
		}
	})
}

// TestGoldenRecords pins the bytes of one record of every kind, and of every key. A difference means that old directories can no longer be
// read: add a record version instead of rewriting the file.
func TestGoldenRecords(t *testing.T) {
	used := map[string]bool{}
	datadriven.RunTest(t, "testdata/golden/records", func(t *testing.T, d *datadriven.TestData) string {
		var name string
		d.ScanArgs(t, "of", &name)
		name = strings.ReplaceAll(name, "_", " ")
		used[d.Cmd+" "+name] = true
		switch d.Cmd {
		case "record":
			for _, c := range recordCodecs {
				if c.name == name {
					return lines(c.encode(c.full))
				}
			}
		case "key":
			if k, ok := goldenKeys()[name]; ok {
				return lines(k)
			}
		}
		d.Fatalf(t, "there is no %s %q", d.Cmd, name)
		return ""
	})
	for _, c := range recordCodecs {
		if !used["record "+c.name] {
			t.Errorf("no golden bytes of record %q", c.name)
		}
	}
	kinds := map[byte]bool{}
	for name, k := range goldenKeys() {
		if !used["key "+name] {
			t.Errorf("no golden bytes of key %q", name)
		}
		kinds[k[0]] = true
	}
	for kind := keyMeta; kind <= keyIncarnation; kind++ {
		if !kinds[kind] {
			t.Errorf("no golden bytes of key kind %#x", kind)
		}
	}
}

func goldenKeys() map[string][]byte {
	m, g, id := fullMessage(), fullGeneration(), goldenID.Local()
	g.State = StateDeadLettered
	return map[string][]byte{
		"meta": metaKey(), "lane name": laneNameKey("ns", "billing", 2), "lane": laneKey(3), "destination": destinationKey("ns", "billing", 4),
		"newest": newestKey("ns", "billing"), "message": messageKey(id), "payload": payloadKey(id), "generation": generationKey(id, 5),
		"attempt": attemptKey(id, 5, 6), "dedup": dedupKey("ns", "billing", "order", "idem"), "due": dueKey(g, id), "deadline": deadlineKey(-7, id, 5),
		"open attempt": openAttemptKey(id, 5, 6), "uncertain": uncertainKey(8, id, 5, 6), "terminal": terminalKey(g, id), "dead letter": deadLetterKey(id, 5),
		"dead letter time": deadLetterTimeKey(9, id, 5), "order": orderKey(m, g), "order head": orderHeadKey(m), "operation": operationKey("op-1"),
		"tombstone": tombstoneKey(id), "lane message": laneMessageKey(3, id), "incarnation": incarnationKey(),
	}
}

func lines(b []byte) string {
	var s strings.Builder
	for len(b) > 0 {
		n := min(48, len(b))
		fmt.Fprintln(&s, hex.EncodeToString(b[:n]))
		b = b[n:]
	}
	return s.String()
}
