package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/client"
	"github.com/sealane/sealane/sink"
)

// Transcripts are files of command lines and exactly what they print. Verbs:
//
//	sealane              runs the command line of the input against this file's node
//	stdin                keeps its input as the next command's standard input
//	file name=X          writes its input to X
//	await id=N state=S   waits until the N-th message is in a state
//	receiver path=P as=Q lets the receiver answer P as it would Q
//	answer code=… …      from now on a node answers every call with that error; without arguments the real node is back
//	offline              from now on nobody listens
//	cluster              from now on a node answers that sees the cluster of the input (prototext), and nothing else
//	operation            what the next operation on it goes through (prototext, stages separated by --)
//
// Standard error is marked with "! ". What differs from run to run is replaced: ids by msg_1, msg_2 and so on in order of appearance (and back
// again in command lines), times, positions, addresses and durations by a word. NODE and SINK are the addresses of the two,
// DEAD is one where nobody listens.
//
// -rewrite writes what is printed now into the files.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		s := newScene(t)
		datadriven.RunTest(t, path, s.play)
	})
}

// scene is what one transcript runs in.
type scene struct {
	dir, node, addr, sinkAddr string
	receiver                  *sink.Sink
	client                    *client.Client
	stdin                     string
	ids                       []string
	fake                      *fakeNode
	fakeAddr                  string
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{dir: t.TempDir()}
	s.receiver, s.sinkAddr = startSink(t)
	s.node = startNode(t).GRPCAddr()
	s.addr = s.node
	s.client = dialTest(t, s.node)
	return s
}

func (s *scene) play(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	switch d.Cmd {
	case "sealane":
		return s.run(t, d.Input)
	case "stdin":
		s.stdin = s.real(d.Input)
	case "file":
		var name string
		d.ScanArgs(t, "name", &name)
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(s.real(d.Input)), 0o600); err != nil {
			d.Fatalf(t, "%v", err)
		}
	case "await":
		s.await(t, d)
	case "receiver":
		var path, as string
		d.ScanArgs(t, "path", &path)
		d.MaybeScanArgs(t, "as", &as)
		s.receiver.SetMode(path, as)
	case "answer":
		s.answer(t, d)
	case "cluster":
		s.pretend(t, d)
	case "operation":
		s.tell(t, d)
	case "offline":
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		s.addr = l.Addr().String()
		l.Close()
	default:
		d.Fatalf(t, "unknown verb %q", d.Cmd)
	}
	return ""
}

// run executes one command line. Words in quotes may hold spaces.
func (s *scene) run(t *testing.T, line string) string {
	t.Helper()
	var out, errOut bytes.Buffer
	a := &app{
		in: strings.NewReader(s.stdin), out: &out, err: &errOut, now: time.Now,
		env: []string{"SEALANE_ADDR=" + s.addr},
	}
	s.stdin = ""
	var words []string
	for _, m := range regexp.MustCompile(`"([^"]*)"|'([^']*)'|(\S+)`).FindAllStringSubmatch(s.real(line), -1) {
		words = append(words, m[1]+m[2]+m[3])
	}
	code := a.run(words)
	text := s.stable(out.String())
	if errText := strings.TrimSuffix(s.stable(errOut.String()), "\n"); errText != "" {
		text += "! " + strings.ReplaceAll(errText, "\n", "\n! ") + "\n"
	}
	if code != 0 {
		text += fmt.Sprintf("exit %d\n", code)
	}
	return text
}

// real puts real ids and addresses into a command line or a file.
func (s *scene) real(text string) string {
	text = regexp.MustCompile(`\bmsg_(\d{1,2})\b`).ReplaceAllStringFunc(text, func(m string) string {
		var n int
		if _, err := fmt.Sscanf(m, "msg_%d", &n); err != nil || n < 1 || n > len(s.ids) {
			return m
		}
		return s.ids[n-1]
	})
	return strings.NewReplacer("SINK", s.sinkAddr, "DIR", s.dir, "NODE", s.addr, "DEAD", deadAddr).Replace(text)
}

