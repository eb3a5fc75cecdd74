package shard_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
	"github.com/sealane/sealane/shard/shardtest"
	"github.com/sealane/sealane/storage"
)

// meter counts what an entry writes: keys and values, as a batch of the store would hold them.
type meter struct {
	*shardtest.Mem
	written    map[string]int
	longestKey int
}

func newMeter() *meter { return &meter{Mem: shardtest.NewMem(), written: map[string]int{}} }

func (m *meter) Set(key, value []byte) error {
	m.longestKey = max(m.longestKey, len(key))
	m.written[string(key)] = len(key) + len(value)
	return m.Mem.Set(key, value)
}

func (m *meter) Get(key []byte) ([]byte, bool, error) {
	m.longestKey = max(m.longestKey, len(key))
	return m.Mem.Get(key)
}

func (m *meter) bytes() (sum int) {
	for _, n := range m.written {
		sum += n
	}
	clear(m.written)
	return sum
}

// largest is the largest submit that the limits let through.
func largest(s *shardtest.Shard) *shard.Submit {
	name := strings.Repeat("d", shard.MaxDestinationName)
	c := s.Submit(name, strings.Repeat("p", shard.MaxPayloadBytes))
	c.Namespace, c.OrderingKey, c.IdempotencyKey = name, strings.Repeat("o", shard.MaxKeyBytes), strings.Repeat("i", shard.MaxKeyBytes)
	c.ContentType, c.TraceParent = strings.Repeat("c", shard.MaxContentTypeBytes), strings.Repeat("t", shard.MaxTraceParentBytes)
	for range shard.MaxAttributes {
		c.Attributes = append(c.Attributes, shard.Attribute{Name: "a", Value: strings.Repeat("v", shard.MaxAttributeBytes/shard.MaxAttributes-1)})
	}
	return c
}

// TestLargestSubmitFits: what the limits allow is accepted, and its effects fit the store: the longest key, and the batch of one entry.
func TestLargestSubmitFits(t *testing.T) {
	st, s := newMeter(), shardtest.NewShard()
	c := largest(s)
	d := shardtest.Destination(c.Destination)
	d.Namespace = c.Namespace
	run := func(cmds ...shard.Command) []shard.Result {
		s.Index++
		r, _ := apply(t, s.Machine, st, &shard.Entry{Index: s.Index, Stamp: s.Now, Commands: cmds})
		return r
	}
	run(&shard.InstallDestination{Destination: d})
	st.bytes()
	if r := run(c); r[0].Rejected != nil {
		t.Fatalf("the largest submit is refused: %v", r[0].Rejected)
	}
	if got := st.bytes(); got > storage.MaxBatchBytes {
		t.Errorf("the largest submit writes %d bytes, a batch holds %d", got, storage.MaxBatchBytes)
	}
	op := &shard.ControlStep{OperationID: strings.Repeat("x", shard.MaxKeyBytes), Actor: strings.Repeat("a", 1<<16), Action: shard.ActionPauseLane, Namespace: c.Namespace, Destination: c.Destination}
	if r := run(op); r[0].Rejected != nil {
		t.Fatalf("the longest operation id is refused: %v", r[0].Rejected)
	}
	if st.longestKey > storage.MaxKeyBytes {
		t.Errorf("the longest key has %d bytes, the store takes %d", st.longestKey, storage.MaxKeyBytes)
	}
	if shard.MaxPayloadBytes+64<<10 > storage.MaxEntryBytes {
		t.Errorf("a log entry of %d bytes has no room for a payload of %d", storage.MaxEntryBytes, shard.MaxPayloadBytes)
	}
}

// TestFullEntryFits: an entry of MaxEntryCommands small engine commands writes no more than a batch holds.
func TestFullEntryFits(t *testing.T) {
	st, s := newMeter(), shardtest.NewShard()
	run := func(cmds []shard.Command) {
		s.Index++
		apply(t, s.Machine, st, &shard.Entry{Index: s.Index, Stamp: s.Now, Commands: cmds})
	}
	run([]shard.Command{&shard.InstallDestination{Destination: shardtest.Destination("d")}})
	var submits, admits, outcomes []shard.Command
	worst := shard.Evidence{
		Rule: strings.Repeat("R", 64), Statement: strings.Repeat("S", 64), ErrorClass: strings.Repeat("E", 64), Detail: strings.Repeat("d", shard.MaxDetailBytes),
		RemoteAddr: strings.Repeat("1", 64),
	}
	for range shard.MaxEntryCommands {
		c := s.Submit("d", "x")
		submits = append(submits, c)
		admits = append(admits, &shard.Admit{ID: c.ID, Generation: 1, Attempt: 1})
		outcomes = append(outcomes, &shard.RecordOutcome{ID: c.ID, Generation: 1, Attempt: 1, Outcome: shard.Outcome{
			SideEffect: policy.NotPublished, Disposition: policy.MessagePermanent, Evidence: worst,
		}})
	}
	for _, e := range []struct {
		what string
		cmds []shard.Command
	}{{"submits", submits}, {"admissions", admits}, {"outcomes", outcomes}} {
		st.bytes()
		run(e.cmds)
		if got := st.bytes(); got > storage.MaxBatchBytes {
			t.Errorf("%d %s write %d bytes, a batch holds %d", len(e.cmds), e.what, got, storage.MaxBatchBytes)
		}
	}
}

