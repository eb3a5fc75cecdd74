package shard_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
	"github.com/sealane/sealane/shard/shardtest"
)

// crowd is a shard after a random history: what listings are tried on.
func crowd(t *testing.T, seed uint64) *shardtest.Shard {
	t.Helper()
	traffic, s := shardtest.NewTraffic(rand.New(rand.NewPCG(seed, 3))), shardtest.NewShard()
	traffic.MaxMessages = 60
	for range 150 {
		step(t, traffic, s)
	}
	return s
}

// pages collects a listing page by page and checks each page's size.
func pages(t *testing.T, limit int, next func(cursor []byte) ([]shard.ListItem, []byte, error)) []shard.ListItem {
	t.Helper()
	var all []shard.ListItem
	var cursor []byte
	for range 1000 {
		items, more, err := next(cursor)
		if err != nil {
			t.Fatal(err)
		}
		if len(items) > limit {
			t.Fatalf("a page of %d, the limit is %d", len(items), limit)
		}
		all = append(all, items...)
		if more == nil {
			return all
		}
		cursor = more
	}
	t.Fatal("the listing does not end")
	return nil
}

func refs(items []shard.ListItem) []string {
	out := make([]string, len(items))
	for i, it := range items {
		out[i] = fmt.Sprintf("%s-%d %s %s", it.Ref.ID, it.Ref.Generation, it.State, it.Reason)
	}
	return out
}

func lanes(t *testing.T, r shard.Reader) []shard.LaneRecord {
	t.Helper()
	l, err := shard.ScanLanes(r, 0, 1000)
	if err != nil || len(l) == 0 {
		t.Fatalf("%d lanes, %v", len(l), err)
	}
	return l
}

// TestListMessages: whatever the page size, the pages together are the whole list, each message once, newest first, and a state's list is
// what filtering the whole list gives.
func TestListMessages(t *testing.T) {
	s := crowd(t, 1)
	found := 0
	for _, l := range lanes(t, s.State) {
		list := func(state shard.GenerationState, limit int) []shard.ListItem {
			return pages(t, limit, func(cursor []byte) ([]shard.ListItem, []byte, error) {
				return shard.ListMessages(s.State, l.ID, state, cursor, limit)
			})
		}
		whole := list(shard.StateUnspecified, 1000)
		found += len(whole)
		if !slices.IsSortedFunc(whole, func(a, b shard.ListItem) int { return int(b.At - a.At) }) {
			t.Errorf("lane %d is not listed newest first", l.ID)
		}
		for _, limit := range []int{1, 2, 3, 7} {
			if got := list(shard.StateUnspecified, limit); !slices.Equal(refs(got), refs(whole)) {
				t.Errorf("lane %d by pages of %d:\n%q\nwant\n%q", l.ID, limit, refs(got), refs(whole))
			}
		}
		for state := shard.StateScheduled; state <= shard.StateUncertain; state++ {
			want := slices.DeleteFunc(slices.Clone(whole), func(it shard.ListItem) bool { return it.State != state })
			for _, limit := range []int{1, 4, 1000} {
				if got := list(state, limit); !slices.Equal(refs(got), refs(want)) {
					t.Errorf("lane %d, %s by pages of %d: %q, want %q", l.ID, state, limit, refs(got), refs(want))
				}
			}
		}
		listTerminal(t, s, l, list)
	}
	if found < 20 {
		t.Fatalf("only %d messages were listed; the test proves little", found)
	}
}

