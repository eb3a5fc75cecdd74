package storage

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// ErrBusy means that as many states are sent, or received, as the store allows at a time, and none ended while the caller waited. Try
// again later.
var ErrBusy = errors.New("storage: too many states are sent or received")

const (
	// MaxExports and MaxReceives bound how many states are read out for other stores, and received from them, at a time. Each costs disk
	// space for a whole state, and a good part of the disk's speed.
	MaxExports  = 2
	MaxReceives = 2

	spoolName     = "snapshots"
	exportPrefix  = "export-"
	installPrefix = "install-"
	headerName    = "HEADER"
	// spoolReserve is the room that must be left on the disk when a state is written to it: the log must be able to go on.
	spoolReserve = 256 << 20
	// defaultTableBytes is what an export aims at for one table.
	defaultTableBytes = 64 << 20
)

// spool is the directory for states that are on their way. What lies in it belongs to an export or a receipt of this process, or to a
// pending install; everything else is left over and removed when the store opens.
type spool struct {
	exports  chan struct{} // a token for each running one
	receives chan struct{}

	mu      sync.Mutex
	next    uint64 // number of the next directory
	pending map[uint32]pendingInstall

	tableBytes uint64 // what an export aims at

	exported, received, installed   atomic.Int64
	exportedBytes, receivedBytes    atomic.Int64
	exportsFailed, receiptsRejected atomic.Int64
}

func (p *spool) init() {
	p.exports, p.receives = make(chan struct{}, MaxExports), make(chan struct{}, MaxReceives)
	p.pending = map[uint32]pendingInstall{}
	p.tableBytes = defaultTableBytes
}

// takeSlot waits for room among those that run.
func takeSlot(ctx context.Context, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	default:
	}
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %d at a time: %w", ErrBusy, cap(slots), ctx.Err())
	}
}

func (s *Store) spoolDir() string { return s.opts.fs().PathJoin(s.opts.Dir, spoolName) }

func (s *Store) spoolPath(name string) string { return s.opts.fs().PathJoin(s.spoolDir(), name) }

func installName(number uint64) string { return installPrefix + strconv.FormatUint(number, 10) }

func tableName(n int) string { return fmt.Sprintf("%06d.sst", n) }

// newSpoolDir makes an empty directory under a number that was not used since the store was opened.
func (s *Store) newSpoolDir(prefix string) (path string, number uint64, err error) {
	s.spool.mu.Lock()
	number = s.spool.next
	s.spool.next++
	s.spool.mu.Unlock()
	fs := s.opts.fs()
	if err := makeDir(fs, s.spoolDir()); err != nil {
		return "", 0, err
	}
	path = s.spoolPath(prefix + strconv.FormatUint(number, 10))
	if err := fs.MkdirAll(path, 0o750); err != nil {
		return "", 0, fmt.Errorf("create %s: %w", path, err)
	}
	return path, number, nil
}

// removeSpool removes what is no longer needed. If it cannot, the next Open does; nothing depends on it.
func (s *Store) removeSpool(path string) {
	if err := s.opts.fs().RemoveAll(path); err != nil && !isNotExist(err) {
		s.opts.Logger.Warn("cannot remove a state that is no longer needed", "path", path, "error", err)
	}
}

// checkRoom refuses to write bytes if the disk would be left without the reserve.
func (s *Store) checkRoom(bytes uint64) error {
	free, err := s.FreeBytes()
	if err != nil {
		return err
	}
	if free < spoolReserve || free-spoolReserve < bytes {
		return fmt.Errorf("%w: %s: %d bytes free, a state needs %d and %d must stay", ErrDiskFull, s.opts.Dir, free, bytes, uint64(spoolReserve))
	}
	return nil
}

// openSpool reads the pending installs and removes everything that is not one of them.
func (s *Store) openSpool() error {
	keep := map[string]bool{}
	var groups []uint32
	if err := eachGroup(s.logDB, kindPending, func(g uint32) { groups = append(groups, g) }); err != nil {
		return err
	}
	for _, g := range groups {
		p, found, err := readPending(s.logDB, g)
		if err != nil {
			return err
		}
		if found {
			s.spool.pending[g] = p
			s.spool.next = max(s.spool.next, p.spool+1)
			keep[installName(p.spool)] = true
		}
	}
	names, err := s.opts.fs().List(s.spoolDir())
	if isNotExist(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", s.spoolDir(), err)
	}
	for _, name := range names {
		ours := strings.HasPrefix(name, exportPrefix) || strings.HasPrefix(name, installPrefix)
		if !ours || keep[name] {
			continue
		}
		s.removeSpool(s.spoolPath(name))
	}
	return nil
}