// TestLimitsRelate writes down what the limits assume of each other.
func TestLimitsRelate(t *testing.T) {
	for _, r := range []struct {
		ok  bool
		why string
	}{
		{shard.MaxTrim <= shard.MaxTrimScan, "a trim must look at least at what it removes"},
		{shard.MaxExpiry >= shard.MaxHorizon, "expire_at must be able to follow deliver_at"},
		{policy.MaxLifetime <= shard.MaxExpiry, "a lifetime is an expiry"},
		{shard.MaxAttributes <= shard.MaxAttributeBytes, "every attribute has a byte of name"},
		{shard.DefaultLaneBytes >= shard.MaxPayloadBytes, "a lane must hold its largest message"},
		{shard.DefaultLaneMessages > shard.MaxEntryCommands, "an entry must not fill a lane by itself"},
		{shard.MaxListScan > shard.MaxTrimScan, "reading may look further than removing"},
		{shard.MaxKeyBytes >= shard.IDTextLen, "a message id is a good idempotency key"},
		{shard.MaxDetailBytes >= utf8.UTFMax, "a cut text must be able to hold one character"},
		{shard.MaxResolutions >= 2, "an attempt must be able to hold an override and what contradicts it"},
		{shard.RescheduleMemory > 1, "the newest generation alone is not a memory"},
		{policy.DefaultRetry().Lifetime > policy.DefaultRetry().MaxBackoff, "the last retry must fit the lifetime"},
		{policy.Time(0).Add(shard.MaxExpiry) > 0, "the largest expiry must not overflow from a clock that starts at zero"},
		{shardtest.Start.Add(shard.MaxExpiry).Add(policy.MaxLifetime) < policy.MaxTime, "times a year ahead must not saturate today"},
	} {
		if !r.ok {
			t.Error(r.why)
		}
	}
}

