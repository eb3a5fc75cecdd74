package shard

// State is what the machine needs of a store: a flat, ordered map of bytes that shows the entry's own writes. A batch of storage
// satisfies it, and so does the map in shardtest. Slices returned by Get and given to a Scan callback are valid until the next call that
// writes; slices passed in may be reused by the caller after the call.
type State interface {
	Reader
	Set(key, value []byte) error
	Delete(key []byte) error
}

// Reader is the read side of State. Queries need no more.
type Reader interface {
	Get(key []byte) (value []byte, ok bool, err error)
	// Scan calls fn for each key in [lower, upper), in order or in reverse, until fn returns false or an error.
	Scan(lower, upper []byte, reverse bool, fn func(key, value []byte) (more bool, err error)) error
}
