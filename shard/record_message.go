package shard

func encodeMessage(m *Message) []byte {
	e := newRecord(192 + len(m.OrderingKey) + len(m.IdempotencyKey))
	e.raw(m.ID[:])
	e.text(m.Namespace)
	e.text(m.Destination)
	e.u32(m.Slot)
	e.u32(uint32(m.Lane))
	e.text(m.OrderingKey)
	e.text(m.IdempotencyKey)
	e.text(m.ContentType)
	e.text(m.TraceParent)
	e.uint(uint64(len(m.Attributes)))
	for _, a := range m.Attributes {
		e.text(a.Name)
		e.text(a.Value)
	}
	e.raw(m.PayloadHash[:])
	e.uint(m.PayloadBytes)
	e.time(m.DeliverAt)
	e.time(m.ExpireAt)
	e.time(m.AcceptedAt)
	e.uint(m.AcceptedIndex)
	e.u32(m.Current)
	e.u32(m.Kept)
	e.u32(m.TrimmedUnknown)
	return e.b
}

func decodeMessage(b []byte) (*Message, error) {
	d := openRecord("message", b)
	m := &Message{}
	d.fixed(m.ID[:])
	m.Namespace = d.text()
	m.Destination = d.text()
	m.Slot = d.u32()
	m.Lane = LaneID(d.u32())
	m.OrderingKey = d.text()
	m.IdempotencyKey = d.text()
	m.ContentType = d.text()
	m.TraceParent = d.text()
	if n := d.count(); n > 0 {
		m.Attributes = make([]Attribute, n)
		for i := range m.Attributes {
			m.Attributes[i] = Attribute{Name: d.text(), Value: d.text()}
		}
	}
	d.fixed(m.PayloadHash[:])
	m.PayloadBytes = d.uint()
	m.DeliverAt = d.time()
	m.ExpireAt = d.time()
	m.AcceptedAt = d.time()
	m.AcceptedIndex = d.uint()
	m.Current = d.u32()
	m.Kept = d.u32()
	m.TrimmedUnknown = d.u32()
	return m, d.finish()
}

func encodeGeneration(g *Generation) []byte {
	e := newRecord(160)
	e.u32(g.Number)
	e.byte(byte(g.State))
	e.byte(byte(g.Work))
	e.u32(uint32(g.Lane))
	e.u32(uint32(g.Target))
	e.uint(g.DestinationVersion)
	e.text(g.Origin)
	e.text(g.OriginID)
	e.time(g.CreatedAt)
	e.uint(g.CreatedIndex)
	e.u32(g.CreatedOrdinal)
	e.time(g.DeliverAt)
	e.time(g.ExpireAt)
	e.time(g.Deadline)
	e.bool(g.DeadlineByLifetime)
	e.bool(g.DeadlineArmed)
	e.time(g.NextAt)
	e.text(g.NextReason)
	e.u32(g.Attempts)
	e.u32(g.Counted)
	e.u32(g.UncertainRetries)
	e.u32(g.OpenUnknown)
	e.u32(g.OpenInFlight)
	e.time(g.FirstAdmittedAt)
	e.bool(g.PossibleDuplicate)
	e.bool(g.OrderAfterUnknown)
	e.bool(g.Ordered)
	e.bool(g.OrderHead)
	e.uint(g.PayloadBytes)
	e.time(g.TerminalAt)
	e.uint(g.TerminalIndex)
	e.byte(byte(g.TerminalReason))
	e.text(g.FirstErrorClass)
	e.text(g.LastErrorClass)
	e.text(g.GivenUpBy)
	return e.b
}

func decodeGeneration(b []byte) (*Generation, error) {
	d := openRecord("generation", b)
	g := &Generation{}
	g.Number = d.u32()
	g.State = GenerationState(d.byte())
	g.Work = Work(d.byte())
	g.Lane = LaneID(d.u32())
	g.Target = TargetID(d.u32())
	g.DestinationVersion = d.uint()
	g.Origin = intern(d.take(d.uint()))
	g.OriginID = d.text()
	g.CreatedAt = d.time()
	g.CreatedIndex = d.uint()
	g.CreatedOrdinal = d.u32()
	g.DeliverAt = d.time()
	g.ExpireAt = d.time()
	g.Deadline = d.time()
	g.DeadlineByLifetime = d.bool()
	g.DeadlineArmed = d.bool()
	g.NextAt = d.time()
	g.NextReason = intern(d.take(d.uint()))
	g.Attempts = d.u32()
	g.Counted = d.u32()
	g.UncertainRetries = d.u32()
	g.OpenUnknown = d.u32()
	g.OpenInFlight = d.u32()
	g.FirstAdmittedAt = d.time()
	g.PossibleDuplicate = d.bool()
	g.OrderAfterUnknown = d.bool()
	g.Ordered = d.bool()
	g.OrderHead = d.bool()
	g.PayloadBytes = d.uint()
	g.TerminalAt = d.time()
	g.TerminalIndex = d.uint()
	g.TerminalReason = TerminalReason(d.byte())
	g.FirstErrorClass = d.text()
	g.LastErrorClass = d.text()
	g.GivenUpBy = d.text()
	if g.State == StateUnspecified || g.State > StateSuperseded || g.Work > WorkOperatorRetry || int(g.TerminalReason) >= len(reasonNames) {
		d.fail("state %d, work %d or reason %d is not known", g.State, g.Work, g.TerminalReason)
	}
	return g, d.finish()
}

// intern saves an allocation for the words that nearly every record holds.
func intern(b []byte) string {
	switch string(b) {
	case OriginSubmit:
		return OriginSubmit
	case nextSubmitted:
		return nextSubmitted
	}
	return string(b)
}
