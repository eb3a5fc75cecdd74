package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// maxProblems bounds a Report; a directory with more is beyond reading one by one.
const maxProblems = 1000

// GroupCheck lets the caller, who knows what the bytes mean, check the state of one group. Each error that it returns is one problem.
type GroupCheck func(ctx context.Context, group uint32, state *Snapshot) []error

// Progress tells how far Verify is.
type Progress struct {
	Stage string // "tables", "log", "state"
	Done  int    // tables or groups
	Total int
}

// Problem is one thing that is wrong.
type Problem struct {
	Where string // "identity", "log", "state", or a file
	Group uint32 // for problems of one group, see InGroup
	// InGroup tells whether Group means something.
	InGroup bool
	Err     error
}

// Report is what Verify found.
type Report struct {
	Identity    Identity
	Node        string
	Incarnation uint64
	Groups      []GroupReport
	Tables      int // tables whose checksums were verified
	Problems    []Problem
	Truncated   bool // there are more problems than listed
}

// GroupReport is what a group holds.
type GroupReport struct {
	Group          uint32
	FirstIndex     uint64 // of the log; 0 if empty
	LastIndex      uint64
	LogEntries     uint64
	SentinelIndex  uint64
	MarkerIndex    uint64
	PendingInstall uint64 // applied index of a received state that the next start installs; 0 if none
	DurableApplied uint64
	StateKeys      uint64
	StateBytes     uint64 // keys and values
}

// OK tells whether nothing is wrong.
func (r *Report) OK() bool { return len(r.Problems) == 0 }

func (r *Report) add(p Problem) {
	if len(r.Problems) >= maxProblems {
		r.Truncated = true
		return
	}
	r.Problems = append(r.Problems, p)
}

func (r *Report) problem(where string, err error) { r.add(Problem{Where: where, Err: err}) }

func (r *Report) inGroup(where string, group uint32, err error) {
	r.add(Problem{Where: where, Group: group, InGroup: true, Err: err})
}

// Verify checks the directory of a stopped node and changes nothing in it but its lock file: format, identity, Pebble's checksums of
// every table, and per group every log entry, continuity, terms, sentinel, marker, where log and state meet, and that the whole state can
// be read. It reports everything that it finds and does not stop at the first problem. progress may be nil. The error says why it could
// not check at all: ErrLocked, ErrFormatVersion, no such directory, the context's.
func Verify(ctx context.Context, dir string, progress func(Progress), checks ...GroupCheck) (Report, error) {
	return VerifyFS(ctx, vfs.Default, dir, progress, checks...)
}

// VerifyFS is Verify on another file system.
func VerifyFS(ctx context.Context, fs vfs.FS, dir string, progress func(Progress), checks ...GroupCheck) (Report, error) {
	v := verifier{ctx: ctx, fs: fs, dir: dir, progress: progress, checks: checks}
	if v.progress == nil {
		v.progress = func(Progress) {}
	}
	if _, err := fs.Stat(dir); err != nil {
		return v.report, fmt.Errorf("verify %s: %w", dir, err)
	}
	lock := &Store{opts: Options{Dir: dir, FS: fs}}
	if err := lock.takeLock(); err != nil {
		return v.report, err
	}
	err := v.run()
	return v.report, errors.Join(err, lock.lock.Close())
}

type verifier struct {
	ctx      context.Context
	fs       vfs.FS
	dir      string
	progress func(Progress)
	checks   []GroupCheck
	report   Report
}

func (v *verifier) run() (err error) {
	f, found, err := readIdentity(v.fs, v.dir)
	switch {
	case errors.Is(err, ErrFormatVersion):
		return err
	case err != nil:
		v.report.problem("identity", err)
	case !found:
		v.report.problem("identity", fmt.Errorf("%w: no %s file", ErrCorrupt, identityName))
	case !f.ready:
		return nil // creation was interrupted; nothing was ever stored
	}
	v.report.Identity, v.report.Node, v.report.Incarnation = f.Identity, f.node, f.incarnation
	log := v.openInstance(logName)
	state := v.openInstance(stateName)
	defer func() {
		for _, db := range []*pebble.DB{log, state} {
			if db != nil {
				err = errors.Join(err, recovered(db.Close))
			}
		}
	}()
	for _, instance := range []struct {
		name string
		db   *pebble.DB
	}{{logName, log}, {stateName, state}} {
		if instance.db == nil {
			continue
		}
		if found {
			v.checkID(instance.name, instance.db, f.StoreID)
		}
		if err := v.checkTables(instance.name, instance.db); err != nil {
			return err
		}
	}
	return v.checkGroups(log, state)
}

// openInstance opens one instance read-only; nil after a problem.
func (v *verifier) openInstance(name string) *pebble.DB {
	o := v.options()
	db, err := pebble.Open(v.fs.PathJoin(v.dir, name), o)
	if err != nil {
		v.report.problem(name, fmt.Errorf("%w: cannot be opened: %w", ErrCorrupt, err))
		return nil
	}
	return db
}

// options never stop the process: a damaged block is a problem to report.
func (v *verifier) options() *pebble.Options {
	return &pebble.Options{
		FS: v.fs, ReadOnly: true, ErrorIfNotExists: true, FormatMajorVersion: formatMajor, Logger: silent{},
		EventListener: &pebble.EventListener{
			BackgroundError: func(error) {},
			DataCorruption:  func(pebble.DataCorruptionInfo) {},
		},
	}
}

type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(string, ...any) {}

func (v *verifier) checkID(name string, db *pebble.DB, want [16]byte) {
	id, found, err := getCopy(db, storeIDKey)
	switch {
	case err != nil:
		v.report.problem(name, err)
	case !found:
		v.report.problem(name, fmt.Errorf("%w: no store id", ErrCorrupt))
	case !bytes.Equal(id, want[:]):
		v.report.problem(name, fmt.Errorf("%w: store id %x, the directory's is %x", ErrIdentity, id, want))
	}
}

// checkTables reads every block of every live table and compares Pebble's checksums. Values in blob files are read with the groups.
func (v *verifier) checkTables(name string, db *pebble.DB) error {
	levels, err := db.SSTables()
	if err != nil {
		v.report.problem(name, fmt.Errorf("list tables: %w", err))
		return nil
	}
	seen := map[string]bool{} // virtual tables share their file
	var files []string
	for _, level := range levels {
		for i := range level {
			file := fmt.Sprintf("%06d.sst", uint64(level[i].BackingSSTNum))
			if !seen[file] {
				seen[file] = true
				files = append(files, file)
			}
		}
	}
	for i, file := range files {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		v.progress(Progress{Stage: "tables", Done: i, Total: len(files)})
		if err := v.checkTable(v.fs.PathJoin(v.dir, name, file)); err != nil {
			v.report.problem(name+"/"+file, fmt.Errorf("%w: %w", ErrCorrupt, err))
		}
		v.report.Tables++
	}
	if err := db.CheckLevels(nil); err != nil {
		v.report.problem(name, fmt.Errorf("%w: order of levels: %w", ErrCorrupt, err))
	}
	return nil
}

func (v *verifier) checkTable(path string) error {
	file, err := v.fs.Open(path)
	if err != nil {
		return err
	}
	readable, err := sstable.NewSimpleReadable(file)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	o := v.options()
	o.EnsureDefaults()
	reader, err := sstable.NewReader(v.ctx, readable, o.MakeReaderOptions())
	if err != nil {
		return errors.Join(err, readable.Close())
	}
	return errors.Join(reader.ValidateBlockChecksums(), reader.Close())
}
