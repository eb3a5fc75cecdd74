package logcodec_test

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
	logv1 "github.com/sealane/sealane/api/gen/sealane/log/v1"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
	"github.com/sealane/sealane/shard/logcodec"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"
)

var sampleID = shard.NewMessageID(0x0102030405060708, 0x0a0b, 0x0c0d0e0f1011, [10]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10})

func hashFrom(first byte) (h [32]byte) {
	for i := range h {
		h[i] = first + byte(i)
	}
	return h
}

func sampleEvidence() shard.Evidence {
	return shard.Evidence{Rule: "HTTP_H4", Statement: "RECEIVER_STATEMENT", ErrorClass: "HTTP_500", Detail: "détail", Status: 500, RemoteAddr: "192.0.2.1:443", BytesWritten: 99, At: -100}
}

// samples has one command of every kind, with every field set.
func samples() []shard.Command {
	return []shard.Command{
		&shard.Submit{
			ID: sampleID, Namespace: "ns", Destination: "billing", Slot: 1, OrderingKey: "order", IdempotencyKey: "idem", ContentType: "text/plain", TraceParent: "00-trace",
			Attributes: []shard.Attribute{{Name: "a", Value: "1"}, {Name: "b", Value: "2"}}, Payload: []byte("payload"), PayloadHash: hashFrom(1), DeliverAt: 2, ExpireAt: 3, SubmitBy: 4,
		},
		&shard.Cancel{ID: sampleID, Generation: 2, Reason: "not wanted"},
		&shard.Reschedule{ID: sampleID, Generation: 2, DeliverAt: 3, ExpireAt: 4, RequestID: "r1"},
		&shard.InstallDestination{Destination: sampleDestination()},
		&shard.Admit{ID: sampleID, Generation: 2, Attempt: 3, RequestHash: hashFrom(4)},
		&shard.RecordOutcome{ID: sampleID, Generation: 2, Attempt: 3, Outcome: shard.Outcome{
			SideEffect: policy.NotPublished, Disposition: policy.LaneThrottled, RetryAfter: 4 * time.Second, HasRetryAfter: true, Evidence: sampleEvidence(),
		}},
		&shard.AttachEvidence{ID: sampleID, Generation: 2, Attempt: 3, SideEffect: policy.Published, Evidence: sampleEvidence(), Override: true, Actor: "ada", Reason: "seen"},
		&shard.Expire{ID: sampleID, Generation: 2},
		&shard.LaneEvent{Lane: 1, Target: 2, Event: shard.LaneTrialOverdue, ErrorClass: "DIAL", Detail: "refused"},
		&shard.ControlStep{
			OperationID: "op-1", Hash: hashFrom(5), Actor: "ada", Reason: "test", Action: shard.ActionResolve, Namespace: "ns", Destination: "billing", Slot: 6, ID: sampleID,
			Generation: 7, Attempt: 8, Verdict: shard.ResolveDeadLetter, Evidence: "seen in their log",
		},
		&shard.Trim{Lane: 1, State: shard.StateExpired, Before: 2, Max: 3},
		&shard.Tick{},
	}
}

func sampleDestination() shard.Destination {
	return shard.Destination{
		Namespace: "ns", Name: "billing", Version: 1, Adapter: "http", Target: []byte(`{"url":"x"}`), TargetKey: "https://one", Timeout: 2 * time.Second,
		Retry:       policy.Retry{MaxAttempts: 3, InitialBackoff: 4, MaxBackoff: 5, Multiplier: 6, Jitter: policy.JitterEqual, Schedule: []time.Duration{7, 8}, Lifetime: 9},
		Uncertainty: policy.Uncertainty{OnUncertain: policy.UncertainRetry, MaxRetries: 10, ReceiverDedupWindow: 11, AcceptDuplicates: true, WhenExhausted: policy.ExhaustedDeadLetter},
		Spread:      12, Limits: shard.LaneLimits{MaxInFlight: 13, RatePerSecond: 14, MaxPending: 15, MaxPendingBytes: 16, MaxBytesInFly: 17},
		Circuit:   policy.Circuit{FailureThreshold: 18, OpenFor: 19, MaxOpenFor: 20, HalfOpenSuccesses: 21, TrialTimeout: 22},
		Retention: 23, DeadLetterRetention: 24, IdempotencyWindow: 25, ExportTo: "archive", Deleted: true,
	}
}

