package shard

import (
	"time"

	"github.com/sealane/sealane/policy"
)

// Kind numbers a command. Numbers are part of the log format and are never reused (I10).
type Kind uint8

// Every command that a shard's log may hold (DESIGN 3).
const (
	KindSubmit             Kind = 1
	KindCancel             Kind = 2
	KindReschedule         Kind = 3
	KindInstallDestination Kind = 4
	KindAdmit              Kind = 5
	KindRecordOutcome      Kind = 6
	KindAttachEvidence     Kind = 7
	KindExpire             Kind = 8
	KindLaneEvent          Kind = 9
	KindExportAdmit        Kind = 10
	KindExportOutcome      Kind = 11
	KindControlStep        Kind = 12
	KindTrim               Kind = 13
	KindTick               Kind = 14
)

// Command is one item of an entry's vector. The set is closed: the machine stops at a kind it does not know.
type Command interface{ Kind() Kind }

// Attribute is one name and value the client gave with a message; order is kept.
type Attribute struct{ Name, Value string }

// Submit asks the shard to take responsibility for a message. The door that accepted the call made the id and validated the shape
// (sizes, names); what depends on state is decided at apply, in the order dedup, validation, quota (DESIGN 3).
type Submit struct {
	ID             MessageID
	Namespace      string
	Destination    string
	Slot           uint32
	OrderingKey    string
	IdempotencyKey string // empty: the message is never deduplicated
	ContentType    string
	TraceParent    string // carried along, not part of what is compared
	Attributes     []Attribute
	Payload        []byte
	PayloadHash    [32]byte    // SHA-256 of Payload
	DeliverAt      policy.Time // 0: at once
	ExpireAt       policy.Time // 0: only the lifetime bounds it
	SubmitBy       policy.Time // 0: no bound; a later stamp is rejected
}

// Cancel ends a generation that has no open obligation.
type Cancel struct {
	ID         MessageID
	Generation uint32 // 0: whichever is current
	Reason     string
}

// Reschedule supersedes the current generation with the next one. RequestID makes a repeated call give the first answer.
type Reschedule struct {
	ID         MessageID
	Generation uint32 // 0: whichever is current
	DeliverAt  policy.Time
	ExpireAt   policy.Time // 0: keeps the old one
	RequestID  string
}

// LaneLimits bound one lane (one slot of a destination). Zero means no limit where the field says so.
type LaneLimits struct {
	MaxInFlight     uint32
	RatePerSecond   uint32 // 0: no rate limit
	MaxPending      uint64 // messages not yet terminal
	MaxPendingBytes uint64 // payload bytes of those
	MaxBytesInFly   uint64 // payload bytes in flight
}

// Destination is one version of a destination as the shards hold it. Pinned with a message: Adapter, Target, Timeout, Retry, Uncertainty.
// Live, from the newest installed version: Limits, Circuit, retention, export (DESIGN 5).
type Destination struct {
	Namespace, Name string
	Version         uint64
	Adapter         string // adapter kind, for example "http"
	Target          []byte // the adapter's own description, opaque here; holds references to secrets, never secrets
	TargetKey       string // equal keys are the same target: they share readiness and circuit
	Timeout         time.Duration
	Retry           policy.Retry
	Uncertainty     policy.Uncertainty

	Spread              uint32
	Limits              LaneLimits
	Circuit             policy.Circuit
	Retention           time.Duration
	DeadLetterRetention time.Duration
	IdempotencyWindow   time.Duration
	ExportTo            string // destination name, empty: no export
	Deleted             bool   // the destination takes no new message; what it holds is finished under its pinned version
}

// InstallDestination makes a version known to the shard. Installing a version again changes nothing; an older one never becomes newest.
type InstallDestination struct{ Destination Destination }

// Admit is the point of no return for one attempt (R171). Attempt must be the next number of the generation.
type Admit struct {
	ID          MessageID
	Generation  uint32
	Attempt     uint32
	RequestHash [32]byte // of the rendered request
}

// Evidence is the typed proof behind an outcome. Rule names the row of the classification table that decided.
type Evidence struct {
	Rule         string // for example HTTP_H4
	Statement    string // closed set: RECEIVER_ACCEPTED, RECEIVER_STATEMENT, BEFORE_OWNERSHIP, NONE, …
	ErrorClass   string // closed set, never free text
	Detail       string // for people, bounded, never parsed
	Status       uint32 // the protocol's status, 0 where there was none
	RemoteAddr   string
	BytesWritten uint64
	At           policy.Time // the sender's clock when it was observed; informational
}

