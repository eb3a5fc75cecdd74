package catalog

import (
	"encoding/binary"
	"hash/fnv"
	"sort"
)

// ShardOf says which shard holds slot i of a destination: rendezvous hashing of (namespace, destination) over the shards, slot i taking the
// i-th rank (DESIGN 2). It depends on nothing but its arguments, so every node and client agrees.
func ShardOf(namespace, destination string, slot, shards uint32) uint16 {
	type rank struct {
		weight uint64
		shard  uint32
	}
	name := hash(namespace, destination)
	ranks := make([]rank, shards)
	for i := range shards {
		ranks[i] = rank{mix(name ^ mix(uint64(i)+1)), i}
	}
	if slot == 0 {
		best := ranks[0]
		for _, r := range ranks[1:] {
			if r.weight > best.weight {
				best = r
			}
		}
		return uint16(best.shard)
	}
	sort.Slice(ranks, func(a, b int) bool {
		if ranks[a].weight != ranks[b].weight {
			return ranks[a].weight > ranks[b].weight
		}
		return ranks[a].shard < ranks[b].shard
	})
	return uint16(ranks[slot%shards].shard)
}

// SlotOf chooses the slot of a message: by its ordering key, else its idempotency key, else its own random bytes.
func SlotOf(orderingKey, idempotencyKey string, random []byte, spread uint32) uint32 {
	if spread <= 1 {
		return 0
	}
	var h uint64
	switch {
	case orderingKey != "":
		h = hash("o", orderingKey)
	case idempotencyKey != "":
		h = hash("i", idempotencyKey)
	default:
		h = hash("r", string(random))
	}
	return uint32(mix(h) % uint64(spread))
}

func hash(a, b string) uint64 {
	f := fnv.New64a()
	var n [4]byte
	binary.BigEndian.PutUint32(n[:], uint32(len(a)))
	f.Write(n[:])
	f.Write([]byte(a))
	f.Write([]byte(b))
	return f.Sum64()
}

// mix is the finaliser of splitmix64: it spreads what FNV leaves in the low bits.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