func kindName(c any) string {
	_, name, _ := strings.Cut(fmt.Sprintf("%T", c), ".")
	return name
}

func mustAppend(t testing.TB, c shard.Command) []byte {
	t.Helper()
	b, err := logcodec.Append(nil, c)
	if err != nil {
		t.Fatalf("%T: %v", c, err)
	}
	return b
}

// TestSamplesAreFull: the samples leave out no kind and no field, so that what is tried on them is tried on everything.
func TestSamplesAreFull(t *testing.T) {
	seen := map[shard.Kind]bool{shard.KindExportAdmit: true, shard.KindExportOutcome: true}
	for _, c := range samples() {
		seen[c.Kind()] = true
		v := reflect.ValueOf(c).Elem()
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("the sample of %T leaves out %s", c, v.Type().Field(i).Name)
			}
		}
	}
	for k := shard.KindSubmit; k <= shard.KindTick; k++ {
		if !seen[k] {
			t.Errorf("there is no sample of kind %d", k)
		}
	}
}

// TestKindNumbers: the field numbers of the log's schema are the kinds of the commands.
func TestKindNumbers(t *testing.T) {
	fields := (&logv1.Command{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	names := map[protoreflect.FieldNumber]string{}
	for i := range fields.Len() {
		names[fields.Get(i).Number()] = strings.ReplaceAll(string(fields.Get(i).Name()), "_", "")
	}
	for _, c := range append(samples(), &shard.ExportAdmit{}, &shard.ExportOutcome{}) {
		if got := names[protoreflect.FieldNumber(c.Kind())]; got != strings.ToLower(kindName(c)) {
			t.Errorf("kind %d is %T in package shard and %q in the log", c.Kind(), c, got)
		}
	}
	if len(names) != int(shard.KindTick) {
		t.Errorf("the log has %d kinds", len(names))
	}
}

// TestEnumNumbers: numbers mean the same in the log as in the packages that own them.
func TestEnumNumbers(t *testing.T) {
	check := func(got protoreflect.Enum, want string) {
		t.Helper()
		v := got.Descriptor().Values().ByNumber(got.Number())
		if v == nil || string(v.Name()) != want {
			t.Errorf("%s %d is %v in the log, want %s", got.Descriptor().Name(), got.Number(), v, want)
		}
	}
	for s := policy.Published; s <= policy.Unknown; s++ {
		check(logv1.SideEffect(s), "SIDE_EFFECT_"+s.String())
	}
	for d := policy.OK; d <= policy.AdapterBug; d++ {
		check(logv1.Disposition(d), "DISPOSITION_"+d.String())
	}
	for s := shard.StateScheduled; s <= shard.StateSuperseded; s++ {
		check(logv1.GenerationState(s), "GENERATION_STATE_"+s.String())
	}
	check(logv1.Jitter(policy.JitterFull), "JITTER_FULL")
	check(logv1.Jitter(policy.JitterEqual), "JITTER_EQUAL")
	check(logv1.Jitter(policy.JitterNone), "JITTER_NONE")
	check(logv1.OnUncertain(policy.UncertainHold), "ON_UNCERTAIN_HOLD")
	check(logv1.OnUncertain(policy.UncertainRetry), "ON_UNCERTAIN_RETRY")
	check(logv1.WhenExhausted(policy.ExhaustedHold), "WHEN_EXHAUSTED_HOLD")
	check(logv1.WhenExhausted(policy.ExhaustedDeadLetter), "WHEN_EXHAUSTED_DEAD_LETTER")
	check(logv1.LaneEventKind(shard.LaneConnectFailed), "LANE_EVENT_KIND_CONNECT_FAILED")
	check(logv1.LaneEventKind(shard.LaneReadyToTry), "LANE_EVENT_KIND_READY_TO_TRY")
	check(logv1.LaneEventKind(shard.LaneTrialOverdue), "LANE_EVENT_KIND_TRIAL_OVERDUE")
	check(logv1.ControlAction(shard.ActionPauseLane), "CONTROL_ACTION_PAUSE_LANE")
	check(logv1.ControlAction(shard.ActionResumeLane), "CONTROL_ACTION_RESUME_LANE")
	check(logv1.ControlAction(shard.ActionResolve), "CONTROL_ACTION_RESOLVE")
	check(logv1.ControlAction(shard.ActionResetCircuit), "CONTROL_ACTION_RESET_CIRCUIT")
	check(logv1.ResolveVerdict(shard.ResolvePublished), "RESOLVE_VERDICT_PUBLISHED")
	check(logv1.ResolveVerdict(shard.ResolveNotPublished), "RESOLVE_VERDICT_NOT_PUBLISHED")
	check(logv1.ResolveVerdict(shard.ResolveRetry), "RESOLVE_VERDICT_RETRY")
	check(logv1.ResolveVerdict(shard.ResolveDeadLetter), "RESOLVE_VERDICT_DEAD_LETTER")
}

// TestRoundTrip: any command of any kind comes back as it was.
func TestRoundTrip(t *testing.T) {
	for kind, draw := range generators() {
		t.Run(kind, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				c := draw(t)
				b, err := logcodec.Append([]byte("before"), c)
				if err != nil || !bytes.HasPrefix(b, []byte("before")) {
					t.Fatalf("%v: %x", err, b)
				}
				got, err := logcodec.Decode(b[len("before"):])
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(got, c) {
					t.Fatalf("got  %+v\nwant %+v", got, c)
				}
			})
		})
	}
}