// listTerminal: a terminal state's list has every generation that ended so, as many as the lane counts, the last to end first.
func listTerminal(t *testing.T, s *shardtest.Shard, l shard.LaneRecord, list func(shard.GenerationState, int) []shard.ListItem) {
	t.Helper()
	for state := shard.StateDelivered; state <= shard.StateSuperseded; state++ {
		whole := list(state, 1000)
		if uint64(len(whole)) != l.Counts.Terminal[state-shard.StateDelivered] {
			t.Errorf("lane %d lists %d %s, and counts %v", l.ID, len(whole), state, l.Counts.Terminal)
		}
		for i, it := range whole {
			g, err := shard.GetGeneration(s.State, it.Ref)
			if err != nil || g == nil || g.State != state || g.TerminalAt != it.At {
				t.Errorf("%s is listed as %s at %d: %+v %v", it.Ref.ID, state, it.At, g, err)
			}
			if i > 0 && whole[i-1].At < it.At {
				t.Errorf("lane %d, %s is not listed newest first", l.ID, state)
			}
		}
		for _, limit := range []int{1, 3} {
			if got := list(state, limit); !slices.Equal(refs(got), refs(whole)) {
				t.Errorf("lane %d, %s by pages of %d differs", l.ID, state, limit)
			}
		}
		oldest, any, err := shard.OldestTerminal(s.State, l.ID, state)
		if err != nil || any != (len(whole) > 0) || any && oldest != whole[len(whole)-1].At {
			t.Errorf("oldest %s of lane %d: %d %v %v", state, l.ID, oldest, any, err)
		}
	}
}

// TestListDeadLetters: every dead letter and expired generation once, newest first, over any page size and filter.
func TestListDeadLetters(t *testing.T) {
	s := crowd(t, 2)
	var want uint64
	for _, l := range lanes(t, s.State) {
		want += l.Counts.Terminal[shard.StateDeadLettered-shard.StateDelivered] + l.Counts.Terminal[shard.StateExpired-shard.StateDelivered]
	}
	list := func(limit int, keep func(shard.ListItem) bool) []shard.ListItem {
		return pages(t, limit, func(cursor []byte) ([]shard.ListItem, []byte, error) {
			return shard.ListDeadLetters(s.State, cursor, limit, keep)
		})
	}
	whole := list(1000, nil)
	if uint64(len(whole)) != want || want < 10 {
		t.Fatalf("%d dead letters are listed, the lanes count %d", len(whole), want)
	}
	for i, it := range whole {
		rec, err := shard.GetDeadLetter(s.State, it.Ref)
		if err != nil || rec == nil || rec.FailedAt != it.At || rec.Lane != it.Lane || rec.State != it.State || rec.Reason != it.Reason {
			t.Errorf("listed %+v, record %+v, %v", it, rec, err)
		}
		if i > 0 && whole[i-1].At < it.At {
			t.Error("not newest first")
		}
	}
	expired := func(it shard.ListItem) bool { return it.State == shard.StateExpired }
	want2 := slices.DeleteFunc(slices.Clone(whole), func(it shard.ListItem) bool { return !expired(it) })
	for _, limit := range []int{1, 2, 5} {
		if got := list(limit, nil); !slices.Equal(refs(got), refs(whole)) {
			t.Errorf("by pages of %d: %q", limit, refs(got))
		}
		if got := list(limit, expired); !slices.Equal(refs(got), refs(want2)) {
			t.Errorf("expired by pages of %d: %q, want %q", limit, refs(got), refs(want2))
		}
	}
}

// TestListScanBound: a filter that keeps little looks at MaxListScan entries a page and says where to go on.
func TestListScanBound(t *testing.T) {
	s := shardtest.NewShard()
	many(t, s, shard.MaxListScan+50)
	l := lanes(t, s.State)[0]
	none := func(shard.ListItem) bool { return false }
	items, more, err := shard.ListDeadLetters(s.State, nil, 10, none)
	if err != nil || len(items) != 0 || more == nil {
		t.Fatalf("%d items, more %x, %v: want an empty page with a successor", len(items), more, err)
	}
	if items, more, err = shard.ListDeadLetters(s.State, more, 10, none); err != nil || len(items) != 0 || more != nil {
		t.Fatalf("%d items, more %x, %v: want the end", len(items), more, err)
	}
	items, more, err = shard.ListMessages(s.State, l.ID, shard.StateScheduled, nil, 10)
	if err != nil || len(items) != 0 || more == nil {
		t.Fatalf("%d items, more %x, %v: want an empty page with a successor", len(items), more, err)
	}
	if items, more, err = shard.ListMessages(s.State, l.ID, shard.StateScheduled, more, 10); err != nil || len(items) != 1 || more != nil {
		t.Fatalf("%d items, more %x, %v: want the one that is pending, and the end", len(items), more, err)
	}
	// A terminal state has its own index: no scan, whatever lies between.
	if items, more, err = shard.ListMessages(s.State, l.ID, shard.StateCancelled, nil, 10); err != nil || len(items) != 0 || more != nil {
		t.Fatalf("%d items, more %x, %v", len(items), more, err)
	}
}