// Outcome is what is known about one attempt: two closed dimensions and their evidence (DESIGN 4).
type Outcome struct {
	SideEffect    policy.SideEffect
	Disposition   policy.Disposition
	RetryAfter    time.Duration
	HasRetryAfter bool
	Evidence      Evidence
}

// RecordOutcome settles an attempt. If it already has an outcome, this one is taken as evidence (DESIGN 4).
type RecordOutcome struct {
	ID         MessageID
	Generation uint32
	Attempt    uint32
	Outcome    Outcome
}

// AttachEvidence resolves an attempt whose outcome is UNKNOWN, or contradicts a decided one. Override marks an assertion that nothing
// verifies; Actor and Reason then say whose it is.
type AttachEvidence struct {
	ID         MessageID
	Generation uint32
	Attempt    uint32
	SideEffect policy.SideEffect
	Evidence   Evidence
	Override   bool
	Actor      string
	Reason     string
}

// Expire closes the admission window of a generation whose deadline has passed. It never rewrites UNCERTAIN to EXPIRED.
type Expire struct {
	ID         MessageID
	Generation uint32
}

// LaneEventKind says what happened to a lane's target.
type LaneEventKind uint8

// Lane events that must survive failover.
const (
	// LaneConnectFailed: no connection could be made, so nothing was admitted; counts towards the circuit.
	LaneConnectFailed LaneEventKind = 1
	// LaneReadyToTry: the open time has passed and the readiness check succeeded; the circuit may go half-open.
	LaneReadyToTry LaneEventKind = 2
	// LaneTrialOverdue: the half-open trial passed its deadline without an outcome.
	LaneTrialOverdue LaneEventKind = 3
)

// LaneEvent records a change of a target's circuit that no outcome carries.
type LaneEvent struct {
	Lane       LaneID
	Target     TargetID
	Event      LaneEventKind
	ErrorClass string
	Detail     string
}

// ExportAdmit and ExportOutcome are the numbered attempts of a dead letter's export. Their kinds are allotted; the machine does not
// accept them before exports exist.
type (
	ExportAdmit   struct{}
	ExportOutcome struct{}
)

// ControlAction is what one step of a control operation does to one thing in this shard.
type ControlAction uint8

// Steps known so far.
const (
	ActionPauseLane    ControlAction = 1
	ActionResumeLane   ControlAction = 2
	ActionResolve      ControlAction = 3
	ActionResetCircuit ControlAction = 4
)

// ResolveVerdict is an operator's decision about an UNKNOWN attempt (B.8).
type ResolveVerdict uint8

// Verdicts of Resolve.
const (
	ResolvePublished    ResolveVerdict = 1
	ResolveNotPublished ResolveVerdict = 2
	ResolveRetry        ResolveVerdict = 3
	ResolveDeadLetter   ResolveVerdict = 4
)

// ControlStep is one step of a control operation in this shard's log. The same operation id with the same hash gives the first
// result again; another hash is a conflict (R043).
type ControlStep struct {
	OperationID string
	Hash        [32]byte // canonical hash of the whole operation
	Actor       string
	Reason      string
	Action      ControlAction

	// for lane actions
	Namespace, Destination string
	Slot                   uint32

	// for ActionResolve
	ID         MessageID
	Generation uint32 // 0: current
	Attempt    uint32
	Verdict    ResolveVerdict
	Evidence   string // what the operator offers as proof, recorded as an override unless something verifies it
}

// Trim removes up to Max terminal generations of one lane and state that ended at or before Before. The leader computes Before from the
// live retention; what is held or not terminal is never touched (I12).
type Trim struct {
	Lane   LaneID
	State  GenerationState
	Before policy.Time
	Max    uint32
}

// Tick moves the shard clock and nothing else.
type Tick struct{}

func (*Submit) Kind() Kind             { return KindSubmit }
func (*Cancel) Kind() Kind             { return KindCancel }
func (*Reschedule) Kind() Kind         { return KindReschedule }
func (*InstallDestination) Kind() Kind { return KindInstallDestination }
func (*Admit) Kind() Kind              { return KindAdmit }
func (*RecordOutcome) Kind() Kind      { return KindRecordOutcome }
func (*AttachEvidence) Kind() Kind     { return KindAttachEvidence }
func (*Expire) Kind() Kind             { return KindExpire }
func (*LaneEvent) Kind() Kind          { return KindLaneEvent }
func (*ExportAdmit) Kind() Kind        { return KindExportAdmit }
func (*ExportOutcome) Kind() Kind      { return KindExportOutcome }
func (*ControlStep) Kind() Kind        { return KindControlStep }
func (*Trim) Kind() Kind               { return KindTrim }
func (*Tick) Kind() Kind               { return KindTick }