// generators draw commands whose fields hold anything that the type allows, within the numbers that this build knows.
func generators() map[string]func(t *rapid.T) shard.Command {
	return map[string]func(t *rapid.T) shard.Command{
		"submit": func(t *rapid.T) shard.Command {
			c := rapid.Make[shard.Submit]().Draw(t, "command")
			c.ID = drawID(t)
			if len(c.Attributes) == 0 {
				c.Attributes = nil
			}
			if len(c.Payload) == 0 {
				c.Payload = nil
			}
			return &c
		},
		"cancel": func(t *rapid.T) shard.Command {
			c := rapid.Make[shard.Cancel]().Draw(t, "command")
			c.ID = drawID(t)
			return &c
		},
		"reschedule": func(t *rapid.T) shard.Command {
			c := rapid.Make[shard.Reschedule]().Draw(t, "command")
			c.ID = drawID(t)
			return &c
		},
		"install": func(t *rapid.T) shard.Command {
			c := rapid.Make[shard.InstallDestination]().Draw(t, "command")
			d := &c.Destination
			d.Retry.Jitter %= 3
			d.Uncertainty.OnUncertain %= 2
			d.Uncertainty.WhenExhausted %= 2
			if len(d.Target) == 0 {
				d.Target = nil
			}
			if len(d.Retry.Schedule) == 0 {
				d.Retry.Schedule = nil
			}
			return &c
		},
		"admit": func(t *rapid.T) shard.Command {
			c := rapid.Make[shard.Admit]().Draw(t, "command")
			c.ID = drawID(t)
			return &c
		},
		"outcome": func(t *rapid.T) shard.Command {
			c := rapid.Make[shard.RecordOutcome]().Draw(t, "command")
			c.ID = drawID(t)
			c.Outcome.SideEffect %= 4
			c.Outcome.Disposition %= 8
			return &c
		},
		"evidence": func(t *rapid.T) shard.Command {
			c := rapid.Make[shard.AttachEvidence]().Draw(t, "command")
			c.ID = drawID(t)
			c.SideEffect %= 4
			return &c
		},
		"expire": func(t *rapid.T) shard.Command {
			c := rapid.Make[shard.Expire]().Draw(t, "command")
			c.ID = drawID(t)
			return &c
		},
		"event": func(t *rapid.T) shard.Command {
			c := rapid.Make[shard.LaneEvent]().Draw(t, "command")
			c.Event %= 4
			return &c
		},
		"control": func(t *rapid.T) shard.Command {
			c := rapid.Make[shard.ControlStep]().Draw(t, "command")
			c.Action %= 5
			c.Verdict %= 5
			c.ID = shard.MessageID{}
			if rapid.Bool().Draw(t, "resolve") {
				c.ID = drawID(t)
			}
			return &c
		},
		"trim": func(t *rapid.T) shard.Command {
			c := rapid.Make[shard.Trim]().Draw(t, "command")
			c.State %= 10
			return &c
		},
		"tick": func(*rapid.T) shard.Command { return &shard.Tick{} },
	}
}

