package shard

import "github.com/sealane/sealane/policy"

// EffectKind says what the leader must do after an entry is applied and durable in the state.
type EffectKind uint8

// Effects. EffectAdmitted is acted on only by the process named in Owner; the others inform whoever leads.
const (
	// EffectWork: the generation has work due at Due in (Lane, Target). Submit is set when this entry brought the message, so that
	// the leader need not read it back.
	EffectWork EffectKind = 1
	// EffectAdmitted: attempt Attempt may be sent by Owner, within its send window.
	EffectAdmitted EffectKind = 2
	// EffectSettled: an attempt got an outcome or evidence (SideEffect, Disposition say which). Its permits are free if First is set.
	EffectSettled EffectKind = 3
	// EffectTerminal: the generation reached State for Reason.
	EffectTerminal EffectKind = 4
	// EffectLane: gate, circuit or limits of (Lane, Target) changed; read the lane again.
	EffectLane EffectKind = 5
	// EffectInstalled: a destination version became known. Namespace and Destination name it.
	EffectInstalled EffectKind = 6
	// EffectDeadline: the generation must be expired at Due.
	EffectDeadline EffectKind = 7
	// EffectWorkGone: work of the generation was taken back (cancelled, superseded, resolved, expired).
	EffectWorkGone EffectKind = 8
	// EffectContradiction: evidence PUBLISHED came after a decision on NOT_PUBLISHED, or the other way round.
	EffectContradiction EffectKind = 9
)

// Effect is one thing to do, as data. Which fields are set depends on Kind.
type Effect struct {
	Kind        EffectKind
	Owner       Epoch
	Index       uint64
	Ref         Ref
	Lane        LaneID
	Target      TargetID
	Attempt     uint32
	Due         policy.Time
	State       GenerationState
	Reason      TerminalReason
	SideEffect  policy.SideEffect
	Disposition policy.Disposition
	First       bool
	Submit      *Submit
	Namespace   string
	Destination string
}
