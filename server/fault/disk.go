//go:build faults

package fault

import (
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FS wraps the file system of the store; nil stands for the disk.
func FS(inner vfs.FS) vfs.FS { return wrapFS(process, inner) }

func wrapFS(c *control, inner vfs.FS) vfs.FS {
	if inner == nil {
		inner = vfs.Default
	}
	return &disk{FS: inner, c: c}
}

// disk fails as the control says. Reading always works: a test that wants damaged bytes damages them between two starts.
type disk struct {
	vfs.FS
	c *control
}

// file is an open file of a disk.
type file struct {
	vfs.File
	d    *disk
	name string
}

func (d *disk) wrap(f vfs.File, err error, name string) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &file{File: f, d: d, name: name}, nil
}

// ill gives the situation if the disk has a fault that concerns a name.
func (d *disk) ill(name string) *situation {
	s := d.c.now.Load()
	if s.spec.Disk == (Disk{}) || !strings.Contains(name, s.spec.Disk.Path) {
		return nil
	}
	return s
}

// write is asked before anything that changes the disk: it waits while the disk hangs and tells whether the change fails.
func (d *disk) write(name string, needsRoom bool) error {
	s := d.waitHang(name)
	if s == nil {
		return nil
	}
	if needsRoom && s.spec.Disk.Full {
		d.c.count("disk.full")
		return syscall.ENOSPC
	}
	if take(&s.writes) {
		d.c.count("disk.failed_write")
		return syscall.EIO
	}
	return nil
}

// sync is asked before an fsync.
func (d *disk) sync(name string) error {
	s := d.waitHang(name)
	if s == nil {
		return nil
	}
	if delay := s.spec.Disk.SyncDelay; delay > 0 {
		d.c.count("disk.slow_sync")
		t := time.NewTimer(delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-s.changed:
		}
	}
	if take(&s.syncs) {
		d.c.count("disk.failed_sync")
		return syscall.EIO
	}
	return nil
}

// waitHang waits while the disk hangs, and gives the situation after that.
func (d *disk) waitHang(name string) *situation {
	counted := false
	for {
		s := d.ill(name)
		if s == nil || !s.spec.Disk.Hang {
			return s
		}
		if !counted {
			d.c.count("disk.hung")
			counted = true
		}
		<-s.changed
	}
}

func (d *disk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := d.write(name, true); err != nil {
		return nil, pathError("create", name, err)
	}
	f, err := d.FS.Create(name, category)
	return d.wrap(f, err, name)
}

func (d *disk) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.FS.Open(name, opts...)
	return d.wrap(f, err, name)
}

func (d *disk) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	if err := d.write(name, true); err != nil {
		return nil, pathError("open", name, err)
	}
	f, err := d.FS.OpenReadWrite(name, category, opts...)
	return d.wrap(f, err, name)
}

func (d *disk) OpenDir(name string) (vfs.File, error) {
	f, err := d.FS.OpenDir(name)
	return d.wrap(f, err, name)
}

func (d *disk) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := d.write(newname, false); err != nil {
		return nil, pathError("rename", newname, err)
	}
	f, err := d.FS.ReuseForWrite(oldname, newname, category)
	return d.wrap(f, err, newname)
}

func (d *disk) Link(oldname, newname string) error {
	if err := d.write(newname, true); err != nil {
		return pathError("link", newname, err)
	}
	return d.FS.Link(oldname, newname)
}

func (d *disk) Rename(oldname, newname string) error {
	if err := d.write(newname, false); err != nil {
		return pathError("rename", newname, err)
	}
	return d.FS.Rename(oldname, newname)
}

func (d *disk) Remove(name string) error {
	if err := d.write(name, false); err != nil {
		return pathError("remove", name, err)
	}
	return d.FS.Remove(name)
}

func (d *disk) RemoveAll(name string) error {
	if err := d.write(name, false); err != nil {
		return pathError("remove", name, err)
	}
	return d.FS.RemoveAll(name)
}

func (d *disk) MkdirAll(dir string, perm os.FileMode) error {
	if err := d.write(dir, true); err != nil {
		return pathError("mkdir", dir, err)
	}
	return d.FS.MkdirAll(dir, perm)
}

func (d *disk) Lock(name string) (io.Closer, error) { return d.FS.Lock(name) }

func (d *disk) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	u, err := d.FS.GetDiskUsage(path)
	if s := d.ill(path); err == nil && s != nil {
		if s.spec.Disk.FreeBytes > 0 {
			u.AvailBytes = s.spec.Disk.FreeBytes
		}
		if s.spec.Disk.Full {
			u.AvailBytes = 0
		}
	}
	return u, err
}

func (d *disk) Unwrap() vfs.FS { return d.FS }

func (f *file) Write(p []byte) (int, error) {
	if err := f.d.write(f.name, true); err != nil {
		return 0, pathError("write", f.name, err)
	}
	return f.File.Write(p)
}

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	if err := f.d.write(f.name, true); err != nil {
		return 0, pathError("write", f.name, err)
	}
	return f.File.WriteAt(p, off)
}

func (f *file) Preallocate(offset, length int64) error {
	if err := f.d.write(f.name, true); err != nil {
		return pathError("preallocate", f.name, err)
	}
	return f.File.Preallocate(offset, length)
}

func (f *file) Sync() error {
	if err := f.d.sync(f.name); err != nil {
		return pathError("sync", f.name, err)
	}
	return f.File.Sync()
}

func (f *file) SyncData() error {
	if err := f.d.sync(f.name); err != nil {
		return pathError("sync", f.name, err)
	}
	return f.File.SyncData()
}

func (f *file) SyncTo(length int64) (bool, error) {
	if err := f.d.sync(f.name); err != nil {
		return false, pathError("sync", f.name, err)
	}
	return f.File.SyncTo(length)
}

// pathError looks like what the operating system's calls return.
func pathError(op, name string, err error) error {
	return &os.PathError{Op: op, Path: name, Err: err}
}