var unstable = []struct {
	find *regexp.Regexp
	word string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "SHA256"},
	{regexp.MustCompile(`"(boot_id|incarnation)": "[0-9a-f]{16}"`), `"$1": "HEX"`},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDR"},
	{regexp.MustCompile(`(^|[^.\d])\d{1,2}:\d+\b`), "${1}POS"},
	{regexp.MustCompile(`(settled after|\(in|, in|  age) +(\d+h)?(\d+m)?\d+(\.\d+)?(ms|s)\b`), "$1 SPAN"},
	{regexp.MustCompile(`\d+(\.\d+)?(ms|s) ago`), "SPAN ago"},
	{regexp.MustCompile(`\b\d+ bytes (written|of the request)`), "N bytes $1"},
	{regexp.MustCompile(`net/http: .*`), "what the network library said"},
	{regexp.MustCompile(`"bytes_written": "\d+"`), `"bytes_written": "N"`},
	{regexp.MustCompile(`page-token \S+`), "page-token TOKEN"},
	{regexp.MustCompile(`"next_page_token": "[^"]+"`), `"next_page_token": "TOKEN"`},
	{regexp.MustCompile(`go\d+\.\d+(\.\d+)?\S*?([,"])`), "GO$2"},
	{regexp.MustCompile(`(\S) {2,}`), "$1  "},
}

// deadAddr is a port that nobody listens on: the discard service's, which needs rights that a test does not use.
const deadAddr = "127.0.0.1:9"

// stable replaces what differs from run to run.
func (s *scene) stable(text string) string {
	text = regexp.MustCompile(`msg_[0-9a-z]{48}`).ReplaceAllStringFunc(text, func(id string) string {
		for i, known := range s.ids {
			if known == id {
				return fmt.Sprintf("msg_%d", i+1)
			}
		}
		s.ids = append(s.ids, id)
		return fmt.Sprintf("msg_%d", len(s.ids))
	})
	text = strings.NewReplacer(s.sinkAddr, "SINK", s.addr, "NODE", s.dir, "DIR", deadAddr+",", "DEAD,", deadAddr+":", "DEAD:").Replace(text)
	for _, u := range unstable {
		text = u.find.ReplaceAllString(text, u.word)
	}
	// A blank line would end the expectation early.
	return strings.ReplaceAll(text, "\n\n", "\n.\n")
}

func (s *scene) await(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	var n int
	var state string
	d.ScanArgs(t, "id", &n)
	d.ScanArgs(t, "state", &state)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		resp, err := s.client.Query().GetMessage(ctx, &sealanev1.GetMessageRequest{Id: s.ids[n-1], Consistency: sealanev1.Consistency_linearizable})
		if err != nil {
			d.Fatalf(t, "message %d should become %s: %v", n, state, err)
		}
		if resp.GetMessage().GetState().String() == state {
			return
		}
		<-tick.C
	}
}

// answer puts a node that refuses everything in the real one's place.
func (s *scene) answer(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	if len(d.CmdArgs) == 0 {
		s.addr = s.node
		return
	}
	var code, reason, acceptance, field string
	d.ScanArgs(t, "code", &code)
	d.MaybeScanArgs(t, "reason", &reason)
	d.MaybeScanArgs(t, "acceptance", &acceptance)
	d.MaybeScanArgs(t, "field", &field)
	var c codes.Code
	if err := c.UnmarshalJSON([]byte(`"` + code + `"`)); err != nil {
		d.Fatalf(t, "%v", err)
	}
	var details []protoadapt.MessageV1
	if reason != "" {
		details = append(details, &errdetails.ErrorInfo{Reason: reason, Domain: "sealane.io", Metadata: map[string]string{"limit": "7 bytes"}})
	}
	if acceptance != "" {
		details = append(details, &sealanev1.SubmitErrorDetail{Acceptance: sealanev1.Acceptance_Value(sealanev1.Acceptance_Value_value[acceptance]), Field: field})
	}
	st, err := status.New(c, "the node says why").WithDetails(details...)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	srv := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return st.Err() }))
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-served; err != nil {
			t.Errorf("refusing node: %v", err)
		}
	})
	s.addr = l.Addr().String()
}
