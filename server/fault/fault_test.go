//go:build faults

package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sealane/sealane/policy"
)

func TestDisk(t *testing.T) {
	c := newControl()
	fs := wrapFS(c, vfs.NewMem())
	write := func(name string) error {
		f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := f.Write([]byte("x")); err != nil {
			return err
		}
		return f.Sync()
	}
	must := func(want error, name string) {
		t.Helper()
		if err := write(name); !errors.Is(err, want) || (want == nil) != (err == nil) {
			t.Fatalf("write of %s: %v, want %v", name, err, want)
		}
	}
	for _, dir := range []string{"log", "state"} {
		if err := fs.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	must(nil, "log/a")
	c.set(Spec{Disk: Disk{Full: true, Path: "log/"}})
	must(syscall.ENOSPC, "log/a")
	must(nil, "state/a")
	c.set(Spec{Disk: Disk{FailSyncs: 1}})
	must(syscall.EIO, "log/a")
	must(nil, "log/a")
	c.set(Spec{Disk: Disk{FailWrites: 1}})
	must(syscall.EIO, "log/a")
	must(nil, "log/a")
	if got := c.report().Counts; got["disk.full"] != 1 || got["disk.failed_sync"] != 1 || got["disk.failed_write"] != 1 {
		t.Errorf("counts: %v", got)
	}
}

func TestDiskReportsFreeBytes(t *testing.T) {
	c := newControl()
	fs := wrapFS(c, nil)
	dir := t.TempDir()
	free := func() uint64 {
		t.Helper()
		u, err := fs.GetDiskUsage(dir)
		if err != nil {
			t.Fatal(err)
		}
		return u.AvailBytes
	}
	if free() == 0 {
		t.Skip("the machine's disk is full")
	}
	c.set(Spec{Disk: Disk{FreeBytes: 7}})
	if free() != 7 {
		t.Errorf("free bytes: %d, want 7", free())
	}
	c.set(Spec{Disk: Disk{Full: true}})
	if free() != 0 {
		t.Errorf("free bytes of a full disk: %d", free())
	}
}

func TestHangingDiskWakesWhenCleared(t *testing.T) {
	c := newControl()
	fs := wrapFS(c, vfs.NewMem())
	c.set(Spec{Disk: Disk{Hang: true}})
	done := make(chan error, 1)
	go func() {
		_, err := fs.Create("a", vfs.WriteCategoryUnspecified)
		done <- err
	}()
	await(t, func() bool { return c.report().Counts["disk.hung"] == 1 })
	select {
	case err := <-done:
		t.Fatalf("a hanging disk returned: %v", err)
	default:
	}
	c.set(Spec{})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

type fixedClock struct{}

func (fixedClock) Read() (time.Duration, policy.Time) { return 5, 1000 }

func TestClock(t *testing.T) {
	c := newControl()
	k := &clock{fixedClock{}, c}
	if mono, wall := k.Read(); mono != 5 || wall != 1000 {
		t.Errorf("untouched: %v %v", mono, wall)
	}
	c.set(Spec{Clock: Wall{Step: -time.Hour}})
	if mono, wall := k.Read(); mono != 5 || wall != policy.Time(1000).Add(-time.Hour) {
		t.Errorf("stepped: %v %v", mono, wall)
	}
	c.set(Spec{Clock: Wall{DriftPPM: 1_000_000}})
	await(t, func() bool { _, wall := k.Read(); return wall > 1000 })
}

func TestStall(t *testing.T) {
	c := newControl()
	c.stall(PointApply)
	c.set(Spec{Stalls: map[string]Pause{PointApply: {For: -1, Times: 1}}})
	done := make(chan struct{})
	go func() { c.stall(PointApply); close(done) }()
	await(t, func() bool { return c.report().Counts["stall.apply"] == 1 })
	c.stall(PointApply) // the one was used up
	c.stall(PointReply)
	select {
	case <-done:
		t.Fatal("a stalled goroutine went on")
	default:
	}
	c.set(Spec{})
	<-done
}

// pair gives both ends of a connection, the first one dialled through the control.
func pair(t *testing.T, c *control) (dialled, accepted net.Conn, address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialled, err = dial(c, nil)(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialled.Close(); accepted.Close() })
	return dialled, accepted, l.Addr().String()
}

func TestLinkKeepsOrderAndBytes(t *testing.T) {
	c := newControl()
	a, b, _ := pair(t, c)
	c.set(Spec{Links: map[string]Link{"127.0.0.1": {Delay: time.Millisecond, Jitter: 5 * time.Millisecond, LossPercent: 1}}})
	want := make([]byte, 300<<10)
	for i := range want {
		want[i] = byte(i * 7)
	}
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		go func() {
			for rest := want; len(rest) > 0; {
				n := min(len(rest), 10_000)
				if _, err := way[0].Write(rest[:n]); err != nil {
					t.Error(err)
					return
				}
				rest = rest[n:]
			}
		}()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(way[1], got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("bytes differ, error %v", err)
		}
	}
	if c.report().Counts["link.delayed"] == 0 {
		t.Error("nothing was delayed: the test proves nothing")
	}
}

