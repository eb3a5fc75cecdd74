package host

import (
	"errors"
	"fmt"
	"time"

	"github.com/sealane/sealane/shard"
)

// Limits that are not configurable. limits_test.go asserts how they relate.
const (
	// MaxClockSkew is the wall step against the monotonic clock beyond which the clock gate closes (DESIGN 3).
	MaxClockSkew = 500 * time.Millisecond
	// WallStable is how long the wall must have been stable before the gate opens again without peers.
	WallStable = 60 * time.Second
	// SendWindow is how long after an admission was applied its request may still begin (DESIGN 4).
	SendWindow = 2 * time.Second
	// clockSample is the longest time between two readings of the clocks while leading, so that a step is told from drift.
	clockSample = 10 * time.Second

	// connectFirst and connectMost bound the wait between attempts to connect to a target that refuses: at once, 1 s, doubling to 30 s.
	connectFirst = time.Second
	connectMost  = 30 * time.Second
	// connectTimeout bounds one attempt to connect, name resolution and TLS included.
	connectTimeout = 10 * time.Second

	// proposeFirst and proposeMost bound the wait before a proposal that must succeed is made again.
	proposeFirst = 50 * time.Millisecond
	proposeMost  = 2 * time.Second

	// sendGrace is how long after its timeout a request may take to return before its outcome is recorded without it.
	sendGrace = 2 * time.Second

	// maxVector bounds the commands of one proposal.
	maxVector = 1024
	// expiryPage and openPage bound what one turn reads of the deadline index and of the open attempts; lanePage the lanes of one turn.
	expiryPage = 256
	openPage   = 1024
	lanePage   = 256
	// trialScan bounds how far a half-open lane looks for an uncertain retry that should go first.
	trialScan = 128

	// sweepEvery is how often idle lanes and targets are let go.
	sweepEvery = time.Minute
	// laneIdle is how long a lane without work, and targetIdle how long a target without use, are remembered.
	laneIdle   = 10 * time.Minute
	targetIdle = 5 * time.Minute
	// goneEvery is how often ProcessGone is asked about each process that still owes outcomes.
	goneEvery = time.Second
	// trimPause and trimIdle bound the time between two retention sweeps.
	trimPause = time.Minute
	trimIdle  = time.Hour
	// closeWait is how long Close waits for requests to return after their contexts were cancelled.
	closeWait = 10 * time.Second

	// costPerMessage is what a message costs its lane in fair scheduling beside its bytes.
	costPerMessage = 1024
	// fairQuantum is what a lane may use per round.
	fairQuantum = 16 * costPerMessage
)

// Defaults of destination settings that were left zero (DESIGN 7, 8).
const (
	DefaultMaxInFlight         = 32
	DefaultRetention           = 7 * 24 * time.Hour
	DefaultDeadLetterRetention = 30 * 24 * time.Hour
	DefaultTimeout             = 15 * time.Second
)

// Options configure a Host. Log, Store, Carrier, Stamper, Node and Boot are required; a zero anywhere else means the default.
type Options struct {
	Log     Log
	Store   Store
	Carrier Carrier
	Stamper *Stamper
	// Observer may be nil.
	Observer Observer

	// Node and Boot name this process in owner epochs. Boot is drawn anew at every start and is never zero.
	Node string
	Boot uint64

	// StillLeads is asked at the send gate, beside what the Host knows, whether this process still holds the leadership of term. Nil: only
	// Lead and Depose count. Called from many goroutines.
	StillLeads func(term uint64) bool
	// ProcessGone tells whether a process is known to have ended, so that its open attempts need not be waited for. Nil: never known.
	ProcessGone func(node string, boot uint64) bool
	// Failed is called once, from the loop, when the state could not be read; the Host stops claiming and the shard should be stopped. Nil:
	// the error is kept and returned by Close.
	Failed func(error)

	// MaxInFlight bounds requests in flight of the shard, and so its sending goroutines. When it is reached no lane claims until a request
	// returns, so it should be well above what hung lanes can hold together. Default 8192, 1 to 65536.
	MaxInFlight int
	// MaxConnecting bounds connections being made at a time. Half of them are reserved for targets that answered before. Default 128, 2 to
	// 4096.
	MaxConnecting int
	// MaxClaimsPerTurn bounds one claim pass, and so one vector of admissions. Default 512, 1 to 1024.
	MaxClaimsPerTurn int
	// WindowPerTarget bounds the due references kept per target; the rest stays in the index. Default 1024, 4 to 65536.
	WindowPerTarget int
	// MaxWindowed bounds the references of all targets; beyond it each target keeps only a few. Default 131072, at least 1024.
	MaxWindowed int
	// MaxHeldBytes bounds the payload bytes of just submitted messages that are kept so that they need not be read back. Default 32 MiB, 0
	// is the default, negative keeps none.
	MaxHeldBytes int
	// MaxQueued bounds work effects waiting for the loop; beyond it the work is found by index. Default 65536, at least 16.
	MaxQueued int
}

// minWindow is what a target may keep when MaxWindowed is reached.
const minWindow = 4

// ErrOptions is returned by New for options that can never work; the text names each field and its limit.
var ErrOptions = errors.New("host: invalid options")

func (o Options) withDefaults() Options {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	set(&o.MaxInFlight, 8192)
	set(&o.MaxConnecting, 128)
	set(&o.MaxClaimsPerTurn, 512)
	set(&o.WindowPerTarget, 1024)
	set(&o.MaxWindowed, 131072)
	set(&o.MaxHeldBytes, 32<<20)
	set(&o.MaxQueued, 65536)
	if o.Observer == nil {
		o.Observer = nobody{}
	}
	return o
}

// Validate reports every problem at once.
func (o Options) Validate() error {
	o = o.withDefaults()
	var bad []error
	need := func(field string, ok bool, limit string) {
		if !ok {
			bad = append(bad, fmt.Errorf("%w: %s: %s", ErrOptions, field, limit))
		}
	}
	need("Log", o.Log != nil, "is required")
	need("Store", o.Store != nil, "is required")
	need("Carrier", o.Carrier != nil, "is required")
	need("Stamper", o.Stamper != nil, "is required")
	need("Node", o.Node != "", "is required")
	need("Boot", o.Boot != 0, "must not be 0")
	between := func(field string, v, lo, hi int) {
		need(field, v >= lo && v <= hi, fmt.Sprintf("is %d, want %d to %d", v, lo, hi))
	}
	between("MaxInFlight", o.MaxInFlight, 1, 65536)
	between("MaxConnecting", o.MaxConnecting, 2, 4096)
	between("MaxClaimsPerTurn", o.MaxClaimsPerTurn, 1, maxVector)
	between("WindowPerTarget", o.WindowPerTarget, minWindow, 65536)
	between("MaxWindowed", o.MaxWindowed, 1024, 1<<24)
	between("MaxQueued", o.MaxQueued, 16, 1<<24)
	return errors.Join(bad...)
}

// share is one slot's part of a limit that a destination splits evenly over its lanes; at least 1.
func share(limit, spread, slot uint32) uint32 {
	if spread <= 1 {
		return limit
	}
	n := limit / spread
	if slot < limit%spread {
		n++
	}
	return max(n, 1)
}

// retentionOf is how long a generation that ended in this state is kept.
func retentionOf(d *shard.Destination, s shard.GenerationState) time.Duration {
	if s == shard.StateDeadLettered || s == shard.StateExpired {
		if d.DeadLetterRetention > 0 {
			return d.DeadLetterRetention
		}
		return DefaultDeadLetterRetention
	}
	if d.Retention > 0 {
		return d.Retention
	}
	return DefaultRetention
}