// TestShape: each bound is exact, the rejection names the field and the limit, and nothing is stored.
func TestShape(t *testing.T) {
	s := shardtest.NewShard()
	x := func(n int) string { return strings.Repeat("x", n) }
	submit := func(change func(*shard.Submit)) shard.Command {
		c := s.Submit("d", "x")
		change(c)
		c.PayloadHash = sha256.Sum256(c.Payload)
		return c
	}
	attributes := func(n, size int) []shard.Attribute {
		a := make([]shard.Attribute, n)
		for i := range a {
			a[i].Name = x(size)
		}
		return a
	}
	for _, c := range []struct {
		field string
		limit int // what the text must name
		over  shard.Command
		at    shard.Command
	}{
		{"namespace", 63, submit(func(c *shard.Submit) { c.Namespace = x(64) }), submit(func(c *shard.Submit) { c.Namespace = x(63) })},
		{"destination", 63, submit(func(c *shard.Submit) { c.Destination = x(64) }), submit(func(c *shard.Submit) { c.Destination = x(63) })},
		{"ordering_key", 255, submit(func(c *shard.Submit) { c.OrderingKey = x(256) }), submit(func(c *shard.Submit) { c.OrderingKey = x(255) })},
		{"idempotency_key", 255, submit(func(c *shard.Submit) { c.IdempotencyKey = x(256) }), submit(func(c *shard.Submit) { c.IdempotencyKey = x(255) })},
		{"content_type", 255, submit(func(c *shard.Submit) { c.ContentType = x(256) }), submit(func(c *shard.Submit) { c.ContentType = x(255) })},
		{"traceparent", 255, submit(func(c *shard.Submit) { c.TraceParent = x(256) }), submit(func(c *shard.Submit) { c.TraceParent = x(255) })},
		{"payload", 16 << 20, submit(func(c *shard.Submit) { c.Payload = bytes.Repeat([]byte("x"), 16<<20+1) }), submit(func(c *shard.Submit) { c.Payload = bytes.Repeat([]byte("x"), 16<<20) })},
		{"attributes", 64, submit(func(c *shard.Submit) { c.Attributes = attributes(65, 1) }), submit(func(c *shard.Submit) { c.Attributes = attributes(64, 1) })},
		{"attributes", 8192, submit(func(c *shard.Submit) { c.Attributes = attributes(1, 8193) }), submit(func(c *shard.Submit) { c.Attributes = attributes(1, 8192) })},
		{"request_id", 255, &shard.Reschedule{RequestID: x(256)}, &shard.Reschedule{RequestID: x(255)}},
		{"operation_id", 255, &shard.ControlStep{OperationID: x(256), Action: shard.ActionPauseLane}, &shard.ControlStep{OperationID: x(255), Action: shard.ActionPauseLane}},
		{"operation_id", 0, &shard.ControlStep{Action: shard.ActionPauseLane}, &shard.ControlStep{OperationID: "x", Action: shard.ActionPauseLane}},
		{"namespace", 63, &shard.ControlStep{OperationID: "o", Namespace: x(64), Action: shard.ActionPauseLane}, &shard.ControlStep{OperationID: "o", Namespace: x(63), Action: shard.ActionPauseLane}},
		{"destination", 63, &shard.ControlStep{OperationID: "o", Destination: x(64), Action: shard.ActionPauseLane}, &shard.ControlStep{OperationID: "o", Destination: x(63), Action: shard.ActionPauseLane}},
		{"namespace", 63, &shard.InstallDestination{Destination: shard.Destination{Namespace: x(64)}}, &shard.InstallDestination{Destination: shard.Destination{Namespace: x(63)}}},
		{"name", 63, &shard.InstallDestination{Destination: shard.Destination{Name: x(64)}}, &shard.InstallDestination{Destination: shard.Destination{Name: x(63)}}},
	} {
		trial := s.Clone()
		before := trial.State.Clone()
		results, _ := apply(t, trial.Machine, trial.State, &shard.Entry{Index: 1, Commands: []shard.Command{c.over}})
		rej := results[0].Rejected
		if !errors.Is(rej, shard.ErrInvalidArgument) || rej.Field != c.field {
			t.Errorf("%T over the limit of %s: %v", c.over, c.field, rej)
			continue
		}
		if c.limit > 0 && !strings.Contains(rej.Detail, strconv.Itoa(c.limit)) {
			t.Errorf("the refusal does not name the limit %d: %s", c.limit, rej.Detail)
		}
		if n := trial.State.Len() - before.Len(); n > 2 { // the clock, and whose state it is
			t.Errorf("a refused %T left %d keys", c.over, n)
		}
		trial = s.Clone()
		results, _ = apply(t, trial.Machine, trial.State, &shard.Entry{Index: 1, Commands: []shard.Command{c.at}})
		if errors.Is(results[0].Err(), shard.ErrInvalidArgument) {
			t.Errorf("%T at the limit of %s is refused: %v", c.at, c.field, results[0].Rejected)
		}
	}
}

// TestWindowBounds: deliver_at and expire_at, to the nanosecond (R168).
func TestWindowBounds(t *testing.T) {
	now := shardtest.Start
	for _, c := range []struct {
		deliver, expire policy.Time
		field           string // "" where it is accepted
	}{
		{0, 0, ""}, {now - 1, 0, ""}, {-1, 0, ""}, {now.Add(shard.MaxHorizon), 0, ""}, {now.Add(shard.MaxHorizon) + 1, 0, "deliver_at"}, {policy.MaxTime, 0, "deliver_at"},
		{0, now, "expire_at"}, {0, now + 1, ""}, {now.Add(time.Hour), now.Add(time.Hour), "expire_at"}, {now.Add(time.Hour), now.Add(time.Hour) + 1, ""},
		{0, now.Add(shard.MaxExpiry), ""}, {0, now.Add(shard.MaxExpiry) + 1, "expire_at"}, {0, -1, "expire_at"}, {0, policy.MaxTime, "expire_at"},
	} {
		s := shardtest.NewShard()
		if _, _, err := s.Apply(&shard.InstallDestination{Destination: shardtest.Destination("d")}); err != nil {
			t.Fatal(err)
		}
		cmd := s.Submit("d", "x")
		cmd.DeliverAt, cmd.ExpireAt = c.deliver, c.expire
		results, _, err := s.Apply(cmd)
		if err != nil {
			t.Fatal(err)
		}
		switch rej := results[0].Rejected; {
		case c.field == "" && rej != nil:
			t.Errorf("deliver %d expire %d: %v", c.deliver-now, c.expire-now, rej)
		case c.field != "" && (!errors.Is(rej, shard.ErrDeliveryWindow) || rej.Field != c.field):
			t.Errorf("deliver %d expire %d: %v, want a refusal of %s", c.deliver-now, c.expire-now, rej, c.field)
		}
	}
}

