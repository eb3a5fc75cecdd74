package shard

import (
	"github.com/sealane/sealane/lane"
	"github.com/sealane/sealane/policy"
)

// GenerationState is where one delivery of a message stands (DESIGN 4).
type GenerationState uint8

// States. CLAIMED is leader memory and is not one of them. Numbers are part of the state format.
const (
	StateUnspecified  GenerationState = 0
	StateScheduled    GenerationState = 1
	StateInFlight     GenerationState = 2
	StateRetryWait    GenerationState = 3
	StateUncertain    GenerationState = 4
	StateDelivered    GenerationState = 5
	StateDeadLettered GenerationState = 6
	StateCancelled    GenerationState = 7
	StateExpired      GenerationState = 8
	StateSuperseded   GenerationState = 9
)

var stateNames = [...]string{
	"STATE_UNSPECIFIED", "SCHEDULED", "IN_FLIGHT", "RETRY_WAIT", "UNCERTAIN", "DELIVERED", "DEAD_LETTERED", "CANCELLED", "EXPIRED", "SUPERSEDED",
}

func (s GenerationState) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return stateNames[0]
}

// Terminal tells whether a generation in this state never moves again (I6).
func (s GenerationState) Terminal() bool { return s >= StateDelivered && s <= StateSuperseded }

// Work is the one sendable item of a generation, apart from its state: an UNCERTAIN generation may have a permitted retry waiting.
type Work uint8

// Kinds of work.
const (
	WorkNone           Work = 0
	WorkInitial        Work = 1
	WorkRetry          Work = 2
	WorkUncertainRetry Work = 3
	WorkOperatorRetry  Work = 4
)

// TerminalReason says why a generation ended. The list is closed (invariant 38): credential, target and capability trouble is not in it.
type TerminalReason uint8

// Reasons.
const (
	ReasonNone              TerminalReason = 0
	ReasonPublished         TerminalReason = 1 // an attempt was published
	ReasonEvidence          TerminalReason = 2 // evidence showed that an unknown attempt was published
	ReasonPermanent         TerminalReason = 3 // the receiver refused the message for good
	ReasonExhausted         TerminalReason = 4 // the attempt budget is used up
	ReasonUncertaintyGiveUp TerminalReason = 5 // the policy gave up on an uncertainty
	ReasonOperatorGiveUp    TerminalReason = 6 // a named operator gave up on an uncertainty
	ReasonLaneClosed        TerminalReason = 7 // the lane was closed before admission
	ReasonExpireAt          TerminalReason = 8 // expire_at passed
	ReasonLifetime          TerminalReason = 9 // the lifetime passed
	ReasonCancelled         TerminalReason = 10
	ReasonRescheduled       TerminalReason = 11
	ReasonReplayed          TerminalReason = 12
)

var reasonNames = [...]string{
	"NONE", "PUBLISHED", "EVIDENCE", "PERMANENT_FAILURE", "EXHAUSTED", "UNCERTAINTY_GIVEN_UP", "OPERATOR_GAVE_UP", "LANE_CLOSED", "EXPIRE_AT",
	"LIFETIME", "CANCELLED", "RESCHEDULED", "REPLAYED",
}

func (r TerminalReason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return reasonNames[0]
}

// Message is what the client submitted, once for all generations. The payload is a record of its own.
type Message struct {
	ID             MessageID
	Namespace      string
	Destination    string
	Slot           uint32
	Lane           LaneID
	OrderingKey    string
	IdempotencyKey string
	ContentType    string
	TraceParent    string
	Attributes     []Attribute
	PayloadHash    [32]byte
	PayloadBytes   uint64
	DeliverAt      policy.Time // as submitted
	ExpireAt       policy.Time // as submitted
	AcceptedAt     policy.Time
	AcceptedIndex  uint64
	Current        uint32 // newest generation
	Kept           uint32 // generations not yet trimmed
	TrimmedUnknown uint32 // attempts that were still UNKNOWN when their generation was trimmed
}

