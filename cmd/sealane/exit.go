package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/sealane/sealane/client"
)

// Exit codes, the same for every command. `sealane help exit-codes` shows them.
const (
	exitDone        = 0   // it was done
	exitRefused     = 1   // the node refused, or what was asked for failed
	exitUsage       = 2   // the command line, a configuration or a file is wrong; nothing was sent
	exitNotFound    = 3   // there is no such thing
	exitUnreachable = 4   // no answer from the node; nothing is known to have changed
	exitMaybe       = 5   // a submit had no verdict: it may have been accepted; repeat it with the same key
	exitPending     = 6   // a read did not reach its position in time; ask again
	exitSignal      = 130 // a signal ended the wait for an operation, which goes on; or a second one cut the stop of a node short
)

const exitHelp = `Exit codes:
  0    it was done
  1    the node refused, or what was asked for failed
  2    the command line, a configuration or a file is wrong; nothing was sent
  3    there is no such thing
  4    no answer from the node
  5    a submit had no verdict: the message may have been accepted; submit it again with the same idempotency key
  6    a read did not reach the position it named in time; ask again
  130  a signal ended the wait for an operation, which goes on; or a second one cut the stop of a node short
`

// usageError is a mistake on the command line or in a file: the text names the key or field, and the limit.
type usageError struct {
	err error
	try string // what to do; may be empty
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{err: fmt.Errorf(format, args...)} }

// pendingError: the node had not applied the position that a read named.
type pendingError struct{ position, applied string }

func (e *pendingError) Error() string {
	return fmt.Sprintf("position %s is not applied there yet; the node is at %s", e.position, e.applied)
}

// errSecondSignal ends a stop that somebody did not want to wait for.
var errSecondSignal = errors.New("stopped at once by a second signal; requests in flight become UNKNOWN at the next start")

// aboutError says which of several things an error is about.
type aboutError struct {
	what string
	err  error
}

func (e *aboutError) Error() string { return e.what + ": " + e.err.Error() }
func (e *aboutError) Unwrap() error { return e.err }

// failure is an error as it is printed. Its JSON form is what --output json prints.
type failure struct {
	Message        string            `json:"message"`
	Reason         string            `json:"reason,omitempty"`
	Code           string            `json:"code,omitempty"`
	Field          string            `json:"field,omitempty"`
	Fields         map[string]string `json:"fields,omitempty"`
	Details        map[string]string `json:"details,omitempty"`
	Acceptance     string            `json:"acceptance,omitempty"`
	IdempotencyKey string            `json:"idempotency_key,omitempty"`
	Try            string            `json:"try,omitempty"`
	ExitCode       int               `json:"exit_code"`
}

// report prints an error to standard error and returns the exit code for it.
func (a *app) report(err error) int {
	if err == nil {
		return exitDone
	}
	f := a.explain(err)
	if a.output == outputJSON {
		b, _ := json.Marshal(struct { // strings and numbers only: cannot fail
			Error failure `json:"error"`
		}{f})
		fmt.Fprintf(a.err, "%s\n", b)
		return f.ExitCode
	}
	f.print(a.err)
	return f.ExitCode
}

func (f failure) print(w io.Writer) {
	fmt.Fprintf(w, "error: %s\n", strings.ReplaceAll(strings.TrimSpace(f.Message), "\n", "\n       "))
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "  %-11s %s\n", name, value)
		}
	}
	line("reason:", f.Reason)
	line("accepted:", f.Acceptance)
	if len(f.Fields) == 0 {
		line("field:", f.Field)
	}
	for _, name := range slices.Sorted(maps.Keys(f.Fields)) {
		if strings.Contains(f.Message, f.Fields[name]) {
			line("field:", name)
			continue
		}
		line("field:", name+": "+f.Fields[name])
	}
	for _, name := range slices.Sorted(maps.Keys(f.Details)) {
		line(strings.ReplaceAll(name, "_", " ")+":", f.Details[name])
	}
	line("key:", f.IdempotencyKey)
	line("try:", f.Try)
}

