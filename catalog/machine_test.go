package catalog_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
	"github.com/sealane/sealane/shard/shardtest"
	"pgregory.net/rapid"
)

// group is a control group over a state in memory.
type group struct {
	t     testing.TB
	st    *shardtest.Mem
	index uint64
	now   policy.Time
}

func newGroup(t testing.TB) *group { return &group{t: t, st: shardtest.NewMem(), now: 1000} }

func (g *group) run(cmds ...catalog.Command) []catalog.Result {
	g.t.Helper()
	g.index++
	results, err := catalog.Apply(g.st, &catalog.Entry{Index: g.index, Stamp: g.now, Commands: cmds})
	if err != nil {
		g.t.Fatal(err)
	}
	return results
}

func (g *group) one(c catalog.Command) catalog.Result { g.t.Helper(); return g.run(c)[0] }

func named(name string, spread uint32) *catalog.ApplyDestination {
	d := valid()
	d.Name, d.Lane.Spread = name, spread
	return &catalog.ApplyDestination{Namespace: "default", Spec: d}
}

// TestVersions: what differs makes the next version, what does not makes none, and a version never changes.
func TestVersions(t *testing.T) {
	g := newGroup(t)
	first := g.one(named("a", 2))
	if first.Err != nil || !first.Changed || first.Version.Version != 1 || first.Version.CreatedAt != 1000 || first.Index != 1 {
		t.Fatalf("%+v", first)
	}
	g.now = 2000
	if same := g.one(named("a", 2)); same.Err != nil || same.Changed || !reflect.DeepEqual(same.Version, first.Version) {
		t.Errorf("the same again: %+v", same)
	}
	other := named("a", 2)
	other.Spec.HTTP.URL = "https://elsewhere"
	if next := g.one(other); next.Err != nil || !next.Changed || next.Version.Version != 2 || next.Version.CreatedAt != 2000 {
		t.Errorf("another target: %+v", next)
	}
	if back := g.one(named("a", 2)); !back.Changed || back.Version.Version != 3 {
		t.Errorf("back to the first definition is a version of its own: %+v", back)
	}
	old, ok, err := catalog.GetVersion(g.st, "default", "a", 1)
	if err != nil || !ok || !reflect.DeepEqual(old, first.Version) {
		t.Errorf("version 1 is now %+v %v %v", old, ok, err)
	}
	newest, ok, err := catalog.Newest(g.st, "default", "a")
	if err != nil || !ok || newest.Version != 3 {
		t.Errorf("newest %+v %v %v", newest, ok, err)
	}
	if _, ok, err := catalog.GetVersion(g.st, "default", "a", 4); ok || err != nil {
		t.Errorf("version 4: %v %v", ok, err)
	}
	if _, ok, err := catalog.Newest(g.st, "other", "a"); ok || err != nil {
		t.Errorf("another namespace sees it: %v %v", ok, err)
	}
}

// TestSpreadIsFixed: it decides where messages live, so it stays, also over a deletion.
func TestSpreadIsFixed(t *testing.T) {
	g := newGroup(t)
	g.one(named("a", 2))
	if r := g.one(named("a", 3)); !errors.Is(r.Err, catalog.ErrSpreadFixed) || r.Changed || !strings.Contains(r.Err.Error(), "2") {
		t.Errorf("another spread: %+v", r)
	}
	g.one(&catalog.DeleteDestination{Namespace: "default", Name: "a"})
	if r := g.one(named("a", 3)); !errors.Is(r.Err, catalog.ErrSpreadFixed) {
		t.Errorf("another spread after a deletion: %+v", r)
	}
	if r := g.one(named("a", 2)); r.Err != nil || r.Version.Version != 3 || r.Version.Deleted {
		t.Errorf("the same spread after a deletion: %+v", r)
	}
	if r := g.one(named("b", 3)); r.Err != nil {
		t.Errorf("another destination: %+v", r)
	}
}

