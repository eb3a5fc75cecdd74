package robustness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// clusterFaults are leaders and replicas that move, nodes that come and go, and damaged directories.
func clusterFaults() []Fault {
	return []Fault{
		{Name: "transfer", Weight: 3, Planned: true, Do: func(ctx context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
			s := uint32(random.IntN(int(r.o.Shards)))
			return fmt.Sprint("shard ", s), nil, r.Transfer(ctx, s, "")
		}},
		{Name: "F12 flapping", Weight: 3, Planned: true, Do: flap},
		{Name: "F13 cut transfer", Weight: 3, Hold: span2(2*time.Second, 6*time.Second), Do: cutTransfer},
		{Name: "drain and activate", Weight: 2, Planned: true, Alone: true, Do: func(ctx context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
			m := r.Pick(random)
			if m == nil {
				return "", nil, errNobody
			}
			return m.ID, func(ctx context.Context) error { return r.Activate(ctx, m.ID) }, r.Drain(ctx, m.ID)
		}},
		{Name: "F20 away for long", Weight: 2, Hold: span2(12*time.Second, 18*time.Second), Do: func(_ context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
			return r.killSeveral(random, 1)
		}},
		{Name: "F21 come and go", Weight: 3, Alone: true, Do: comeAndGo},
		{Name: "F22 removed while cut off", Weight: 1, Alone: true, Do: removedWhileCutOff},
		{Name: "F23 wiped disk", Weight: 2, Alone: true, Do: wiped},
		{Name: "F5 torn write", Weight: 3, Hold: span2(0, time.Second), Do: torn},
		{Name: "F6 flipped bit", Weight: 2, Alone: true, Do: flipped},
	}
}

// flap moves leaderships about for a few seconds, as fast as it goes.
func flap(ctx context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
	until, n := time.Now().Add(time.Duration(2+random.IntN(3))*time.Second), 0
	for time.Now().Before(until) {
		// A refusal is no harm: the shard may be between two leaders. What counts is what the audit says.
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		if err := r.Transfer(call, uint32(random.IntN(int(r.o.Shards))), ""); err == nil {
			n++
		}
		cancel()
		pause(ctx, time.Duration(random.IntN(200))*time.Millisecond)
	}
	return fmt.Sprintf("%d transfers", n), nil, nil
}

// cutTransfer begins a transfer and cuts its target off in the middle.
func cutTransfer(ctx context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
	shard := uint32(random.IntN(int(r.o.Shards)))
	leader := r.Leader(ctx, shard)
	if leader == nil {
		return "", nil, errNobody
	}
	target := leader
	for _, m := range r.several(random, len(r.Members())) {
		if m != leader {
			target = m
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		call, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_ = r.Transfer(call, shard, target.ID) // it may fail: that is what is tried
	}()
	pause(ctx, time.Duration(random.IntN(60))*time.Millisecond)
	list := both([]string{leader.ID}, []string{target.ID})
	err := r.cut(ctx, list)
	undo := func(ctx context.Context) error {
		err := r.heal(ctx, list)
		<-done
		return err
	}
	return fmt.Sprintf("shard %d, %s to %s", shard, leader.ID, target.ID), undo, err
}

// comeAndGo lets a node join where there are few, and removes one where there are many.
func comeAndGo(ctx context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
	members := r.Members()
	if len(members) <= r.o.Nodes {
		id := r.newID()
		if _, err := r.Join(ctx, id); err != nil {
			return id + " joins", nil, err
		}
		return id + " joins", nil, r.AwaitReplicas(ctx)
	}
	m := members[random.IntN(len(members))]
	return m.ID + " leaves", nil, r.Leave(ctx, m)
}

// Leave removes a node that runs, waits until it has, and stops it.
func (r *Run) Leave(ctx context.Context, m *Member) error {
	m.MayEnd.Store(true) // it ends by itself when it learns that it has left
	if err := r.Remove(ctx, m.ID, false); err != nil {
		return err
	}
	m.Gone.Store(true)
	return r.Kill(m)
}

// Replace takes a node that will not come back out of the cluster and lets a new one join for it.
func (r *Run) Replace(ctx context.Context, m *Member) error {
	m.Gone.Store(true)
	if err := r.Kill(m); err != nil {
		return err
	}
	if err := r.Remove(ctx, m.ID, true); err != nil {
		return fmt.Errorf("removal: %w", err)
	}
	if _, err := r.Join(ctx, r.newID()); err != nil {
		return fmt.Errorf("join: %w", err)
	}
	return r.AwaitReplicas(ctx)
}

// newID is an id that no node has had.
func (c *Cluster) newID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("n%d", len(c.all)+1)
}

// AwaitReplicas waits until every shard has three voters, or as many as there are nodes, and none that is on its way.
func (c *Cluster) AwaitReplicas(ctx context.Context) error {
	for {
		missing := "nobody answers"
		for _, v := range c.View(ctx) {
			if missing = unfinished(v, min(3, len(c.Members()))); missing == "" {
				return nil
			}
		}
		if !pause(ctx, 100*time.Millisecond) {
			return fmt.Errorf("%s: %w", missing, ctx.Err())
		}
	}
}

