package storage

import "encoding/binary"

// Keys of the log instance: a kind byte, the group as u32be, then what follows.
//
//	'I'                          store id (16 bytes)
//	'L' group index:u64be        one log entry (entry.go)
//	'M' group                    newest snapshot marker (marker.go)
//	'P' group                    a received state is to be installed (pending.go)
//	'S' group name               stable value
//	'X' group                    the group is being destroyed (destroy.go)
//	'Z' group                    sentinel: index:u64be term:u64be of the last entry removed from the front
//
// Keys of the state instance:
//
//	'I'                          store id (16 bytes)
//	'G' group                    applied index:u64be, written with every batch
//	'G' group key                one key of the group's state, key not empty
//
// A kind byte is never used again for something else.
const (
	kindStoreID   = 'I'
	kindEntry     = 'L'
	kindMarker    = 'M'
	kindPending   = 'P'
	kindStable    = 'S'
	kindDestroyed = 'X'
	kindSentinel  = 'Z'
	kindGroup     = 'G'

	prefixBytes   = 5
	entryKeyBytes = prefixBytes + 8
)

var storeIDKey = []byte{kindStoreID}

func appendPrefix(dst []byte, kind byte, group uint32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, kind), group)
}

func groupKey(kind byte, group uint32) []byte {
	return appendPrefix(make([]byte, 0, prefixBytes), kind, group)
}

// groupEnd gives the first key behind everything of this kind and group.
func groupEnd(kind byte, group uint32) []byte {
	if group == ^uint32(0) {
		return []byte{kind + 1}
	}
	return groupKey(kind, group+1)
}

func entryKey(group uint32, index uint64) []byte {
	return binary.BigEndian.AppendUint64(appendPrefix(make([]byte, 0, entryKeyBytes), kindEntry, group), index)
}

// entryEnd gives the first key behind the entry at index.
func entryEnd(group uint32, index uint64) []byte {
	if index == ^uint64(0) {
		return groupEnd(kindEntry, group)
	}
	return entryKey(group, index+1)
}

func stableKey(group uint32, name []byte) []byte {
	return append(appendPrefix(make([]byte, 0, prefixBytes+len(name)), kindStable, group), name...)
}

// groupOf reads the group out of any key with a group.
func groupOf(key []byte) uint32 { return binary.BigEndian.Uint32(key[1:]) }

// indexOf reads the index out of an entry's key.
func indexOf(key []byte) uint64 { return binary.BigEndian.Uint64(key[prefixBytes:]) }