func drawID(t *rapid.T) shard.MessageID {
	var random [10]byte
	copy(random[:], rapid.SliceOfN(rapid.Byte(), 10, 10).Draw(t, "random"))
	return shard.NewMessageID(rapid.Uint64().Draw(t, "incarnation"), rapid.Uint16().Draw(t, "shard"), rapid.Int64Range(0, 1<<48-1).Draw(t, "millis"), random)
}

// TestNotEncoded: what the log cannot hold is refused before it gets there.
func TestNotEncoded(t *testing.T) {
	for _, c := range []shard.Command{&shard.ExportAdmit{}, &shard.ExportOutcome{}, nil} {
		if b, err := logcodec.Append(nil, c); !errors.Is(err, logcodec.ErrUnknown) || b != nil {
			t.Errorf("%T: %x %v", c, b, err)
		}
	}
	if _, err := logcodec.Append(nil, &shard.Cancel{ID: sampleID, Reason: "\xff"}); err == nil {
		t.Error("a text that is not UTF-8 was encoded")
	}
}

// TestDecodeShares: the result holds no part of the input, which the caller may reuse.
func TestDecodeShares(t *testing.T) {
	for _, c := range samples() {
		b := mustAppend(t, c)
		got, err := logcodec.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		for i := range b {
			b[i] = 0xee
		}
		if !reflect.DeepEqual(got, c) {
			t.Errorf("%T changed with its bytes", c)
		}
	}
}