// Generation is one delivery of a message.
type Generation struct {
	Number             uint32
	State              GenerationState
	Work               Work
	Lane               LaneID
	Target             TargetID
	DestinationVersion uint64
	Origin             string // SUBMIT, RESCHEDULE, REPLAY
	OriginID           string // request or operation id that made it
	CreatedAt          policy.Time
	CreatedIndex       uint64
	CreatedOrdinal     uint32
	DeliverAt          policy.Time
	ExpireAt           policy.Time
	Deadline           policy.Time // min(expire_at, end of lifetime)
	DeadlineByLifetime bool
	DeadlineArmed      bool // an entry in the deadline index exists
	NextAt             policy.Time
	NextReason         string // why NextAt: SUBMIT, BACKOFF, RETRY_AFTER, …
	Attempts           uint32 // admitted
	Counted            uint32 // settlements that count towards the budget
	UncertainRetries   uint32 // admitted uncertain retries
	OpenUnknown        uint32 // attempts whose side effect is UNKNOWN
	OpenInFlight       uint32 // attempts admitted and without an outcome
	FirstAdmittedAt    policy.Time
	PossibleDuplicate  bool
	OrderAfterUnknown  bool
	Ordered            bool // its message has an ordering key
	OrderHead          bool // holds its ordering key
	PayloadBytes       uint64
	TerminalAt         policy.Time
	TerminalIndex      uint64
	TerminalReason     TerminalReason
	FirstErrorClass    string
	LastErrorClass     string
	GivenUpBy          string
}

// Attempt is one admitted try: the ledger entry that explains one request a receiver may have seen.
type Attempt struct {
	Number        uint32
	AdmittedAt    policy.Time
	AdmittedIndex uint64
	Owner         Epoch
	RequestHash   [32]byte
	Deadline      policy.Time // until when its owner may still be waiting for the answer
	Work          Work        // what permitted it
	Trial         bool        // it was the half-open trial of its target
	DuplicateSafe bool        // it repeated an unknown attempt inside the receiver's dedup window

	Settled      bool // it has its initial outcome
	Outcome      Outcome
	OutcomeAt    policy.Time
	OutcomeIndex uint64
	Decision     string      // what was decided on the outcome: DELIVERED, RETRY BACKOFF, HOLD HOLD_POLICY, …
	NextAt       policy.Time // with a retry decision

	SideEffect  policy.SideEffect // as known now: the outcome, or what evidence made of it
	Resolutions []Resolution      // later evidence, oldest first
}

// Resolution is evidence that came after the initial outcome.
type Resolution struct {
	SideEffect  policy.SideEffect
	Evidence    Evidence
	Override    bool
	Actor       string
	Reason      string
	OperationID string
	At          policy.Time
	Index       uint64
	Effect      string // what it changed: RESOLVED, CONTRADICTION, BOOKKEEPING
}

// LaneRecord is the durable part of a lane (B.4): its gate, its targets' circuits and its counters.
type LaneRecord struct {
	ID             LaneID
	Namespace      string
	Destination    string
	Slot           uint32
	Gate           lane.Gate
	GateReason     string
	GateActor      string
	ControlVersion uint64
	CreatedAt      policy.Time
	Targets        []TargetRecord // by TargetID, from 1
	Counts         LaneCounts
}

// TargetRecord is one target that messages of a lane are pinned to.
type TargetRecord struct {
	ID         TargetID
	Key        string
	Circuit    lane.CircuitState
	LastError  string // error class of the last lane-level failure
	LastDetail string
	ChangedAt  policy.Time
}

// LaneCounts are kept with every command and proved by a recount (I8).
type LaneCounts struct {
	Scheduled    uint64    // SCHEDULED and RETRY_WAIT
	InFlight     uint64    // IN_FLIGHT
	Uncertain    uint64    // UNCERTAIN
	Terminal     [5]uint64 // DELIVERED, DEAD_LETTERED, CANCELLED, EXPIRED, SUPERSEDED, as kept
	OpenAttempts uint64    // admitted attempts without an outcome, whatever the generation's state
	PendingBytes uint64    // payload bytes of messages whose current generation is not terminal
}

// Pending is the number of generations not yet terminal.
func (c LaneCounts) Pending() uint64 { return c.Scheduled + c.InFlight + c.Uncertain }

// DeadLetter is the immutable decision core of a dead letter or of an expired generation (DESIGN 8). Attempts are read beside it.
type DeadLetter struct {
	ID                 MessageID
	Generation         uint32
	State              GenerationState // DEAD_LETTERED or EXPIRED
	Reason             TerminalReason
	Lane               LaneID
	DestinationVersion uint64
	FailedAt           policy.Time
	FailedIndex        uint64
	Attempts           uint32
	RetryCount         uint32 // counted settlements after the first
	FirstErrorClass    string
	LastErrorClass     string
	OpenUnknown        uint32 // attempts UNKNOWN when it ended
	PossibleDuplicate  bool
	Export             string // export state; NOT_CONFIGURED until exports exist
	ReplayedAs         uint32 // generation made by a replay, 0 if none
}

// ShardMeta is the shard's own record.
type ShardMeta struct {
	Clock     policy.Time // shard clock
	NextLane  LaneID
	Submitted uint64 // messages ever accepted
	// Contradictions counts evidence that contradicted an earlier decision.
	Contradictions uint64
}
