package logcodec

import (
	"errors"
	"fmt"

	logv1 "github.com/sealane/sealane/api/gen/sealane/log/v1"
	"github.com/sealane/sealane/shard"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// ErrUnknown is returned for bytes that hold a command, a field or a value that this build does not know. The shard must stop at that
// entry; a newer build reads it.
var ErrUnknown = errors.New("logcodec: command is not known to this build")

// ErrMalformed is returned for bytes that are not a command at all.
var ErrMalformed = errors.New("logcodec: malformed command")

// Append appends the command's bytes to dst.
func Append(dst []byte, c shard.Command) ([]byte, error) {
	m, err := toLog(c)
	if err != nil {
		return dst, err
	}
	return proto.MarshalOptions{}.MarshalAppend(dst, m)
}

// Decode reads one command. The result shares no memory with b.
func Decode(b []byte) (shard.Command, error) {
	var m logv1.Command
	if err := proto.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if len(m.ProtoReflect().GetUnknown()) > 0 {
		return nil, fmt.Errorf("%w: unknown kind", ErrUnknown)
	}
	return fromLog(&m)
}

func toLog(c shard.Command) (*logv1.Command, error) {
	switch c := c.(type) {
	case *shard.Submit:
		return &logv1.Command{Kind: &logv1.Command_Submit{Submit: submitToLog(c)}}, nil
	case *shard.Admit:
		return &logv1.Command{Kind: &logv1.Command_Admit{Admit: &logv1.Admit{
			Id: c.ID[:], Generation: c.Generation, Attempt: c.Attempt, RequestHash: c.RequestHash[:],
		}}}, nil
	case *shard.RecordOutcome:
		return &logv1.Command{Kind: &logv1.Command_RecordOutcome{RecordOutcome: &logv1.RecordOutcome{
			Id: c.ID[:], Generation: c.Generation, Attempt: c.Attempt, Outcome: outcomeToLog(&c.Outcome),
		}}}, nil
	case *shard.Cancel:
		return &logv1.Command{Kind: &logv1.Command_Cancel{Cancel: &logv1.Cancel{Id: c.ID[:], Generation: c.Generation, Reason: c.Reason}}}, nil
	case *shard.Reschedule:
		return &logv1.Command{Kind: &logv1.Command_Reschedule{Reschedule: &logv1.Reschedule{
			Id: c.ID[:], Generation: c.Generation, DeliverAt: int64(c.DeliverAt), ExpireAt: int64(c.ExpireAt), RequestId: c.RequestID,
		}}}, nil
	case *shard.InstallDestination:
		return &logv1.Command{Kind: &logv1.Command_InstallDestination{InstallDestination: &logv1.InstallDestination{
			Destination: destinationToLog(&c.Destination),
		}}}, nil
	case *shard.AttachEvidence:
		return &logv1.Command{Kind: &logv1.Command_AttachEvidence{AttachEvidence: evidenceCommandToLog(c)}}, nil
	case *shard.Expire:
		return &logv1.Command{Kind: &logv1.Command_Expire{Expire: &logv1.Expire{Id: c.ID[:], Generation: c.Generation}}}, nil
	case *shard.LaneEvent:
		return &logv1.Command{Kind: &logv1.Command_LaneEvent{LaneEvent: &logv1.LaneEvent{
			Lane: uint32(c.Lane), Target: uint32(c.Target), Event: logv1.LaneEventKind(c.Event), ErrorClass: c.ErrorClass, Detail: c.Detail,
		}}}, nil
	case *shard.ControlStep:
		return &logv1.Command{Kind: &logv1.Command_ControlStep{ControlStep: controlToLog(c)}}, nil
	case *shard.Trim:
		return &logv1.Command{Kind: &logv1.Command_Trim{Trim: &logv1.Trim{
			Lane: uint32(c.Lane), State: logv1.GenerationState(c.State), Before: int64(c.Before), Max: c.Max,
		}}}, nil
	case *shard.Tick:
		return &logv1.Command{Kind: &logv1.Command_Tick{Tick: &logv1.Tick{}}}, nil
	}
	return nil, fmt.Errorf("%w: %T", ErrUnknown, c)
}

func fromLog(m *logv1.Command) (shard.Command, error) {
	switch k := m.Kind.(type) {
	case *logv1.Command_Submit:
		return submitFromLog(k.Submit)
	case *logv1.Command_Admit:
		return admitFromLog(k.Admit)
	case *logv1.Command_RecordOutcome:
		return recordOutcomeFromLog(k.RecordOutcome)
	case *logv1.Command_Cancel:
		id, err := idOf(k.Cancel, k.Cancel.Id)
		return &shard.Cancel{ID: id, Generation: k.Cancel.Generation, Reason: k.Cancel.Reason}, err
	case *logv1.Command_Reschedule:
		return rescheduleFromLog(k.Reschedule)
	case *logv1.Command_InstallDestination:
		return installFromLog(k.InstallDestination)
	case *logv1.Command_AttachEvidence:
		return evidenceCommandFromLog(k.AttachEvidence)
	case *logv1.Command_Expire:
		id, err := idOf(k.Expire, k.Expire.Id)
		return &shard.Expire{ID: id, Generation: k.Expire.Generation}, err
	case *logv1.Command_LaneEvent:
		v := k.LaneEvent
		return &shard.LaneEvent{
			Lane: shard.LaneID(v.Lane), Target: shard.TargetID(v.Target), Event: shard.LaneEventKind(v.Event), ErrorClass: v.ErrorClass, Detail: v.Detail,
		}, known(v, v.Event)
	case *logv1.Command_ControlStep:
		return controlFromLog(k.ControlStep)
	case *logv1.Command_Trim:
		v := k.Trim
		return &shard.Trim{Lane: shard.LaneID(v.Lane), State: shard.GenerationState(v.State), Before: stamp(v.Before), Max: v.Max}, known(v, v.State)
	case *logv1.Command_Tick:
		return &shard.Tick{}, known(k.Tick)
	}
	return nil, fmt.Errorf("%w: %T", ErrUnknown, m.Kind)
}

// known refuses a message with fields, or with values of its enumerations, that this build does not know: skipping or cutting them would
// be guessing.
func known(m proto.Message, values ...protoreflect.Enum) error {
	r := m.ProtoReflect()
	if len(r.GetUnknown()) > 0 {
		return fmt.Errorf("%w: a field of %s", ErrUnknown, r.Descriptor().Name())
	}
	for _, v := range values {
		if v.Descriptor().Values().ByNumber(v.Number()) == nil {
			return fmt.Errorf("%w: %s %d of %s", ErrUnknown, v.Descriptor().Name(), v.Number(), r.Descriptor().Name())
		}
	}
	return nil
}

// knownPolicies refuses what this build does not know of the parts that both kinds of destination share.
func knownPolicies(r *logv1.Retry, u *logv1.Uncertainty, c *logv1.Circuit) error {
	return errors.Join(known(r, r.GetJitter()), known(u, u.GetOnUncertain(), u.GetWhenExhausted()), known(c))
}

// idOf checks a message and the id in it.
func idOf(m proto.Message, b []byte) (shard.MessageID, error) {
	if err := known(m); err != nil {
		return shard.MessageID{}, err
	}
	id, err := shard.IDFromBytes(b)
	if err != nil {
		return id, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return id, nil
}

func hashOf(b []byte) (h [32]byte, err error) {
	if len(b) != len(h) {
		return h, fmt.Errorf("%w: hash of %d bytes, want %d", ErrMalformed, len(b), len(h))
	}
	copy(h[:], b)
	return h, nil
}
