package host

import (
	"context"
	"time"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

// Class says which room of the log's queue a proposal may use.
type Class uint8

// Classes of proposals.
const (
	// ClassAdmission may be refused when the log is busy: nothing was promised yet.
	ClassAdmission Class = 1
	// ClassEngine has reserved room, so that what was admitted can always be settled (R205). Expiry, lane events and trims use it too.
	ClassEngine Class = 2
)

// Log proposes vectors of commands.
type Log interface {
	// Propose appends the commands, in order, without waiting. Either it returns an error and never calls done, or it calls done exactly
	// once: with one result per command after they are applied, or with an error. done is cheap and may be called from any goroutine. The
	// commands belong to the log until then, the results to the caller. Commands of one call may be split over entries.
	Propose(cmds []shard.Command, class Class, done func(results []shard.Result, err error)) error
	// NotAccepted tells whether an error means that the commands certainly did not and will not happen. Any other error is a maybe.
	NotAccepted(err error) bool
}

// Store gives reads of the shard's committed state. What was applied before an effect was handed to Effects must be visible.
type Store interface {
	Reader() shard.Reader
}

// Carrier opens targets. It is called on the loop: it parses and resolves references but does no network I/O. An error makes the lane BLOCKED
// with its text as the reason, so it must not hold a secret.
type Carrier interface {
	Target(d *shard.Destination) (Target, error)
}

// Target is one destination version as its adapter sees it. All methods may be called at the same time.
type Target interface {
	// TryConn returns a connection that is idle and believed usable, at once, or false.
	TryConn() (Conn, bool)
	// Connect resolves, dials, and verifies what the destination pins. A failure is a *ConnectFailure; it returns soon after ctx ends.
	Connect(ctx context.Context) (Conn, error)
	// RequestHash is the hash of the request that Send would make, recorded with the admission.
	RequestHash(d *Delivery) [32]byte
	// Close lets go of idle connections. Connections in hand stay usable.
	Close()
}

// Conn is a connection in hand, reserved for one attempt.
type Conn interface {
	// Send makes at most one physical request. It calls gate once, right before the first byte, and sends nothing if gate returns an
	// error. It returns soon after ctx ends, always with an outcome.
	Send(ctx context.Context, d *Delivery, gate func() error) shard.Outcome
	// Release gives the connection back. The host calls it exactly once, after Send or instead of it.
	Release()
}

// Delivery is what one attempt carries. It belongs to the Conn until Send returns and is not changed by either side.
type Delivery struct {
	MessageID   string // text form
	Generation  uint32
	Attempt     uint32
	Payload     []byte
	ContentType string
	Attributes  []shard.Attribute
	TraceParent string
	OrderingKey string
}

// ConnectFailure is why no connection could be made.
type ConnectFailure struct {
	Class  string // closed set of the adapter, for example DIAL_REFUSED
	Detail string // for people, bounded
	// Blocked marks what will not pass by itself: a pinned identity or a declared capability has changed, or a secret is missing. The
	// lane is BLOCKED with Detail as the reason, and its circuit is left alone.
	Blocked bool
}

func (f *ConnectFailure) Error() string { return "connect: " + f.Class + ": " + f.Detail }

// Clock reads both clocks at once. Mono never goes back and does not follow wall-clock steps; its zero is arbitrary.
type Clock interface {
	Read() (mono time.Duration, wall policy.Time)
}

// NewClock returns the machine's clocks.
func NewClock() Clock { return systemClock{base: time.Now()} }

type systemClock struct{ base time.Time }

func (c systemClock) Read() (time.Duration, policy.Time) {
	t := time.Now()
	return t.Sub(c.base), policy.Time(t.UnixNano())
}

// Observer is told what happens, for metrics. Calls come from the loop and must not block. Namespace and destination are the only labels
// that are not from a closed set.
type Observer interface {
	Claimed(n int)                         // admissions proposed in one pass
	ClaimDropped(check string)             // the log refused an admission: which check failed
	Sent(lane LaneName, lag time.Duration) // an admitted request was handed to its connection, this long after it was due
	NotSent(lane LaneName, why NotSentCause)
	Returned(lane LaneName, side policy.SideEffect, d policy.Disposition)
	ConnectFailed(lane LaneName, class string)
	Recovered(n int) // attempts of an earlier leader recorded UNKNOWN
}

// LaneName is how a lane is called outside its shard.
type LaneName struct {
	Namespace, Destination string
	Slot                   uint32
}

// NotSentCause says why an admitted attempt was not sent.
type NotSentCause string

// Causes.
const (
	NotSentWindow   NotSentCause = "SEND_WINDOW" // applied too late
	NotSentDeposed  NotSentCause = "NOT_LEADING" // the term that admitted it is over
	NotSentNoClaim  NotSentCause = "NO_CLAIM"    // the claim was given up before its admission was applied
	NotSentStopping NotSentCause = "STOPPING"    // the process is closing
)

// nobody is the Observer used when none is given.
type nobody struct{}

func (nobody) Claimed(int)                                              {}
func (nobody) ClaimDropped(string)                                      {}
func (nobody) Sent(LaneName, time.Duration)                             {}
func (nobody) NotSent(LaneName, NotSentCause)                           {}
func (nobody) Returned(LaneName, policy.SideEffect, policy.Disposition) {}
func (nobody) ConnectFailed(LaneName, string)                           {}
func (nobody) Recovered(int)                                            {}