// many makes one pending message and n expired ones behind it.
func many(t *testing.T, s *shardtest.Shard, n int) {
	t.Helper()
	run := func(cmds []shard.Command) {
		s.Index++
		apply(t, s.Machine, s.State, &shard.Entry{Index: s.Index, Stamp: s.Now, Owner: s.Owner, Commands: cmds})
	}
	run([]shard.Command{&shard.InstallDestination{Destination: shardtest.Destination("d")}, s.Submit("d", "pending")})
	var submits, expires []shard.Command
	for range n {
		c := s.Submit("d", "x")
		c.ExpireAt = s.Now.Add(time.Second)
		submits = append(submits, c)
		expires = append(expires, &shard.Expire{ID: c.ID, Generation: 1})
	}
	run(submits)
	s.Advance(time.Second)
	run(expires)
}

// TestCursorsStayInside: a cursor is a client's page token. Whatever bytes it holds, a listing never leaves its own range or fails.
func TestCursorsStayInside(t *testing.T) {
	s := crowd(t, 3)
	all := lanes(t, s.State)
	cursors := [][]byte{nil, {0}, {0xff}, {0x16}, {0x11}, {0x0f}, {0x0e, 1}, []byte("nonsense"), {0x16, 0, 0, 0, 1}, {0x16, 0, 0, 0, 2, 0xff}, {0x0f, 0, 0, 0, 9}}
	for _, l := range all { // real cursors, of other listings too
		for _, state := range []shard.GenerationState{shard.StateUnspecified, shard.StateDelivered, shard.StateExpired} {
			items, _, err := shard.ListMessages(s.State, l.ID, state, nil, 3)
			if err != nil {
				t.Fatal(err)
			}
			for _, it := range items {
				cursors = append(cursors, it.Cursor)
			}
		}
	}
	for _, c := range cursors {
		for _, l := range all {
			for state := shard.StateUnspecified; state <= shard.StateSuperseded; state++ {
				items, _, err := shard.ListMessages(s.State, l.ID, state, c, 100)
				if err != nil {
					t.Fatalf("lane %d, %s, cursor %x: %v", l.ID, state, c, err)
				}
				checkInside(t, s, l, items)
			}
			for _, target := range l.Targets {
				if _, err := shard.ScanDue(s.State, l.ID, target.ID, shard.DueCursor(c), 100); err != nil {
					t.Fatalf("due of lane %d, cursor %x: %v", l.ID, c, err)
				}
			}
		}
		if _, _, err := shard.ListDeadLetters(s.State, c, 100, nil); err != nil {
			t.Fatalf("dead letters, cursor %x: %v", c, err)
		}
		if _, err := shard.ScanUncertain(s.State, c, 100); err != nil {
			t.Fatalf("uncertain, cursor %x: %v", c, err)
		}
		if _, err := shard.ScanOpenAttempts(s.State, shard.OpenCursor(c), 100); err != nil {
			t.Fatalf("open, cursor %x: %v", c, err)
		}
	}
}

func checkInside(t *testing.T, s *shardtest.Shard, l shard.LaneRecord, items []shard.ListItem) {
	t.Helper()
	for _, it := range items {
		g, err := shard.GetGeneration(s.State, it.Ref)
		if err != nil || g == nil || g.Lane != l.ID {
			t.Fatalf("%s is listed in lane %d: %+v %v", it.Ref.ID, l.ID, g, err)
		}
	}
}

