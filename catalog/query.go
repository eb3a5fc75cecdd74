package catalog

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
)

func get[T any](r Reader, key []byte) (v T, ok bool, err error) {
	b, ok, err := r.Get(key)
	if err != nil || !ok {
		return v, false, err
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return v, false, fmt.Errorf("%w: key %x: %w", ErrCorrupt, key, err)
	}
	return v, true, nil
}

func readMeta(r Reader) (meta, error) {
	m, _, err := get[meta](r, []byte{keyMeta})
	return m, err
}

// Newest reads the newest version of a destination, deleted ones included.
func Newest(r Reader, namespace, name string) (Version, bool, error) {
	b, ok, err := r.Get(nameKey(keyNewest, namespace, name))
	if err != nil || !ok {
		return Version{}, false, err
	}
	if len(b) != 8 {
		return Version{}, false, fmt.Errorf("%w: newest version of %q", ErrCorrupt, name)
	}
	return GetVersion(r, namespace, name, binary.BigEndian.Uint64(b))
}

// GetVersion reads one version.
func GetVersion(r Reader, namespace, name string, version uint64) (Version, bool, error) {
	return get[Version](r, versionKey(namespace, name, version))
}

// List returns up to limit destinations of a namespace in the order of their names, after the name given; "" starts. Deleted ones are
// left out.
func List(r Reader, namespace, after string, limit int) ([]Version, error) {
	prefix := nameKey(keyNewest, namespace, "")
	lower := prefix
	if after != "" {
		lower = append(nameKey(keyNewest, namespace, after), 0)
	}
	var out []Version
	upper := append(append([]byte(nil), prefix...), 0xff)
	err := r.Scan(lower, upper, false, func(k, _ []byte) (bool, error) {
		v, ok, err := Newest(r, namespace, string(k[len(prefix):]))
		if err != nil {
			return false, err
		}
		if !ok {
			return false, fmt.Errorf("%w: %q is listed and has no version", ErrCorrupt, k[len(prefix):])
		}
		if !v.Deleted {
			out = append(out, v)
		}
		return len(out) < limit, nil
	})
	return out, err
}

// All walks every version of every destination, in key order: what the shards must have installed.
func All(r Reader, fn func(Version) error) error {
	return r.Scan([]byte{keyVersion}, []byte{keyVersion + 1}, false, func(_, b []byte) (bool, error) {
		var v Version
		if err := json.Unmarshal(b, &v); err != nil {
			return false, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		return true, fn(v)
	})
}
