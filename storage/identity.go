package storage

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FormatVersion is the version of the directory that this program reads and writes.
const FormatVersion = 2

var (
	// ErrFormatVersion means that the directory was written in another format. The text names both versions. Run a program that knows
	// the directory's version; nothing was changed.
	ErrFormatVersion = errors.New("storage: directory has another format version")
	// ErrIdentity means that the directory belongs to another node, or log and state to different stores. Check which directory is
	// mounted where; never edit the identity file to get past it.
	ErrIdentity = errors.New("storage: directory belongs to another node")
	// ErrNotEmpty means that the directory has no store and is not empty. Check the path; give a store a directory of its own.
	ErrNotEmpty = errors.New("storage: directory is not empty and holds no store")
)

// Identity names a store for the whole of its life.
type Identity struct {
	// StoreID is drawn at random when the directory is created.
	StoreID [16]byte
	// FormatVersion is the directory's format.
	FormatVersion uint32
	// CreatedBy is what Options.CreatedBy said then.
	CreatedBy string
}

// The identity file, text, one field a line, the last line a checksum of the lines before it:
//
//	sealane-store 2
//	store-id 32 hex digits
//	created-by "quoted"
//	ready true
//	node "quoted"          once bound
//	incarnation 7          once bound
//	crc32c 8 hex digits
const (
	identityName  = "IDENTITY"
	identityMagic = "sealane-store"
	maxIdentity   = 4 << 10
	// MaxNodeBytes bounds a node id.
	MaxNodeBytes = 255
)

// identityFile is the decoded file.
type identityFile struct {
	Identity
	ready       bool // both instances exist: from now on a missing one is a loss, not a first start
	node        string
	incarnation uint64
}

func (f identityFile) encode() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %d\nstore-id %x\ncreated-by %q\nready %t\n", identityMagic, f.FormatVersion, f.StoreID[:], f.CreatedBy, f.ready)
	if f.node != "" {
		fmt.Fprintf(&b, "node %q\nincarnation %d\n", f.node, f.incarnation)
	}
	fmt.Fprintf(&b, "crc32c %08x\n", crc32.Checksum(b.Bytes(), castagnoli))
	return b.Bytes()
}

// decodeIdentity checks the version before anything else, so that a newer file is called newer and not damaged.
func decodeIdentity(text []byte) (identityFile, error) {
	var f identityFile
	bad := func(format string, args ...any) (identityFile, error) {
		return identityFile{}, fmt.Errorf("%w: %s: %s", ErrCorrupt, identityName, fmt.Sprintf(format, args...))
	}
	first, _, _ := strings.Cut(string(text), "\n")
	number, found := strings.CutPrefix(first, identityMagic+" ")
	version, err := strconv.ParseUint(number, 10, 32)
	if !found || err != nil {
		return bad("first line %.40q, want %q and a version", first, identityMagic)
	}
	if version != FormatVersion {
		return identityFile{}, fmt.Errorf("%w: directory has version %d, this program knows version %d", ErrFormatVersion, version, FormatVersion)
	}
	f.FormatVersion = uint32(version)
	if len(text) > maxIdentity {
		return bad("%d bytes, want at most %d", len(text), maxIdentity)
	}
	fields, err := identityFields(text, &f)
	if err != nil {
		return bad("%v", err)
	}
	// The only bytes that are accepted are the ones that would be written: this also covers order, spelling and the checksum.
	if got := f.encode(); !bytes.Equal(got, text) {
		return bad("checksum or form is wrong (%d fields read)", fields)
	}
	return f, nil
}

// identityFields reads the lines after the first.
func identityFields(text []byte, f *identityFile) (int, error) {
	n := 0
	for _, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")[1:] {
		name, value, _ := strings.Cut(line, " ")
		var err error
		switch name {
		case "store-id":
			var id []byte
			if id, err = hex.DecodeString(value); err == nil && len(id) != len(f.StoreID) {
				err = fmt.Errorf("%d bytes, want %d", len(id), len(f.StoreID))
			}
			copy(f.StoreID[:], id)
		case "created-by":
			f.CreatedBy, err = strconv.Unquote(value)
		case "ready":
			f.ready, err = strconv.ParseBool(value)
		case "node":
			f.node, err = strconv.Unquote(value)
		case "incarnation":
			f.incarnation, err = strconv.ParseUint(value, 10, 64)
		case "crc32c": // compared as a whole by the caller
		default:
			err = errors.New("unknown field")
		}
		if err != nil {
			return n, fmt.Errorf("field %.40q: %w", name, err)
		}
		n++
	}
	return n, nil
}

// readIdentity gives found false if there is no file.
func readIdentity(fs vfs.FS, dir string) (f identityFile, found bool, err error) {
	file, err := fs.Open(fs.PathJoin(dir, identityName))
	if isNotExist(err) {
		return f, false, nil
	}
	if err != nil {
		return f, false, fmt.Errorf("open %s in %s: %w", identityName, dir, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	text, err := io.ReadAll(io.LimitReader(file, maxIdentity+1))
	if err != nil {
		return f, false, fmt.Errorf("read %s in %s: %w", identityName, dir, err)
	}
	f, err = decodeIdentity(text)
	if err != nil {
		return f, false, fmt.Errorf("%s: %w", dir, err)
	}
	return f, true, nil
}

// writeIdentity replaces the file atomically and durably.
func writeIdentity(fs vfs.FS, dir string, f identityFile) error {
	temp := fs.PathJoin(dir, identityName+".new")
	file, err := fs.Create(temp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("create %s: %w", temp, err)
	}
	_, err = file.Write(f.encode())
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", temp, err)
	}
	if err := fs.Rename(temp, fs.PathJoin(dir, identityName)); err != nil {
		return fmt.Errorf("rename %s: %w", temp, err)
	}
	return syncDir(fs, dir)
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("open directory %s: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}

// Identity gives the names that the directory was created with.
func (s *Store) Identity() Identity {
	s.identityMu.Lock()
	defer s.identityMu.Unlock()
	return s.identity.Identity
}

// Node gives the node id and cluster incarnation that the directory is bound to; ok is false before SetNode.
func (s *Store) Node() (node string, incarnation uint64, ok bool) {
	s.identityMu.Lock()
	defer s.identityMu.Unlock()
	return s.identity.node, s.identity.incarnation, s.identity.node != ""
}

// SetNode binds the directory to a node id (1 to 255 bytes) and a cluster incarnation (not 0), durably. Doing it again with the
// same values changes nothing; other values give ErrIdentity, which names both.
func (s *Store) SetNode(node string, incarnation uint64) error {
	if node == "" || len(node) > MaxNodeBytes {
		return fmt.Errorf("storage: node id has %d bytes, want 1 to %d", len(node), MaxNodeBytes)
	}
	if incarnation == 0 {
		return errors.New("storage: cluster incarnation is 0")
	}
	if err := s.usable(); err != nil {
		return err
	}
	s.identityMu.Lock()
	defer s.identityMu.Unlock()
	if have := s.identity; have.node != "" {
		if have.node != node || have.incarnation != incarnation {
			return fmt.Errorf("%w: %s is bound to node %q of cluster incarnation %d, not to %q of %d", ErrIdentity, s.opts.Dir,
				have.node, have.incarnation, node, incarnation)
		}
		return nil
	}
	bound := s.identity
	bound.node, bound.incarnation = node, incarnation
	if err := writeIdentity(s.opts.fs(), s.opts.Dir, bound); err != nil {
		return s.annotate(err)
	}
	s.identity = bound
	return nil
}