// TestDelete: a deleted destination keeps its versions, leaves the listing, and comes back with the next version.
func TestDelete(t *testing.T) {
	g := newGroup(t)
	remove := &catalog.DeleteDestination{Namespace: "default", Name: "a"}
	if r := g.one(remove); !errors.Is(r.Err, catalog.ErrNotFound) {
		t.Errorf("what is not there: %+v", r)
	}
	g.one(named("a", 1))
	if r := g.one(&catalog.DeleteDestination{Namespace: "other", Name: "a"}); !errors.Is(r.Err, catalog.ErrNotFound) {
		t.Errorf("in another namespace: %+v", r)
	}
	r := g.one(remove)
	if r.Err != nil || !r.Changed || !r.Version.Deleted || r.Version.Version != 2 || r.Version.Spec.Name != "a" {
		t.Errorf("deleted: %+v", r)
	}
	if r := g.one(remove); !errors.Is(r.Err, catalog.ErrNotFound) {
		t.Errorf("deleted twice: %+v", r)
	}
	if l, err := catalog.List(g.st, "default", "", 10); err != nil || len(l) != 0 {
		t.Errorf("still listed: %v %v", l, err)
	}
	if v, ok, err := catalog.Newest(g.st, "default", "a"); err != nil || !ok || !v.Deleted {
		t.Errorf("newest %+v %v %v", v, ok, err)
	}
	if r := g.one(named("a", 1)); r.Err != nil || !r.Changed || r.Version.Version != 3 || r.Version.Deleted {
		t.Errorf("applied again: %+v", r)
	}
	if versions := all(t, g.st); !slices.Equal(versions, []string{"a 1", "a 2 deleted", "a 3"}) {
		t.Errorf("versions %q", versions)
	}
}

