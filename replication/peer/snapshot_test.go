package peer

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

func snapshotRequest(size int) *raft.InstallSnapshotRequest {
	return &raft.InstallSnapshotRequest{RPCHeader: headerOf("n1"), SnapshotVersion: 1, Term: 3, LastLogIndex: 9, LastLogTerm: 2, Configuration: []byte("c"), Size: int64(size)}
}

func sendSnapshot(t *Transport, size int, data io.Reader) (raft.InstallSnapshotResponse, error) {
	var out raft.InstallSnapshotResponse
	err := t.InstallSnapshot("", raft.ServerAddress(rid("n2")), snapshotRequest(size), &out, data)
	return out, err
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7 >> 3)
	}
	return b
}

func TestSnapshots(t *testing.T) {
	for _, size := range []int{0, 1, snapshotChunk, snapshotChunk + 1, 3*streamWindow + 17} {
		t.Run(named("%d bytes", size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, "n1", "n2")
				defer r.close()
				there := answer(r.nodes["n2"].Transport(1), nil)
				data := pattern(size)
				more := io.MultiReader(bytes.NewReader(data), strings.NewReader("not part of it"))
				out, err := sendSnapshot(r.nodes["n1"].Transport(1), size, more)
				if err != nil || !out.Success || out.Term != 3 {
					t.Fatalf("%+v, %v", out, err)
				}
				if there.readErr != nil || !bytes.Equal(there.data, data) {
					t.Fatalf("received %d bytes, %v", len(there.data), there.readErr)
				}
				if got := there.seen()[0].(*raft.InstallSnapshotRequest); got.LastLogIndex != 9 || string(got.Configuration) != "c" || got.Size != int64(size) {
					t.Fatalf("request %+v", got)
				}
			})
		})
	}
}

// A snapshot that takes minutes goes through as long as bytes move, and so does one that is slow to install.
func TestSlowSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "n1", "n2")
		defer r.close()
		t1, t2 := r.nodes["n1"].Transport(1), r.nodes["n2"].Transport(1)
		go func() {
			rpc := <-t2.Consumer()
			_, err := io.ReadAll(rpc.Reader)
			<-time.After(snapshotInstall / 2)
			rpc.Respond(&raft.InstallSnapshotResponse{Success: err == nil}, err)
		}()
		began := time.Now()
		size := 40 * snapshotChunk
		out, err := sendSnapshot(t1, size, &slowReader{left: size})
		if err != nil || !out.Success {
			t.Fatalf("%+v, %v", out, err)
		}
		if took := time.Since(began); took < 40*snapshotStall/2 {
			t.Fatalf("it took only %v: the test shows nothing", took)
		}
	})
}

// slowReader gives a chunk each half of the time that counts as a stall.
type slowReader struct{ left int }

func (s *slowReader) Read(b []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	<-time.After(snapshotStall / 2)
	n := min(len(b), s.left, snapshotChunk)
	s.left -= n
	return n, nil
}

// A snapshot that breaks off is an error on both sides, and soon.
func TestInterruptedSnapshots(t *testing.T) {
	half := 2 * streamWindow
	for _, c := range []struct {
		name string
		data func(r *rig) io.Reader
	}{
		{"the source fails", func(*rig) io.Reader { return io.MultiReader(bytes.NewReader(pattern(half)), failing{}) }},
		{"the source ends early", func(*rig) io.Reader { return bytes.NewReader(pattern(half)) }},
		{"the connection breaks", func(r *rig) io.Reader {
			return io.MultiReader(bytes.NewReader(pattern(half)), then(func() { r.net.Break(at("n1"), at("n2")) }), bytes.NewReader(pattern(half)))
		}},
		{"the network is cut", func(r *rig) io.Reader {
			return io.MultiReader(bytes.NewReader(pattern(half)), then(func() { r.net.Cut(at("n1"), at("n2")) }), bytes.NewReader(pattern(half)))
		}},
		{"the source stalls", func(*rig) io.Reader { return io.MultiReader(bytes.NewReader(pattern(half)), stalling{}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, "n1", "n2")
				defer r.close()
				t1, t2 := r.nodes["n1"].Transport(1), r.nodes["n2"].Transport(1)
				mustReach(t, r.nodes["n1"], "n2")
				there := answer(t2, nil)
				began := time.Now()
				out, err := sendSnapshot(t1, 2*half, c.data(r))
				if err == nil || out.Success {
					t.Fatalf("the sender got %+v, %v", out, err)
				}
				if took := time.Since(began); took > 2*snapshotStall {
					t.Fatalf("it took the sender %v", took)
				}
				eventually(t, "the receiver's error", func() bool {
					there.mu.Lock()
					defer there.mu.Unlock()
					return there.readErr != nil
				})
				if took := time.Since(began); took > 3*snapshotStall {
					t.Fatalf("it took the receiver %v", took)
				}
				if !errors.Is(there.readErr, ErrUnreachable) && !errors.Is(there.readErr, ErrClosed) && !errors.Is(there.readErr, ErrStalled) || len(there.data) >= 2*half {
					t.Fatalf("the receiver got %d bytes, %v", len(there.data), there.readErr)
				}
				r.net.Heal()
				eventually(t, "the group to be free again", func() bool {
					_, err := send(t1, "n2", entries("n1", 1, 5))
					return err == nil
				})
			})
		})
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("disk") }