// TestScans: the runtime's scans give the same by any page size: due work, open attempts, deadlines, the inbox.
func TestScans(t *testing.T) {
	s := crowd(t, 4)
	total := 0
	for _, l := range lanes(t, s.State) {
		for _, target := range l.Targets {
			whole := scanDue(t, s.State, l.ID, target.ID, 1000)
			total += len(whole)
			for i, it := range whole {
				if i > 0 && whole[i-1].Due > it.Due {
					t.Errorf("lane %d is not in the order of falling due", l.ID)
				}
			}
			for _, limit := range []int{1, 2} {
				if got := scanDue(t, s.State, l.ID, target.ID, limit); len(got) != len(whole) || len(got) > 0 && got[len(got)-1].Ref != whole[len(whole)-1].Ref {
					t.Errorf("due of lane %d by pages of %d: %d, want %d", l.ID, limit, len(got), len(whole))
				}
			}
		}
	}
	all, err := shard.ScanDeadlines(s.State, policy.MaxTime, 1000)
	if err != nil || len(all) == 0 || total == 0 {
		t.Fatalf("%d deadlines, %d due, %v", len(all), total, err)
	}
	at, any, err := shard.NextDeadline(s.State)
	if err != nil || !any || at != all[0].At {
		t.Errorf("next deadline %d %v %v, want %d", at, any, err, all[0].At)
	}
	for i, it := range all {
		upTo, err := shard.ScanDeadlines(s.State, it.At, 1000)
		if err != nil || len(upTo) <= i || upTo[len(upTo)-1].At != it.At {
			t.Errorf("deadlines up to %d: %d %v", it.At, len(upTo), err)
		}
	}
}

func scanDue(t *testing.T, r shard.Reader, l shard.LaneID, target shard.TargetID, limit int) []shard.DueItem {
	t.Helper()
	var all []shard.DueItem
	var cursor shard.DueCursor
	for range 1000 {
		items, err := shard.ScanDue(r, l, target, cursor, limit)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, items...)
		if len(items) < limit {
			return all
		}
		cursor = items[len(items)-1].Cursor
	}
	t.Fatal("the scan does not end")
	return nil
}

// TestLaneListings: lanes by number and by name, page by page.
func TestLaneListings(t *testing.T) {
	s := crowd(t, 5)
	all := lanes(t, s.State)
	var byNumber, byName []shard.LaneID
	for from := shard.LaneID(0); ; {
		l, err := shard.ScanLanes(s.State, from, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(l) == 0 {
			break
		}
		for _, rec := range l {
			byNumber = append(byNumber, rec.ID)
		}
		from = l[len(l)-1].ID
	}
	destination, slot := "", uint32(0)
	for {
		l, err := shard.ScanLaneNames(s.State, "default", destination, slot, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(l) == 0 {
			break
		}
		for _, rec := range l {
			byName = append(byName, rec.ID)
			got, ok, err := shard.LaneByName(s.State, rec.Namespace, rec.Destination, rec.Slot)
			if err != nil || !ok || got.ID != rec.ID {
				t.Errorf("lane %s slot %d by name: %d %v %v", rec.Destination, rec.Slot, got.ID, ok, err)
			}
		}
		last := l[len(l)-1]
		if len(destination) > len(last.Destination) || len(destination) == len(last.Destination) && destination > last.Destination ||
			destination == last.Destination && slot >= last.Slot {
			t.Fatalf("%s slot %d comes after %s slot %d", last.Destination, last.Slot, destination, slot)
		}
		destination, slot = last.Destination, last.Slot
	}
	if len(byNumber) != len(all) || len(byName) != len(all) || !slices.IsSorted(byNumber) {
		t.Errorf("by number %v, by name %v, want %d each", byNumber, byName, len(all))
	}
	if l, err := shard.ScanLanes(s.State, 1<<32-1, 10); err != nil || len(l) != 0 {
		t.Errorf("after the last number: %v %v", l, err)
	}
	if l, err := shard.ScanLaneNames(s.State, "other", "", 0, 10); err != nil || len(l) != 0 {
		t.Errorf("another namespace lists %v, %v", l, err)
	}
}