// removedWhileCutOff removes a node that cannot hear of it, and lets it return.
func removedWhileCutOff(ctx context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
	m := r.Pick(random)
	if m == nil {
		return "", nil, errNobody
	}
	if err := r.o.Net.Unplug(ctx, m.ID); err != nil {
		return m.ID, nil, err
	}
	m.Gone.Store(true)
	m.MayEnd.Store(true) // it may end when it learns what happened
	if err := r.Remove(ctx, m.ID, true); err != nil {
		return m.ID, nil, errors.Join(err, r.o.Net.Plug(ctx, m.ID))
	}
	if err := r.o.Net.Plug(ctx, m.ID); err != nil {
		return m.ID, nil, err
	}
	pause(ctx, 3*time.Second) // it disturbs, if it can
	if err := r.Kill(m); err != nil {
		return m.ID, nil, err
	}
	if _, err := r.Join(ctx, r.newID()); err != nil {
		return m.ID, nil, err
	}
	return m.ID, nil, r.AwaitReplicas(ctx)
}

// wiped starts a node on an empty directory: it must be refused, and then be replaced.
func wiped(ctx context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
	m := r.Pick(random)
	if m == nil {
		return "", nil, errNobody
	}
	if err := r.Kill(m); err != nil {
		return m.ID, nil, err
	}
	if err := r.Wipe(m); err != nil {
		return m.ID, nil, err
	}
	if err := r.Launch(m); err != nil {
		return m.ID, nil, err
	}
	m.MayEnd.Store(true)
	waiting, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	select {
	case <-m.Ended():
	case <-waiting.Done():
		if out := m.Output(); strings.Contains(out, "waiting for the other nodes of the initial cluster") || strings.Contains(out, "waiting to join the cluster") {
			// The nodes that it was told to ask have left the cluster, so nobody can tell it; it founds nothing without them, and takes no part.
			if err := r.Kill(m); err != nil {
				return m.ID, nil, err
			}
			return m.ID + ", waited for nodes that are gone, and replaced", nil, r.Replace(ctx, m)
		}
		return m.ID, nil, fmt.Errorf("%s started on an empty directory and was not refused within 30 s:\n%s", m.ID, lastLines(m.Output(), 10))
	}
	return m.ID + ", refused and replaced", nil, r.Replace(ctx, m)
}

// torn writes a part of a record at the end of the newest write-ahead log, as a loss of power does: the start must get over it.
func torn(_ context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
	m := r.Pick(random)
	if m == nil {
		return "", nil, errNobody
	}
	if err := r.Kill(m); err != nil {
		return m.ID, nil, err
	}
	name, err := newest(filepath.Join(m.Dir, "log"), ".log")
	if err != nil {
		return m.ID, nil, err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return m.ID, nil, err
	}
	garbage := make([]byte, 1+random.IntN(2000))
	for i := range garbage {
		garbage[i] = byte(random.Uint32())
	}
	_, err = f.Write(garbage)
	return fmt.Sprintf("%s: %d bytes after %s", m.ID, len(garbage), filepath.Base(name)), nil, errors.Join(err, f.Close())
}

// newest is the file of a directory that was written last, among those with a suffix.
func newest(dir, suffix string) (string, error) {
	found, when := "", time.Time{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, suffix) {
			return err
		}
		info, err := d.Info()
		if err == nil && info.ModTime().After(when) {
			found, when = path, info.ModTime()
		}
		return err
	})
	if err == nil && found == "" {
		err = fmt.Errorf("%s has no %s file", dir, suffix)
	}
	return found, err
}

// flipped flips one bit in one file at rest. The node must notice and stop, now or when it reads there, or live with it where the bit means
// nothing; it must never serve what is wrong. It is replaced in the end: a damaged directory is not trusted again.
func flipped(ctx context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
	m := r.Pick(random)
	if m == nil {
		return "", nil, errNobody
	}
	if err := r.Kill(m); err != nil {
		return m.ID, nil, err
	}
	var files []string
	for _, suffix := range []string{".sst", ".log"} {
		if f, err := newest(m.Dir, suffix); err == nil {
			files = append(files, f)
		}
	}
	for _, dir := range []string{"log", "state"} {
		names, err := filepath.Glob(filepath.Join(m.Dir, dir, "MANIFEST-*"))
		if err == nil {
			files = append(files, names...)
		}
	}
	slices.Sort(files)
	if len(files) == 0 {
		return m.ID, nil, fmt.Errorf("%s has no files to damage", m.Dir)
	}
	name := files[random.IntN(len(files))]
	what, err := flip(name, random)
	if err != nil {
		return m.ID, nil, err
	}
	if err := r.Launch(m); err != nil {
		return m.ID, nil, err
	}
	m.MayEnd.Store(true)
	what = fmt.Sprintf("%s: %s", m.ID, what)
	waiting, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := m.Ready(waiting); err != nil {
		what += ", refused"
	} else {
		what += ", went on"
		pause(ctx, 3*time.Second)
	}
	return what, nil, r.Replace(ctx, m)
}

// flip changes one bit of a file.
func flip(name string, random *rand.Rand) (string, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	if len(b) == 0 {
		return filepath.Base(name) + " is empty", nil
	}
	at := random.IntN(len(b))
	b[at] ^= 1 << random.IntN(8)
	return fmt.Sprintf("%s at %d of %d", filepath.Base(name), at, len(b)), os.WriteFile(name, b, 0o600)
}
