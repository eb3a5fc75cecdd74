package server

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"

	"github.com/sealane/sealane/replication"
	"github.com/sealane/sealane/shard"
	"github.com/sealane/sealane/storage"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// rooms are the packages whose sentinels can reach a door, by their names in the table.
var rooms = map[string]string{
	"": ".", "shard": "../shard", "logcodec": "../shard/logcodec", "host": "../shard/host", "catalog": "../catalog", "lane": "../lane",
	"policy": "../policy", "replication": "../replication", "storage": "../storage", "delivery": "../delivery", "webhook": "../delivery/http",
}

// sentinels finds the exported Err variables that the package in a directory declares.
func sentinels(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no sources in %s: %v", dir, err)
	}
	var names []string
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, s := range g.Specs {
				for _, n := range s.(*ast.ValueSpec).Names {
					if strings.HasPrefix(n.Name, "Err") {
						names = append(names, n.Name)
					}
				}
			}
		}
	}
	return names
}

// tabled finds the errors that the table's source names.
func tabled(t *testing.T) map[string]bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]bool)
	ast.Inspect(f, func(n ast.Node) bool {
		kv, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		if key, ok := kv.Key.(*ast.Ident); !ok || key.Name != "err" {
			return true
		}
		switch v := kv.Value.(type) {
		case *ast.Ident:
			out[v.Name] = true
		case *ast.SelectorExpr:
			out[v.X.(*ast.Ident).Name+"."+v.Sel.Name] = true
		}
		return true
	})
	return out
}

// Every sentinel of every room has a row: an error without one would reach clients as INTERNAL by accident.
func TestErrorTableIsComplete(t *testing.T) {
	have := tabled(t)
	if len(have) != len(errorTable) {
		t.Fatalf("the source names %d errors and the table has %d rows", len(have), len(errorTable))
	}
	total := 0
	for room, dir := range rooms {
		for _, name := range sentinels(t, dir) {
			total++
			if room != "" {
				name = room + "." + name
			}
			if !have[name] {
				t.Errorf("%s has no row in errorTable", name)
			}
		}
	}
	if total < 80 {
		t.Fatalf("only %d sentinels were found; the test would prove nothing", total)
	}
	rejected := 0
	for _, rej := range shard.Rejections() {
		rejected++
		row := rowOf(rej)
		if row.err != error(rej) || row.reason != string(rej.Reason) {
			t.Errorf("%v is answered as %v %s", rej, row.err, row.reason)
		}
		if rejectionTexts[rej.Reason] == "" {
			t.Errorf("%s has no text", rej.Reason)
		}
	}
	if rejected != len(rejectionTexts) {
		t.Errorf("%d rejections, %d texts", rejected, len(rejectionTexts))
	}
}

// docs/errors.md has one entry for each reason, with the code it comes with, and none that nothing gives.
func TestErrorsAreDocumented(t *testing.T) {
	b, err := os.ReadFile("../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, entry := range strings.Split(string(b), "\n### ")[1:] {
		reason, text, _ := strings.Cut(entry, "\n")
		if documented[reason] != "" {
			t.Errorf("%s is documented twice", reason)
		}
		documented[reason] = text
	}
	given := map[string]bool{reasonMethod: true, reasonInternal: true}
	for _, row := range errorTable {
		reason := rowOf(row.err).reason
		given[reason] = true
		if code := codeNames[row.code]; !strings.Contains(documented[reason], "`"+code+"`") {
			t.Errorf("docs/errors.md does not say that %s comes with %s", reason, code)
		}
	}
	for reason := range given {
		if documented[reason] == "" {
			t.Errorf("docs/errors.md has no entry for %s", reason)
		}
	}
	for reason := range documented {
		if !given[reason] {
			t.Errorf("docs/errors.md documents %s, which nothing gives", reason)
		}
		if !regexp.MustCompile(`^[A-Z][A-Z0-9_]+$`).MatchString(reason) {
			t.Errorf("%q is no reason", reason)
		}
	}
}

// codeNames are the codes as documents write them.
var codeNames = map[codes.Code]string{
	codes.Canceled: "CANCELLED", codes.InvalidArgument: "INVALID_ARGUMENT", codes.DeadlineExceeded: "DEADLINE_EXCEEDED", codes.NotFound: "NOT_FOUND",
	codes.AlreadyExists: "ALREADY_EXISTS", codes.PermissionDenied: "PERMISSION_DENIED", codes.ResourceExhausted: "RESOURCE_EXHAUSTED",
	codes.FailedPrecondition: "FAILED_PRECONDITION", codes.Aborted: "ABORTED", codes.Unimplemented: "UNIMPLEMENTED", codes.Internal: "INTERNAL",
	codes.Unavailable: "UNAVAILABLE", codes.DataLoss: "DATA_LOSS",
}

