package replication

import (
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// A replica id is the node id, replicaSeparator, and storeDigits lower-case hex digits of the store id.
const (
	replicaSeparator    = "@"
	storeDigits         = 16
	maxReplicaNodeBytes = maxNodeIDBytes - len(replicaSeparator) - storeDigits
)

// ReplicaID names a node together with its data directory: the node id, '@' and the first 8 bytes of the store id in hex. A node that
// lost its directory comes back as another replica and so without the old one's votes. node must be valid for Options.NodeID.
func ReplicaID(node string, store [16]byte) string {
	return node + replicaSeparator + hex.EncodeToString(store[:storeDigits/2])
}

// SplitReplicaID takes a replica id apart: the node id and the hex digits of the store. ok is false for anything that ReplicaID never gives.
func SplitReplicaID(id string) (node, store string, ok bool) {
	node, store, found := strings.Cut(id, replicaSeparator)
	if !found || !validNode(node) || len(store) != storeDigits {
		return "", "", false
	}
	for i := range len(store) {
		if c := store[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", "", false
		}
	}
	return node, store, true
}

func validNode(node string) bool {
	return len(node) >= 1 && len(node) <= maxReplicaNodeBytes && utf8.ValidString(node) && !strings.Contains(node, replicaSeparator)
}
