package shard

// Shape is what can be said of a command without any state: sizes. The door refuses such a command with a full answer; here it is refused
// again, before it becomes a key, because an entry that the store cannot take would stop the shard on every replica.

func (c *Submit) shape() *Rejection {
	switch {
	case len(c.Namespace) > MaxDestinationName:
		return tooLong("namespace", MaxDestinationName)
	case len(c.Destination) > MaxDestinationName:
		return tooLong("destination", MaxDestinationName)
	case len(c.OrderingKey) > MaxKeyBytes:
		return tooLong("ordering_key", MaxKeyBytes)
	case len(c.IdempotencyKey) > MaxKeyBytes:
		return tooLong("idempotency_key", MaxKeyBytes)
	case len(c.ContentType) > MaxContentTypeBytes:
		return tooLong("content_type", MaxContentTypeBytes)
	case len(c.TraceParent) > MaxTraceParentBytes:
		return tooLong("traceparent", MaxTraceParentBytes)
	case len(c.Payload) > MaxPayloadBytes:
		return tooLong("payload", MaxPayloadBytes)
	case len(c.Attributes) > MaxAttributes:
		return ErrInvalidArgument.with("attributes", "must be at most %d", MaxAttributes)
	}
	total := 0
	for _, a := range c.Attributes {
		total += len(a.Name) + len(a.Value)
	}
	if total > MaxAttributeBytes {
		return ErrInvalidArgument.with("attributes", "must be at most %d bytes together", MaxAttributeBytes)
	}
	return nil
}

func (c *Reschedule) shape() *Rejection {
	if len(c.RequestID) > MaxKeyBytes {
		return tooLong("request_id", MaxKeyBytes)
	}
	return nil
}

func (c *ControlStep) shape() *Rejection {
	switch {
	case len(c.OperationID) == 0:
		return ErrInvalidArgument.with("operation_id", "must not be empty")
	case len(c.OperationID) > MaxKeyBytes:
		return tooLong("operation_id", MaxKeyBytes)
	case len(c.Namespace) > MaxDestinationName:
		return tooLong("namespace", MaxDestinationName)
	case len(c.Destination) > MaxDestinationName:
		return tooLong("destination", MaxDestinationName)
	}
	return nil
}

func (c *InstallDestination) shape() *Rejection {
	switch {
	case len(c.Destination.Namespace) > MaxDestinationName:
		return tooLong("namespace", MaxDestinationName)
	case len(c.Destination.Name) > MaxDestinationName:
		return tooLong("name", MaxDestinationName)
	}
	return nil
}

func tooLong(field string, limit int) *Rejection {
	return ErrInvalidArgument.with(field, "must be at most %d bytes", limit)
}
