package client

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
)

// DefaultAddr is where a node on this machine answers gRPC.
const DefaultAddr = "127.0.0.1:7450"

// Limits and defaults of Options.
const (
	// DefaultRetryFor is how long a call is tried again after tries that gave no verdict.
	DefaultRetryFor = 30 * time.Second
	// MaxRetryFor bounds RetryFor. It stays well below the shortest useful idempotency window.
	MaxRetryFor = time.Hour
	// DefaultTryFor is how long the first try may take before another node is asked. It is longer than an election, so that a node that
	// waits for one can still answer, and shorter than what gRPC needs to notice that a peer is silent.
	DefaultTryFor = 3 * time.Second
	// DefaultSubmitBy is the time from the first try to submit_by. It leaves room for clocks that differ between client and node.
	DefaultSubmitBy = 5 * time.Minute
	// MaxSubmitBy is the default idempotency window: a later submit_by would outlive the key.
	MaxSubmitBy = 24 * time.Hour
	// DefaultStreamWindow and MaxStreamWindow bound the messages of a Stream that wait for their answer.
	DefaultStreamWindow = 4096
	MaxStreamWindow     = 1 << 16
	// MaxAddresses bounds the addresses that Dial takes, and the nodes that a client keeps connections to.
	MaxAddresses = 64
)

// ErrOptions is wrapped by every problem of Options; the text names the field and the limit.
var ErrOptions = errors.New("client: invalid options")

// Options says how a Client behaves. The zero value is good.
type Options struct {
	// RetryFor bounds how long submits and repeatable calls are tried again, 1 ms to 1 h. 0: 30 s.
	RetryFor time.Duration
	// TryFor bounds the first try of a call, and the silence of a stream that owes answers: after it another node is asked, with the same
	// key. Each further try may take twice as long. 1 ms to 1 h. 0: 3 s. A read that waits for a position may take its wait longer.
	TryFor time.Duration
	// SubmitBy is the time from the first try to submit_by, RetryFor to 24 h; choose it below the destination's idempotency window. 0: 5 min,
	// or RetryFor where that is longer.
	SubmitBy time.Duration
	// StreamWindow is how many messages of one Stream may wait for their answer, 1 to 65 536. 0: 4 096.
	StreamWindow int
	// Static keeps to the addresses given to Dial. Without it the client also uses those that the cluster names for its nodes, which is wrong
	// where clients reach the nodes by other addresses (tunnels, address translation).
	Static bool
	// FailFast is for people who wait: where no node can be reached calls fail at once, and calls other than submits are tried once on each
	// known node. Without it they are tried again within RetryFor.
	FailFast bool
	// DialOptions are further gRPC options of every connection, for example transport credentials or a context dialer (it gets the address as
	// Dial or the cluster gave it). Without any the connections are plain text.
	DialOptions []grpc.DialOption
}

func (o Options) withDefaults() Options {
	if o.RetryFor == 0 {
		o.RetryFor = DefaultRetryFor
	}
	if o.TryFor == 0 {
		o.TryFor = DefaultTryFor
	}
	if o.SubmitBy == 0 {
		o.SubmitBy = max(DefaultSubmitBy, o.RetryFor)
	}
	if o.StreamWindow == 0 {
		o.StreamWindow = DefaultStreamWindow
	}
	return o
}

// validate reports every problem at once.
func (o Options) validate() error {
	var errs []error
	check := func(ok bool, field, limit string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%w: %s must be from %s", ErrOptions, field, limit))
		}
	}
	check(o.RetryFor >= time.Millisecond && o.RetryFor <= MaxRetryFor, "RetryFor", "1ms to 1h")
	check(o.TryFor >= time.Millisecond && o.TryFor <= MaxRetryFor, "TryFor", "1ms to 1h")
	check(o.SubmitBy >= o.RetryFor && o.SubmitBy <= MaxSubmitBy, "SubmitBy", "RetryFor to 24h")
	check(o.StreamWindow >= 1 && o.StreamWindow <= MaxStreamWindow, "StreamWindow", fmt.Sprintf("1 to %d", MaxStreamWindow))
	return errors.Join(errs...)
}

// addresses takes a list apart: host:port, separated by commas, each counted once.
func addresses(list string) ([]string, error) {
	var out []string
	for addr := range strings.SplitSeq(list, ",") {
		addr = strings.TrimSpace(addr)
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return nil, fmt.Errorf("%w: the address %q must be host:port", ErrOptions, addr)
		}
		if !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}
	if len(out) > MaxAddresses {
		return nil, fmt.Errorf("%w: there are %d addresses, want at most %d", ErrOptions, len(out), MaxAddresses)
	}
	return out, nil
}