// TestMalformed: bytes that are no command at all, and fixed parts of another length.
func TestMalformed(t *testing.T) {
	for name, m := range map[string]*logv1.Command{
		"id missing":       {Kind: &logv1.Command_Cancel{Cancel: &logv1.Cancel{}}},
		"id damaged":       {Kind: &logv1.Command_Expire{Expire: &logv1.Expire{Id: bytes.Repeat([]byte{1}, 30)}}},
		"id short":         {Kind: &logv1.Command_Reschedule{Reschedule: &logv1.Reschedule{Id: sampleID[:29]}}},
		"submit's hash":    {Kind: &logv1.Command_Submit{Submit: &logv1.Submit{Id: sampleID[:], PayloadHash: []byte{1}}}},
		"admission's hash": {Kind: &logv1.Command_Admit{Admit: &logv1.Admit{Id: sampleID[:]}}},
		"admission's id":   {Kind: &logv1.Command_Admit{Admit: &logv1.Admit{RequestHash: make([]byte, 32)}}},
		"outcome's id":     {Kind: &logv1.Command_RecordOutcome{RecordOutcome: &logv1.RecordOutcome{}}},
		"evidence's id":    {Kind: &logv1.Command_AttachEvidence{AttachEvidence: &logv1.AttachEvidence{}}},
		"control's hash":   {Kind: &logv1.Command_ControlStep{ControlStep: &logv1.ControlStep{}}},
		"control's id":     {Kind: &logv1.Command_ControlStep{ControlStep: &logv1.ControlStep{Hash: make([]byte, 32), Id: []byte{1}}}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := logcodec.Decode(b); !errors.Is(err, logcodec.ErrMalformed) {
			t.Errorf("%s: %+v %v", name, c, err)
		}
	}
	if _, err := logcodec.Decode([]byte{0xff}); !errors.Is(err, logcodec.ErrMalformed) {
		t.Errorf("no protobuf at all: %v", err)
	}
	if _, err := logcodec.Decode(nil); !errors.Is(err, logcodec.ErrUnknown) {
		t.Errorf("an empty command: %v", err)
	}
}

// TestUnknown: a field or a number that this build does not know, anywhere in any command, stops it: it is never skipped (DESIGN 3).
func TestUnknown(t *testing.T) {
	for _, c := range samples() {
		tryUnknown(t, kindName(c), mustAppend(t, c), &logv1.Command{}, func(b []byte) error {
			_, err := logcodec.Decode(b)
			return err
		})
	}
	for name, m := range map[string]*logv1.Command{
		"export admission": {Kind: &logv1.Command_ExportAdmit{ExportAdmit: &logv1.ExportAdmit{}}},
		"export outcome":   {Kind: &logv1.Command_ExportOutcome{ExportOutcome: &logv1.ExportOutcome{}}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := logcodec.Decode(b); !errors.Is(err, logcodec.ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// tryUnknown adds an unknown field to each message inside, and sets each enumeration to numbers that are not known, one at a time.
func tryUnknown(t *testing.T, name string, b []byte, empty proto.Message, decode func([]byte) error) {
	t.Helper()
	if err := proto.Unmarshal(b, empty); err != nil {
		t.Fatal(err)
	}
	try := func(where string) {
		t.Helper()
		changed, err := proto.Marshal(empty)
		if err != nil {
			t.Fatal(err)
		}
		if err := decode(changed); !errors.Is(err, logcodec.ErrUnknown) {
			t.Errorf("%s: %s: %v", name, where, err)
		}
	}
	walk(empty.ProtoReflect(), func(m protoreflect.Message) {
		m.SetUnknown([]byte{0xf8, 0xff, 0x03, 0x01}) // field 8191, varint 1
		try(fmt.Sprintf("a field of %s", m.Descriptor().Name()))
		m.SetUnknown(nil)
		fields := m.Descriptor().Fields()
		for i := range fields.Len() {
			f := fields.Get(i)
			if f.Kind() != protoreflect.EnumKind || f.IsList() {
				continue
			}
			old := m.Get(f)
			for _, n := range []protoreflect.EnumNumber{77, 256, 257, -1} {
				m.Set(f, protoreflect.ValueOfEnum(n))
				try(fmt.Sprintf("%s %d", f.FullName(), n))
			}
			m.Set(f, old)
		}
	})
	if err := decode(b); err != nil {
		t.Errorf("%s as it was: %v", name, err)
	}
}

// walk visits a message and every message inside it.
func walk(m protoreflect.Message, visit func(protoreflect.Message)) {
	visit(m)
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				walk(v.List().Get(i).Message(), visit)
			}
		default:
			walk(v.Message(), visit)
		}
		return true
	})
}

// FuzzDecode: arbitrary bytes give a command or one of the two errors; what decodes survives another round.
func FuzzDecode(f *testing.F) {
	for _, c := range samples() {
		b := mustAppend(f, c)
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := logcodec.Decode(b)
		if err != nil {
			if !errors.Is(err, logcodec.ErrUnknown) && !errors.Is(err, logcodec.ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		again, err := logcodec.Decode(mustAppend(t, c))
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Fatalf("%v\n%+v\n%+v", err, c, again)
		}
	})
}

// TestGoldenCommands pins the bytes of one command of every kind. The log on disk holds them: a difference means that it can no longer be read.
func TestGoldenCommands(t *testing.T) {
	byName := map[string][]byte{}
	for _, c := range samples() {
		byName[kindName(c)] = mustAppend(t, c)
	}
	for _, c := range catalogSamples() {
		byName[kindName(c)] = mustAppendCatalog(t, c)
	}
	datadriven.RunTest(t, "testdata/golden", func(t *testing.T, d *datadriven.TestData) string {
		b, ok := byName[d.Cmd]
		if !ok {
			d.Fatalf(t, "there is no %q", d.Cmd)
		}
		delete(byName, d.Cmd)
		var out strings.Builder
		for len(b) > 0 {
			n := min(48, len(b))
			fmt.Fprintln(&out, hex.EncodeToString(b[:n]))
			b = b[n:]
		}
		return out.String()
	})
	for name := range byName {
		t.Errorf("no golden bytes of %s", name)
	}
}