func TestStatusOf(t *testing.T) {
	maybe := fmt.Errorf("%w: %w", replication.ErrMaybeAccepted, context.DeadlineExceeded)
	for _, c := range []struct {
		name   string
		err    error
		code   codes.Code
		reason string
		field  string
	}{
		{"a field", invalid("destination", "is required"), codes.InvalidArgument, "INVALID_REQUEST", "destination"},
		{"a field that another package refused", fieldError("id", shard.ErrInvalidID), codes.InvalidArgument, "INVALID_ID", "id"},
		{"a rejection with its field", &shard.Rejection{Reason: "IDEMPOTENCY_CONFLICT", Field: "payload", Detail: "differs"},
			codes.AlreadyExists, "IDEMPOTENCY_CONFLICT", "payload"},
		{"wrapped", fmt.Errorf("shard 3: %w", replication.ErrQueueFull), codes.Unavailable, "QUEUE_FULL", ""},
		{"maybe, by the caller's deadline", maybe, codes.DeadlineExceeded, "MAYBE_ACCEPTED", ""},
		{"maybe, cancelled", fmt.Errorf("%w: %w", replication.ErrMaybeAccepted, context.Canceled), codes.Canceled, "MAYBE_ACCEPTED", ""},
		{"maybe hides what it wraps", fmt.Errorf("%w: %w", replication.ErrMaybeAccepted, replication.ErrNotLeader), codes.Unavailable, "MAYBE_ACCEPTED", ""},
		{"cancelled before it was queued", fmt.Errorf("%w: %w", replication.ErrContext, context.Canceled), codes.Canceled, "DEADLINE_EXCEEDED", ""},
		{"the caller's own deadline", context.DeadlineExceeded, codes.DeadlineExceeded, "DEADLINE_EXCEEDED", ""},
		{"a full disk inside a failed store", fmt.Errorf("%w: /x: %w", storage.ErrFailed, storage.ErrDiskFull), codes.ResourceExhausted, "DISK_FULL", ""},
		{"nobody's error", errors.New("boom"), codes.Internal, "INTERNAL", ""},
	} {
		st := statusOf(c.err)
		if st.Code() != c.code || reasonOf(st) != c.reason {
			t.Errorf("%s: %s %s, want %s %s", c.name, st.Code(), reasonOf(st), c.code, c.reason)
		}
		var field string
		for _, d := range st.Details() {
			if info, ok := d.(*errdetails.ErrorInfo); ok {
				field = info.GetMetadata()["field"]
			}
			if bad, ok := d.(*errdetails.BadRequest); ok && bad.GetFieldViolations()[0].GetField() != c.field {
				t.Errorf("%s: violation of %q", c.name, bad.GetFieldViolations()[0].GetField())
			}
		}
		if field != c.field {
			t.Errorf("%s: field %q, want %q", c.name, field, c.field)
		}
	}
}

// What speaks of the node's inside is not shown to a client.
func TestInsideStaysInside(t *testing.T) {
	for _, err := range []error{errors.New("secret path"), fmt.Errorf("%w: secret path", storage.ErrCorrupt)} {
		if s := statusOf(err).Message(); strings.Contains(s, "secret") {
			t.Errorf("a client gets %q", s)
		}
	}
}

// A submit's error says NOT_ACCEPTED exactly where that is certain (DESIGN 3).
func TestAcceptance(t *testing.T) {
	for _, c := range []struct {
		name    string
		err     error
		certain bool
		want    sealanev1.Acceptance_Value
	}{
		{"refused by the door", invalid("payload", "is too large"), true, sealanev1.Acceptance_NOT_ACCEPTED},
		{"refused by the shard", shard.ErrBacklogFull, false, sealanev1.Acceptance_NOT_ACCEPTED},
		{"no leader", replication.ErrNotLeader, false, sealanev1.Acceptance_NOT_ACCEPTED},
		{"queue full", fmt.Errorf("x: %w", replication.ErrQueueFull), false, sealanev1.Acceptance_NOT_ACCEPTED},
		{"disk low", ErrNoSpace, false, sealanev1.Acceptance_NOT_ACCEPTED},
		{"maybe", replication.ErrMaybeAccepted, false, sealanev1.Acceptance_MAYBE_ACCEPTED},
		{"maybe that wraps a certain cause", fmt.Errorf("%w: %w", replication.ErrMaybeAccepted, replication.ErrNotLeader), false, sealanev1.Acceptance_MAYBE_ACCEPTED},
		{"deadline", context.DeadlineExceeded, false, sealanev1.Acceptance_MAYBE_ACCEPTED},
		{"unknown", errors.New("x"), false, sealanev1.Acceptance_MAYBE_ACCEPTED},
	} {
		got := sealanev1.Acceptance_ACCEPTANCE_UNSPECIFIED
		for _, d := range submitStatus(c.err, c.certain).Details() {
			if detail, ok := d.(*sealanev1.SubmitErrorDetail); ok {
				got = detail.GetAcceptance()
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