// stalling gives nothing for longer than a snapshot may stand still.
type stalling struct{}

func (stalling) Read([]byte) (int, error) {
	<-time.After(snapshotStall + 5*time.Second)
	return 0, errors.New("at last")
}

type thenReader struct{ do func() }

// then does something when it is its turn in a MultiReader.
func then(do func()) io.Reader { return thenReader{do} }

func (t thenReader) Read([]byte) (int, error) {
	t.do()
	return 0, io.EOF
}

// Refused snapshots: no such group, a Raft that says no before it has read everything, one that never takes it, another replica.
func TestRefusedSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "n1", "n2")
		defer r.close()
		size := 3 * streamWindow
		_, err := sendSnapshot(r.nodes["n1"].Transport(9), size, bytes.NewReader(pattern(size)))
		wantErr(t, err, ErrUnknownGroup, "no such group")

		t1, t2 := r.nodes["n1"].Transport(1), r.nodes["n2"].Transport(1)
		go func() {
			rpc := <-t2.Consumer()
			rpc.Respond(nil, errors.New("unexpected command, or so"))
		}()
		_, err = sendSnapshot(t1, size, bytes.NewReader(pattern(size)))
		wantErr(t, err, ErrRemote, "raft's no")
		if grants(err) {
			t.Fatalf("got %v", err)
		}

		began := time.Now()
		_, err = sendSnapshot(t1, size, bytes.NewReader(pattern(size)))
		if !errors.Is(err, ErrBusy) && !errors.Is(err, ErrStalled) {
			t.Fatalf("nobody takes it: %v", err)
		}
		if took := time.Since(began); took > 2*snapshotStall {
			t.Fatalf("it took %v", took)
		}

		var out raft.InstallSnapshotResponse
		err = t1.InstallSnapshot("", "n2@another", snapshotRequest(1), &out, bytes.NewReader(pattern(1)))
		wantErr(t, err, ErrOtherReplica, "another replica")
	})
}

// While one group's Raft reads a snapshot slowly, its other requests wait, and those of other groups and heartbeats of all do not.
func TestSnapshotLeavesOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "n1", "n2")
		defer r.close()
		t1, other := r.nodes["n1"].Transport(1), r.nodes["n1"].Transport(2)
		t2 := r.nodes["n2"].Transport(1)
		answer(r.nodes["n2"].Transport(2), nil)
		release := make(chan struct{})
		go func() {
			rpc := <-t2.Consumer()
			<-release
			_, err := io.ReadAll(rpc.Reader)
			rpc.Respond(&raft.InstallSnapshotResponse{Success: err == nil}, err)
		}()
		size := 4 * streamWindow
		done := make(chan error, 1)
		go func() {
			_, err := sendSnapshot(t1, size, bytes.NewReader(pattern(size)))
			done <- err
		}()
		synctest.Wait()
		began := time.Now()
		mustSend(t, other, "n2", entries("n1", 1, 1<<20))
		mustSend(t, other, "n2", heartbeat("n1", 1))
		if took := time.Since(began); took > 3*linger {
			t.Fatalf("others took %v", took)
		}
		close(release)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// Raft's main loop waits while it reads, so the reader ends by itself when nothing comes. Remedy: the stall timer in chunkReader.next.
func TestReaderDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := newChunkReader(5).Read(make([]byte, 5))
		wantErr(t, err, ErrStalled, "a reader without a sender")
		if took := time.Since(began); took > snapshotStall {
			t.Fatalf("it took %v", took)
		}
	})
}
