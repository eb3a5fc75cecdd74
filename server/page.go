package server

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"google.golang.org/protobuf/proto"
)

// Sizes of pages and tokens.
const (
	defaultPageSize = 100
	maxPageSize     = 1000
	// maxTokenBytes bounds the text of a page token that is looked at.
	maxTokenBytes = 4096
	tokenVersion  = 1
)

// listing says which listing a page token belongs to.
type listing byte

// Listings. A token names its own, so that it cannot go on another one.
const (
	listMessages     listing = 1
	listDeadLetters  listing = 2
	listUncertain    listing = 3
	listLanes        listing = 4
	listDestinations listing = 5
	listOperations   listing = 6
)

// pageSize reads how many rows a page may have.
func pageSize(n int32) (int, error) {
	switch {
	case n == 0:
		return defaultPageSize, nil
	case n < 0 || n > maxPageSize:
		return 0, invalid("page_size", "is %d, want 1 to %d, or 0 for %d", n, maxPageSize, defaultPageSize)
	}
	return int(n), nil
}

// A token is: version, listing, first 8 bytes of a hash of the filters, what the listing needs to go on, and a CRC32C over all of it.
const (
	tokenHead = 1 + 1 + 8
	tokenTail = 4
)

var tokenSums = crc32.MakeTable(crc32.Castagnoli)

// pageToken makes the text that goes on after a page.
func pageToken(l listing, filters uint64, state []byte) string {
	b := make([]byte, 0, tokenHead+len(state)+tokenTail)
	b = append(b, tokenVersion, byte(l))
	b = binary.BigEndian.AppendUint64(b, filters)
	b = append(b, state...)
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, tokenSums))
	return base64.RawURLEncoding.EncodeToString(b)
}

// parsePageToken gives back the state. An empty text is the first page: no state.
func parsePageToken(l listing, filters uint64, text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	bad := func(why string) ([]byte, error) {
		return nil, fieldError("page_token", fmt.Errorf("%w: %s", ErrPageToken, why))
	}
	if len(text) > maxTokenBytes {
		return bad("it is damaged")
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < tokenHead+tokenTail {
		return bad("it is damaged")
	}
	body, sum := b[:len(b)-tokenTail], binary.BigEndian.Uint32(b[len(b)-tokenTail:])
	switch {
	case crc32.Checksum(body, tokenSums) != sum:
		return bad("it is damaged")
	case body[0] != tokenVersion:
		return bad("it is of another version")
	case listing(body[1]) != l:
		return bad("it belongs to another listing")
	case binary.BigEndian.Uint64(body[2:]) != filters:
		return bad("it belongs to other filters")
	}
	return body[tokenHead:], nil
}

// filtersOf is a short hash of a list request without what may change from page to page.
func filtersOf(req proto.Message, ignore ...string) uint64 {
	m := proto.Clone(req)
	r := m.ProtoReflect()
	for _, name := range append([]string{"page_size", "page_token", "consistency", "positions", "wait"}, ignore...) {
		for i := range r.Descriptor().Fields().Len() {
			if f := r.Descriptor().Fields().Get(i); string(f.Name()) == name {
				r.Clear(f)
			}
		}
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return 0 // only a request that could not have been received cannot be marshalled
	}
	sum := sha256.Sum256(b)
	return binary.BigEndian.Uint64(sum[:])
}