func TestLinkHoldsOneDirection(t *testing.T) {
	c := newControl()
	a, b, address := pair(t, c)
	c.set(Spec{Links: map[string]Link{address: {HoldReads: true}}})
	echo := func(from, to net.Conn, word string) error {
		if _, err := from.Write([]byte(word)); err != nil {
			t.Fatal(err)
		}
		if err := to.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		p := make([]byte, len(word))
		_, err := io.ReadFull(to, p)
		return err
	}
	if err := echo(a, b, "out"); err != nil {
		t.Errorf("the open direction: %v", err)
	}
	var n net.Error
	if err := echo(b, a, "in"); !errors.As(err, &n) || !n.Timeout() {
		t.Errorf("the held direction: %v", err)
	}
	c.set(Spec{})
	if err := a.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 2)
	if _, err := io.ReadFull(a, p); err != nil || string(p) != "in" {
		t.Errorf("after clearing: %q %v", p, err)
	}
}

func TestLinkCut(t *testing.T) {
	c := newControl()
	a, b, address := pair(t, c)
	c.set(Spec{Links: map[string]Link{"*": {Cut: true}}})
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, ErrCut) {
		t.Errorf("read of a cut connection: %v", err)
	}
	if _, err := b.Read(make([]byte, 1)); err == nil {
		t.Error("the other side read something")
	}
	if _, err := dial(c, nil)(t.Context(), address); !errors.Is(err, ErrCut) {
		t.Errorf("dial over a cut link: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.set(Spec{Links: map[string]Link{address: {HoldWrites: true}}})
	if _, err := dial(c, nil)(ctx, address); !errors.Is(err, context.Canceled) {
		t.Errorf("dial over a held link: %v", err)
	}
}

func TestEndpoint(t *testing.T) {
	c := newControl()
	ask := func(method, body string) (int, Report) {
		w := httptest.NewRecorder()
		c.ServeHTTP(w, httptest.NewRequest(method, "/", strings.NewReader(body)))
		var r Report
		if w.Code == http.StatusOK {
			if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
				t.Fatal(err)
			}
		}
		return w.Code, r
	}
	if code, r := ask("PUT", `{"disk":{"hang":true},"stalls":{"apply":{"for":1000}}}`); code != 200 || !r.Spec.Disk.Hang || r.Spec.Stalls["apply"].For != 1000 {
		t.Errorf("put: %d %+v", code, r)
	}
	if code, _ := ask("PUT", `{"disc":{}}`); code != http.StatusBadRequest {
		t.Errorf("unknown field: %d", code)
	}
	if _, r := ask("GET", ""); !r.Spec.Disk.Hang {
		t.Error("a refused put changed what was in force")
	}
	if _, r := ask("DELETE", ""); r.Spec.Disk.Hang {
		t.Error("delete left a fault")
	}
	if code, _ := ask("PATCH", ""); code != http.StatusMethodNotAllowed {
		t.Errorf("patch: %d", code)
	}
}

func TestStartListensOnLoopbackOnly(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", "192.0.2.1:80", "localhost:1", "nonsense"} {
		t.Setenv(Variable, address)
		if err := Start(slog.New(slog.DiscardHandler)); !errors.Is(err, ErrAddress) {
			t.Errorf("%s: %v", address, err)
		}
	}
	if err := os.Unsetenv(Variable); err != nil {
		t.Fatal(err)
	}
	if err := Start(slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
}

func await(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("it did not come to be within 5 s")
		}
		<-time.After(time.Millisecond)
	}
}
