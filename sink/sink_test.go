package sink

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves a sink until the test ends.
func start(t testing.TB, o Options) (*Sink, string) {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return s, server.URL
}

func do(t testing.TB, method, url, id, body string) (*http.Response, string, error) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if id != "" {
		q.Header.Set("Webhook-Id", id)
		q.Header.Set("Sealane-Attempt", "2")
	}
	q.GetBody = nil // so that the client does not send again what was dropped
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text), nil
}

func mustDo(t testing.TB, method, url, id, body string, want int) (http.Header, string) {
	t.Helper()
	resp, text, err := do(t, method, url, id, body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != want {
		t.Fatalf("%s %s: %d %s, want %d", method, url, resp.StatusCode, text, want)
	}
	return resp.Header, text
}

func listed(t testing.TB, url, query string) received {
	t.Helper()
	_, text := mustDo(t, "GET", url+"/_received"+query, "", "", 200)
	var r received
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r
}

func TestAnswers(t *testing.T) {
	_, url := start(t, Options{})
	for _, c := range []struct {
		path, id string
		status   int
	}{
		{"/ok", "a", 200}, {"/", "a", 200}, {"/anything/else", "", 200}, {"/status/204", "a", 204}, {"/status/418", "a", 418}, {"/status/502", "a", 502},
		{"/status/199", "a", 400}, {"/status/1000", "a", 400}, {"/status/x", "a", 400}, {"/status", "a", 400},
		{"/flaky/2", "a", 503}, {"/flaky/2", "b", 503}, {"/flaky/2", "a", 503}, {"/flaky/2", "a", 200}, {"/flaky/2", "b", 503}, {"/flaky/2", "b", 200}, {"/flaky/2", "a", 200},
		{"/flaky/0", "c", 200}, {"/flaky/-1", "c", 400}, {"/flaky/x", "c", 400},
		{"/retry-after/7", "a", 503}, {"/retry-after/7", "a", 200}, {"/retry-after/7", "b", 503}, {"/retry-after/8", "a", 503}, {"/retry-after/-1", "a", 400},
		{"/slow/1ms", "a", 200}, {"/slow/x", "a", 400}, {"/slow/-1s", "a", 400}, {"/slow/11m", "a", 400},
	} {
		h, text := mustDo(t, "POST", url+c.path, c.id, "x", c.status)
		if after := h.Get("Retry-After"); (after != "") != (strings.HasPrefix(c.path, "/retry-after/") && c.status == 503) || after != "" && !strings.HasSuffix(c.path, after) {
			t.Errorf("%s: Retry-After %q", c.path, after)
		}
		if (c.status == 400) != strings.HasPrefix(text, "sink: ") {
			t.Errorf("%s: %q", c.path, text)
		}
	}
}

// TestNoAnswer: /drop breaks the connection after the whole request was received and recorded; /hang answers nothing until the client leaves.
func TestNoAnswer(t *testing.T) {
	s, url := start(t, Options{})
	if _, _, err := do(t, "POST", url+"/drop", "d", "body"); err == nil {
		t.Error("/drop answered")
	}
	ctx, cancel := context.WithCancel(t.Context())
	q, err := http.NewRequestWithContext(ctx, "POST", url+"/hang", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(q)
		if err == nil {
			resp.Body.Close()
		}
		done <- err
	}()
	for deadline := time.Now().Add(10 * time.Second); s.Count() < 2 && time.Now().Before(deadline); {
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("/hang: %v", err)
	}
	list, _ := s.Records(0)
	if len(list) != 2 || list[0].Answered != 0 || list[0].Path != "/drop" || list[0].Size != 4 || list[1].Answered != 0 || list[1].Path != "/hang" {
		t.Errorf("%+v", list)
	}
}

// TestCloseEndsHanging: without it a server could not be shut down.
func TestCloseEndsHanging(t *testing.T) {
	s, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, path := range []string{"/hang", "/slow/10m"} {
		wg.Go(func() { s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", path, nil)) })
	}
	for deadline := time.Now().Add(10 * time.Second); s.Count() < 2 && time.Now().Before(deadline); {
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

func TestRecord(t *testing.T) {
	s, url := start(t, Options{})
	mustDo(t, "POST", url+"/status/201", "m-1", "hello", 201)
	mustDo(t, "POST", url+"/ok", "", "", 200)
	r := listed(t, url, "")
	sum := sha256.Sum256([]byte("hello"))
	if len(r.Records) != 2 || r.Count != 2 || r.Dropped != 0 || r.Next != 0 || s.Count() != 2 {
		t.Fatalf("%+v", r)
	}
	got := r.Records[0]
	if got.At.IsZero() {
		t.Error("no time")
	}
	got.At = time.Time{}
	if want := (Record{Sequence: 1, WebhookID: "m-1", Attempt: 2, Path: "/status/201", Answered: 201, Size: 5, SHA256: hex.EncodeToString(sum[:])}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	empty := sha256.Sum256(nil)
	if got := r.Records[1]; got.Size != 0 || got.SHA256 != hex.EncodeToString(empty[:]) || got.Attempt != 0 {
		t.Errorf("%+v", got)
	}
	mustDo(t, "DELETE", url+"/_received", "", "", 204)
	mustDo(t, "POST", url+"/ok", "m-2", "", 200)
	if r := listed(t, url, ""); len(r.Records) != 1 || r.Records[0].Sequence != 3 || r.Dropped != 2 || r.Count != 3 {
		t.Errorf("after DELETE: %+v", r)
	}
}

// TestPages: following next from the start lists everything once.
func TestPages(t *testing.T) {
	_, url := start(t, Options{})
	for i := range 10 {
		mustDo(t, "POST", url+"/ok", fmt.Sprint("m-", i), "", 200)
	}
	var ids []string
	pages, since := 0, uint64(0)
	for {
		r := listed(t, url, fmt.Sprintf("?since=%d&limit=4", since))
		for _, rec := range r.Records {
			ids = append(ids, rec.WebhookID)
		}
		pages++
		if since = r.Next; since == 0 {
			break
		}
	}
	if got := strings.Join(ids, " "); pages != 3 || got != "m-0 m-1 m-2 m-3 m-4 m-5 m-6 m-7 m-8 m-9" {
		t.Errorf("%d pages: %s", pages, got)
	}
	if r := listed(t, url, "?since=11"); len(r.Records) != 0 {
		t.Errorf("%+v", r)
	}
	for _, q := range []string{"?since=x", "?since=-1", "?limit=0", "?limit=100001", "?limit=x"} {
		mustDo(t, "GET", url+"/_received"+q, "", "", 400)
	}
	mustDo(t, "POST", url+"/_received", "", "", 404)
	mustDo(t, "GET", url+"/_other", "", "", 404)
}

// TestBound: memory is bounded, the newest records are kept, and what was dropped is said.
func TestBound(t *testing.T) {
	s, err := New(Options{Records: 4})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 9 {
		q := httptest.NewRequest("POST", "/ok", nil)
		q.Header.Set("Webhook-Id", fmt.Sprint(i))
		s.ServeHTTP(httptest.NewRecorder(), q)
		list, dropped := s.Records(0)
		last := list[len(list)-1]
		if len(list) > 4 || dropped+uint64(len(list)) != uint64(i+1) || last.WebhookID != fmt.Sprint(i) || last.Sequence != uint64(i+1) || list[0].Sequence != dropped+1 {
			t.Fatalf("after %d: %d dropped, %+v", i+1, dropped, list)
		}
	}
}

// TestCountOnly keeps nothing and says so.
func TestCountOnly(t *testing.T) {
	_, url := start(t, Options{Records: -1})
	mustDo(t, "POST", url+"/ok", "m", "body", 200)
	if r := listed(t, url, ""); r.Count != 1 || r.Dropped != 1 || r.Records == nil || len(r.Records) != 0 {
		t.Errorf("%+v", r)
	}
}

// TestMode: a path changes its behaviour while the sink runs, and changes back; it is recorded under its own name.
func TestMode(t *testing.T) {
	s, url := start(t, Options{})
	mustDo(t, "PUT", url+"/_mode/hooks/billing?as=/status/500", "", "", 204)
	mustDo(t, "POST", url+"/hooks/billing", "m", "", 500)
	mustDo(t, "POST", url+"/hooks/other", "m", "", 200)
	s.SetMode("/hooks/billing", "/flaky/1")
	mustDo(t, "POST", url+"/hooks/billing", "m", "", 503)
	mustDo(t, "POST", url+"/hooks/billing", "m", "", 200)
	mustDo(t, "PUT", url+"/_mode/hooks/billing?as=/retry-after/3", "", "", 204)
	mustDo(t, "PUT", url+"/_mode/hooks/billing", "", "", 204)
	mustDo(t, "POST", url+"/hooks/billing", "m", "", 200)
	mustDo(t, "PUT", url+"/_mode/hooks/billing?as=ok", "", "", 400)
	list, _ := s.Records(0)
	if len(list) != 5 || list[0].Path != "/hooks/billing" || list[0].Answered != 500 {
		t.Errorf("%+v", list)
	}
}

// TestRecordFile: the line is in the file before the answer is sent, and a second sink appends.
func TestRecordFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "record")
	lines := func() []string {
		t.Helper()
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.SplitAfter(strings.TrimSuffix(string(b), "\n"), "\n")
	}
	for i, records := range []int{0, -1} {
		s, err := New(Options{RecordFile: file, Records: records})
		if err != nil {
			t.Fatal(err)
		}
		w := &watcher{ResponseRecorder: httptest.NewRecorder(), before: func() {
			if got := len(lines()); got != i+1 {
				t.Errorf("%d lines when the answer was begun, want %d", got, i+1)
			}
		}}
		s.ServeHTTP(w, httptest.NewRequest("POST", "/ok", strings.NewReader("x")))
		if w.calls != 1 {
			t.Errorf("answered %d times", w.calls)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		late := httptest.NewRecorder()
		s.ServeHTTP(late, httptest.NewRequest("POST", "/ok", nil))
		if late.Code != http.StatusInsufficientStorage {
			t.Errorf("a request that cannot be recorded was answered %d", late.Code)
		}
		if err := s.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
	}
	for _, l := range lines() {
		var r Record
		if err := json.Unmarshal([]byte(l), &r); err != nil || r.Path != "/ok" || r.Size != 1 || r.Answered != 200 {
			t.Errorf("%q: %v", l, err)
		}
	}
	if _, err := New(Options{RecordFile: filepath.Join(file, "below a file")}); err == nil {
		t.Error("an impossible file was accepted")
	}
}

// watcher calls before when an answer is begun.
type watcher struct {
	*httptest.ResponseRecorder
	before func()
	calls  int
}

func (w *watcher) WriteHeader(status int) {
	w.calls++
	w.before()
	w.ResponseRecorder.WriteHeader(status)
}

// TestIncomplete: a body that is cut off or too large is recorded as such.
func TestIncomplete(t *testing.T) {
	s, url := start(t, Options{})
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "POST /ok HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf"); err != nil {
		t.Fatal(err)
	}
	c.Close()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if list, _ := s.Records(0); len(list) == 1 {
			break
		}
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("POST", "/ok", bytes.NewReader(make([]byte, MaxBody+1))))
	list, _ := s.Records(0)
	if len(list) != 2 || !list[0].Incomplete || list[0].Size != 4 || list[0].Answered != 400 || !list[1].Incomplete || list[1].Answered != 413 || w.Code != 413 {
		t.Errorf("%d, %+v", w.Code, list)
	}
}

// BenchmarkServe is what a request costs in the sink itself.
func BenchmarkServe(b *testing.B) {
	for name, records := range map[string]int{"count only": -1, "recorded": 0} {
		b.Run(name, func(b *testing.B) {
			s, err := New(Options{Records: records})
			if err != nil {
				b.Fatal(err)
			}
			body := make([]byte, 256)
			w := httptest.NewRecorder()
			b.ReportAllocs()
			for b.Loop() {
				q := &http.Request{Method: "POST", URL: okURL, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body))}
				s.ServeHTTP(w, q)
			}
		})
	}
}

var okURL = httptest.NewRequest("POST", "/ok", nil).URL