func all(t *testing.T, r catalog.Reader) []string {
	t.Helper()
	var out []string
	err := catalog.All(r, func(v catalog.Version) error {
		s := fmt.Sprint(v.Spec.Name, " ", v.Version)
		if v.Deleted {
			s += " deleted"
		}
		out = append(out, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestCluster: what the first command fixes, a repeated one must agree with.
func TestCluster(t *testing.T) {
	g := newGroup(t)
	if _, ok, err := catalog.GetCluster(g.st); ok || err != nil {
		t.Fatalf("before: %v %v", ok, err)
	}
	found := &catalog.FoundCluster{Incarnation: 7, Shards: 16}
	if r := g.one(found); r.Err != nil || !r.Changed {
		t.Errorf("%+v", r)
	}
	g.now = 2000
	if r := g.one(found); r.Err != nil || r.Changed {
		t.Errorf("again: %+v", r)
	}
	for _, other := range []*catalog.FoundCluster{{Incarnation: 8, Shards: 16}, {Incarnation: 7, Shards: 4}} {
		if r := g.one(other); !errors.Is(r.Err, catalog.ErrForeignState) || r.Changed {
			t.Errorf("%+v: %+v", other, r)
		}
	}
	if c, ok, err := catalog.GetCluster(g.st); err != nil || !ok || c != (catalog.Cluster{Incarnation: 7, Shards: 16, FoundedAt: 1000}) {
		t.Errorf("%+v %v %v", c, ok, err)
	}
}

// TestStops: an unknown command stops the group, and damaged state is called so.
func TestStops(t *testing.T) {
	if _, err := catalog.Apply(shardtest.NewMem(), &catalog.Entry{Index: 3, Commands: []catalog.Command{nil}}); !errors.Is(err, catalog.ErrUnknownCommand) || !strings.Contains(err.Error(), "index 3") {
		t.Errorf("%v", err)
	}
	g := newGroup(t)
	g.one(named("a", 1))
	var keys [][]byte
	_ = g.st.Scan(nil, nil, false, func(k, _ []byte) (bool, error) { keys = append(keys, k); return true, nil })
	for _, k := range keys {
		st := g.st.Clone()
		if err := st.Set(k, []byte("{")); err != nil {
			t.Fatal(err)
		}
		_, err := catalog.Apply(st, &catalog.Entry{Index: 2, Commands: []catalog.Command{named("a", 1)}})
		if !errors.Is(err, catalog.ErrCorrupt) {
			t.Errorf("key %x damaged: %v", k, err)
		}
	}
}

// TestClock: the group's clock does not fall.
func TestClock(t *testing.T) {
	g := newGroup(t)
	g.one(named("a", 1))
	g.now = 5
	if r := g.one(named("b", 1)); r.Version.CreatedAt != 1000 {
		t.Errorf("created at %d", r.Version.CreatedAt)
	}
}

// TestFull: the bound counts destinations, not versions, and a new version of a known one always fits.
func TestFull(t *testing.T) {
	g := newGroup(t)
	g.one(named("known", 1))
	// The count is a number of its own; what it counts need not be there for the bound to hold.
	if err := g.st.Set([]byte{1}, []byte(fmt.Sprintf(`{"clock":1000,"destinations":%d}`, catalog.MaxDestinations))); err != nil {
		t.Fatal(err)
	}
	if r := g.one(named("one-more", 1)); !errors.Is(r.Err, catalog.ErrFull) || !strings.Contains(r.Err.Error(), "200000") {
		t.Errorf("%+v", r)
	}
	next := named("known", 1)
	next.Spec.Retention++
	if r := g.one(next); r.Err != nil || !r.Changed {
		t.Errorf("a new version: %+v", r)
	}
}

// TestList pages through names in order, whatever the page size, without deleted ones and without other namespaces.
func TestList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		st := shardtest.NewMem()
		want := map[string][]string{}
		var cmds []catalog.Command
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9][a-z0-9._-]{0,3}`), 0, 12, rapid.ID).Draw(t, "names")
		for _, n := range names {
			ns := rapid.SampledFrom([]string{"default", "other", "d"}).Draw(t, "namespace")
			c := named(n, 1)
			c.Namespace = ns
			cmds = append(cmds, c)
			if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
				cmds = append(cmds, &catalog.DeleteDestination{Namespace: ns, Name: n})
			} else {
				want[ns] = append(want[ns], n)
			}
		}
		if _, err := catalog.Apply(st, &catalog.Entry{Index: 1, Commands: cmds}); err != nil {
			t.Fatal(err)
		}
		for _, ns := range []string{"default", "other", "d", "none"} {
			slices.Sort(want[ns])
			limit := rapid.IntRange(1, 5).Draw(t, "limit")
			var got []string
			for after := ""; ; {
				page, err := catalog.List(st, ns, after, limit)
				if err != nil || len(page) > limit {
					t.Fatalf("%d of %d: %v", len(page), limit, err)
				}
				for _, v := range page {
					got = append(got, v.Spec.Name)
					after = v.Spec.Name
				}
				if len(page) < limit {
					break
				}
			}
			if !slices.Equal(got, want[ns]) {
				t.Fatalf("%s by pages of %d: %q, want %q", ns, limit, got, want[ns])
			}
		}
	})
}

// TestReplicas: one log gives one state, whether its commands come in one entry or in several with the same stamp.
func TestReplicas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var cmds []catalog.Command
		for range rapid.IntRange(1, 20).Draw(t, "commands") {
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				cmds = append(cmds, &catalog.DeleteDestination{Namespace: "default", Name: name})
			case 1:
				cmds = append(cmds, &catalog.FoundCluster{Incarnation: rapid.Uint64Range(1, 2).Draw(t, "incarnation"), Shards: 4})
			default:
				c := named(name, rapid.Uint32Range(1, 2).Draw(t, "spread"))
				c.Spec.HTTP.URL = rapid.SampledFrom([]string{"https://x", "https://y"}).Draw(t, "url")
				cmds = append(cmds, c)
			}
		}
		whole, parts := shardtest.NewMem(), shardtest.NewMem()
		a, err := catalog.Apply(whole, &catalog.Entry{Index: 1, Stamp: 9, Commands: cmds})
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range cmds {
			b, err := catalog.Apply(parts, &catalog.Entry{Index: 1, Stamp: 9, Commands: []catalog.Command{c}})
			if err != nil || !reflect.DeepEqual(a[i].Version, b[0].Version) || a[i].Changed != b[0].Changed || fmt.Sprint(a[i].Err) != fmt.Sprint(b[0].Err) {
				t.Fatalf("command %d: %+v, by itself %+v %v", i, a[i], b[0], err)
			}
		}
		x, errX := shard.Digest(whole)
		y, errY := shard.Digest(parts)
		if x != y || errX != nil || errY != nil {
			t.Fatalf("digests differ: %x %x %v %v", x, y, errX, errY)
		}
	})
}