// TestTrimBounds: one Trim removes at most MaxTrim, whatever it is asked for.
func TestTrimBounds(t *testing.T) {
	s := shardtest.NewShard()
	many(t, s, shard.MaxTrim+10)
	l := lanes(t, s.State)[0]
	for _, c := range []struct{ max, removed uint32 }{{0, 0}, {3, 3}, {1<<32 - 1, shard.MaxTrim}, {100, 7}} {
		results, _, err := s.Apply(&shard.Trim{Lane: l.ID, State: shard.StateExpired, Before: s.Now, Max: c.max})
		if err != nil || results[0].Rejected != nil || results[0].Removed != c.removed {
			t.Errorf("trim of up to %d removed %d, want %d: %v %v", c.max, results[0].Removed, c.removed, results[0].Rejected, err)
		}
	}
}

// TestDetailIsCut: a text for people is cut, never refused, and never in the middle of a character.
func TestDetailIsCut(t *testing.T) {
	for _, text := range []string{"", "short", strings.Repeat("x", shard.MaxDetailBytes), strings.Repeat("x", 1000), "x" + strings.Repeat("ä", 200), "xy" + strings.Repeat("€", 100), strings.Repeat("🚀", 100)} {
		s := shardtest.NewScript()
		for _, line := range []string{"install d", "submit a", "admit a"} {
			if _, err := s.Do(line); err != nil {
				t.Fatal(err)
			}
		}
		o := shard.Outcome{SideEffect: policy.Unknown, Disposition: policy.MessageRetriable, Evidence: shard.Evidence{Detail: text}}
		if _, _, err := s.Apply(&shard.RecordOutcome{ID: s.ID("a"), Generation: 1, Attempt: 1, Outcome: o}); err != nil {
			t.Fatal(err)
		}
		v, err := shard.GetMessage(s.State, s.ID("a"), false)
		if err != nil {
			t.Fatal(err)
		}
		got := v.Generations[0].Attempts[0].Outcome.Evidence.Detail
		if len(got) > shard.MaxDetailBytes || !strings.HasPrefix(text, got) || !utf8.ValidString(got) || len(got) < min(len(text), shard.MaxDetailBytes-utf8.UTFMax+1) {
			t.Errorf("%d bytes were kept as %d: %q", len(text), len(got), got)
		}
	}
}

// TestResolutionBound: repetitions do not grow an attempt's record past MaxResolutions, and what decides is kept even then.
func TestResolutionBound(t *testing.T) {
	s := shardtest.NewScript()
	for _, line := range []string{"install d", "submit a", "admit a", "outcome a is=unknown"} {
		if out, err := s.Do(line); err != nil || !strings.HasPrefix(out, "ok") {
			t.Fatalf("%q: %s%v", line, out, err)
		}
	}
	id := s.ID("a")
	retry := func(op string) {
		t.Helper()
		results, _, err := s.Apply(&shard.ControlStep{OperationID: op, Action: shard.ActionResolve, Namespace: "default", ID: id, Attempt: 1, Verdict: shard.ResolveRetry, Actor: op})
		if err != nil || results[0].Rejected != nil {
			t.Fatalf("%v %v", results, err)
		}
	}
	for i := range shard.MaxResolutions + 5 {
		retry("op-" + string(rune('a'+i)))
	}
	evidence := func(effect policy.SideEffect, rule string) {
		t.Helper()
		results, _, err := s.Apply(&shard.AttachEvidence{ID: id, Generation: 1, Attempt: 1, SideEffect: effect, Evidence: shard.Evidence{Rule: rule}})
		if err != nil || results[0].Rejected != nil {
			t.Fatalf("%v %v", results, err)
		}
	}
	evidence(policy.NotPublished, "ABSENT")
	for i := range 5 {
		evidence(policy.NotPublished, "AGAIN_"+string(rune('a'+i)))
	}
	evidence(policy.Published, "RECEIPT")
	v, err := shard.GetMessage(s.State, id, false)
	if err != nil {
		t.Fatal(err)
	}
	a := v.Generations[0].Attempts[0]
	if len(a.Resolutions) != shard.MaxResolutions+2 {
		t.Fatalf("%d resolutions, want %d and the two that decided", len(a.Resolutions), shard.MaxResolutions)
	}
	last := a.Resolutions[shard.MaxResolutions:]
	if last[0].Evidence.Rule != "ABSENT" || last[1].Evidence.Rule != "RECEIPT" || a.SideEffect != policy.Published {
		t.Errorf("what decided was not kept: %+v", last)
	}
}
