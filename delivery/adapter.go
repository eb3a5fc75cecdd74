package delivery

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sealane/sealane/policy"
)

// MaxDetailBytes bounds what evidence and failures say for people.
const MaxDetailBytes = 256

// Errors of opening targets.
var (
	// ErrUnknownAdapter: no adapter of this kind is registered in this build.
	ErrUnknownAdapter = errors.New("delivery: unknown adapter kind")
	// ErrSpec: the target's description cannot be used; the text names the field.
	ErrSpec = errors.New("delivery: invalid target")
)

// Attribute is one name and value of the client, in the client's order.
type Attribute struct{ Name, Value string }

// Request is what one attempt carries. It is not changed by the adapter.
type Request struct {
	MessageID   string // text form
	Generation  uint32
	Attempt     uint32
	Payload     []byte
	ContentType string
	Attributes  []Attribute
	TraceParent string
	OrderingKey string
}

// Statements of evidence: what kind of proof it is. The set is closed.
const (
	// StatementAccepted: the receiver said it has the message.
	StatementAccepted = "RECEIVER_ACCEPTED"
	// StatementReceiver: the receiver said it did not take the message. The audit counts those that were false apart (P4).
	StatementReceiver = "RECEIVER_STATEMENT"
	// StatementBefore: not one byte left this process.
	StatementBefore = "BEFORE_OWNERSHIP"
	// StatementNone: nothing proves anything; the outcome is UNKNOWN.
	StatementNone = "NONE"
)

// Evidence is the typed proof behind an outcome.
type Evidence struct {
	Rule         string // the row of the adapter's table that decided, for example HTTP_H4
	Statement    string // one of the statements above
	ErrorClass   string // the adapter's closed set; empty for a success
	Detail       string // for people, cleaned and bounded, never parsed
	Status       int    // the protocol's status, 0 where there was none
	RemoteAddr   string
	BytesWritten int64     // of this request as the protocol frames it, 0 when nothing was sent
	WroteRequest bool      // the write of the request's last byte was begun and did not fail
	FirstByteAt  time.Time // when the first byte was about to be written; zero when none was
	At           time.Time // when the outcome was known
	// Headers picks what helps to find the request in the receiver's logs: its date and its ids for it. Bounded and cleaned.
	Headers []Attribute
}

// Outcome is what is known about one attempt. It is always a legal pair (policy.LegalOutcome).
type Outcome struct {
	SideEffect    policy.SideEffect
	Disposition   policy.Disposition
	RetryAfter    time.Duration
	HasRetryAfter bool
	Evidence      Evidence
}

// Gate is asked right before the first byte. An error means: do not send.
type Gate func() error

// Adapter opens targets of one kind. Spec is the kind's own description, already decoded.
type Adapter[Spec any] interface {
	Kind() string
	Open(spec Spec) (Target, error)
}

// Stats are the connections of one target.
type Stats struct {
	Open int // all of them, idle and in hand
	Idle int
}

// Target is one destination as its adapter sees it. Safe for concurrent use.
type Target interface {
	// TryConn returns a connection that is idle and believed usable, at once, or false.
	TryConn() (Conn, bool)
	// Connect resolves, dials, and verifies what the target pins. A failure is a *ConnectError. It returns soon after ctx ends.
	Connect(ctx context.Context) (Conn, error)
	// RequestHash is the hash of what Send would send, apart from what differs between attempts: time, signature, attempt number.
	RequestHash(r *Request) [32]byte
	// Close lets go of idle connections. Connections in hand stay usable until they are released.
	Close()
	Stats() Stats
}

// Conn is a connection in hand, reserved for one attempt.
type Conn interface {
	// Send makes at most one physical request and always returns an outcome, soon after ctx ends. The gate is asked at most once, right before
	// the first byte, possibly on another goroutine; it must not block. A second Send on the same connection in hand sends nothing and
	// says NOT_PUBLISHED with ADAPTER_BUG.
	Send(ctx context.Context, r *Request, gate Gate) Outcome
	// Release gives the connection back, after Send or instead of it. Call it exactly once.
	Release()
}

// ConnectError is why no connection could be made. No attempt was used: nothing was admitted.
type ConnectError struct {
	Class  string // the adapter's closed set
	Detail string // for people, bounded
	// Blocked marks what does not pass by itself: a pinned identity differs, an address is not permitted, a secret is missing.
	Blocked bool
	// Old and New are the pinned identity and the one that was met, where that is what differs.
	Old, New string
	Err      error
}

func (e *ConnectError) Error() string { return fmt.Sprintf("connect: %s: %s", e.Class, e.Detail) }

func (e *ConnectError) Unwrap() error { return e.Err }

// Clean makes a text safe to store and show: valid UTF-8, printable, one line, at most MaxDetailBytes.
func Clean(s string) string { return CleanTo(s, MaxDetailBytes) }

// CleanTo is Clean with a smaller bound.
func CleanTo(s string, bound int) string {
	b := make([]byte, 0, min(len(s), bound))
	for _, r := range s {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			r = '?'
		}
		if len(b)+utf8.RuneLen(r) > bound {
			break
		}
		b = utf8.AppendRune(b, r)
	}
	return string(b)
}