// explain turns any error into what people are told.
func (a *app) explain(err error) failure {
	var usage *usageError
	var pending *pendingError
	var maybe *client.MaybeAcceptedError
	var refused *client.NotAcceptedError
	var about *aboutError
	var left *leftError
	if errors.As(err, &about) {
		f := a.explain(about.err)
		f.Message = about.what + ": " + f.Message
		return f
	}
	switch {
	case errors.As(err, &usage):
		return failure{Message: usage.Error(), Try: usage.try, ExitCode: exitUsage}
	case errors.As(err, &pending):
		return failure{Message: pending.Error(), Reason: "PENDING", Try: "ask again, or wait longer with --wait", ExitCode: exitPending}
	case errors.As(err, &left):
		return failure{Message: left.Error(), Reason: "NOT_AWAITED", Try: "`sealane operation watch " + left.id + a.addrFlag(a.addr) + "` shows how it goes on", ExitCode: exitSignal}
	case errors.Is(err, errSecondSignal):
		return failure{Message: err.Error(), ExitCode: exitSignal}
	case errors.As(err, &maybe):
		f := failure{
			Message: "the message may have been accepted: " + lastWords(maybe.Last), Acceptance: "MAYBE_ACCEPTED", IdempotencyKey: maybe.IdempotencyKey,
			ExitCode: exitMaybe,
		}
		f.Try = "submit the same content again with --idempotency-key " + maybe.IdempotencyKey + "; that cannot make a second message"
		return f
	case errors.As(err, &refused):
		f := a.explainCall(refused.Refusal)
		f.Acceptance = "NOT_ACCEPTED"
		return f
	}
	if e, ok := client.AsError(err); ok {
		return a.explainCall(e)
	}
	return failure{Message: err.Error(), ExitCode: exitRefused}
}

// lastWords is the last error of several tries, without the code where there is no reason.
func lastWords(err error) string {
	if e, ok := client.AsError(err); ok && e.Reason == "" {
		return e.Message
	}
	return err.Error()
}

// explainCall is the same for what a node answered, or for the lack of an answer.
func (a *app) explainCall(e *client.Error) failure {
	f := failure{Message: e.Message, Reason: e.Reason, Code: codeName(e.Code), Field: e.Field, Details: maps.Clone(e.Metadata), Try: advice(e), ExitCode: exitRefused}
	delete(f.Details, "field")
	if len(e.Violations) > 0 {
		f.Fields = make(map[string]string, len(e.Violations))
		for _, v := range e.Violations {
			f.Fields[v.Field] = v.Description
		}
	}
	switch e.Code {
	case codes.NotFound:
		f.ExitCode = exitNotFound
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		f.ExitCode = exitUnreachable
		if e.Reason == "" {
			f.Message = fmt.Sprintf("no answer from %s: %s", a.addr, e.Message)
			f.Try = "is a node running there? `sealane dev` starts one; --addr names other addresses"
		}
		if errors.Is(e, context.Canceled) || e.Code == codes.DeadlineExceeded {
			f.Try = "ask again, or wait longer with --timeout"
		}
	}
	return f
}

// codeName is a gRPC code as the API's documents spell it.
func codeName(c codes.Code) string {
	if n, ok := codeNames[c]; ok {
		return n
	}
	return c.String()
}

var codeNames = map[codes.Code]string{
	codes.Canceled: "CANCELLED", codes.Unknown: "UNKNOWN", codes.InvalidArgument: "INVALID_ARGUMENT", codes.DeadlineExceeded: "DEADLINE_EXCEEDED",
	codes.NotFound: "NOT_FOUND", codes.AlreadyExists: "ALREADY_EXISTS", codes.PermissionDenied: "PERMISSION_DENIED",
	codes.ResourceExhausted: "RESOURCE_EXHAUSTED", codes.FailedPrecondition: "FAILED_PRECONDITION", codes.Aborted: "ABORTED",
	codes.OutOfRange: "OUT_OF_RANGE", codes.Unimplemented: "UNIMPLEMENTED", codes.Internal: "INTERNAL", codes.Unavailable: "UNAVAILABLE",
	codes.DataLoss: "DATA_LOSS", codes.Unauthenticated: "UNAUTHENTICATED",
}
