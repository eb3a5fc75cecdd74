package server

import (
	"bytes"
	"encoding/base64"
	"errors"
	"testing"

	"pgregory.net/rapid"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

func TestPageToken(t *testing.T) {
	state := []byte{1, 2, 3}
	token := pageToken(listLanes, 7, state)
	if got, err := parsePageToken(listLanes, 7, token); err != nil || !bytes.Equal(got, state) {
		t.Fatal(got, err)
	}
	if got, err := parsePageToken(listLanes, 7, ""); err != nil || got != nil {
		t.Fatal("no token is the first page", got, err)
	}
	raw, _ := base64.RawURLEncoding.DecodeString(token)
	for i := range raw {
		damaged := bytes.Clone(raw)
		damaged[i] ^= 1
		if _, err := parsePageToken(listLanes, 7, base64.RawURLEncoding.EncodeToString(damaged)); !errors.Is(err, ErrPageToken) {
			t.Fatalf("byte %d damaged: %v", i, err)
		}
	}
	for name, try := range map[string]func() ([]byte, error){
		"another listing": func() ([]byte, error) { return parsePageToken(listMessages, 7, token) },
		"other filters":   func() ([]byte, error) { return parsePageToken(listLanes, 8, token) },
		"not base64":      func() ([]byte, error) { return parsePageToken(listLanes, 7, "!!") },
		"cut":             func() ([]byte, error) { return parsePageToken(listLanes, 7, token[:4]) },
		"too long":        func() ([]byte, error) { return parsePageToken(listLanes, 7, string(make([]byte, maxTokenBytes+1))) },
	} {
		_, err := try()
		if st := statusOf(err); !errors.Is(err, ErrPageToken) || reasonOf(st) != "INVALID_PAGE_TOKEN" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzPageToken(f *testing.F) {
	f.Add(pageToken(listMessages, 1, []byte("x")))
	f.Add("")
	f.Add("AAAA")
	f.Fuzz(func(t *testing.T, token string) {
		state, err := parsePageToken(listMessages, 1, token)
		if err != nil || token == "" {
			return
		}
		if again := pageToken(listMessages, 1, state); again != token {
			t.Fatalf("%q and %q are one token", token, again)
		}
		if p, err := messagesPlaceOf(state); err == nil && len(state) > 0 && !bytes.Equal(p.bytes(), state) {
			t.Fatalf("place %x became %x", state, p.bytes())
		}
	})
}

// What selects rows is part of a token; how many rows, how fresh and the token itself are not.
func TestFiltersOf(t *testing.T) {
	base := filtersOf(&sealanev1.ListMessagesRequest{Destination: "a"})
	same := &sealanev1.ListMessagesRequest{
		Destination: "a", PageSize: 3, PageToken: "x", Positions: []string{"1:1"}, Consistency: sealanev1.Consistency_linearizable,
	}
	if filtersOf(same) != base {
		t.Error("paging changed the filters")
	}
	if same.GetPageToken() != "x" {
		t.Error("the request was changed")
	}
	for _, other := range []*sealanev1.ListMessagesRequest{
		{Destination: "b"}, {}, {Destination: "a", State: sealanev1.GenerationState_DELIVERED},
	} {
		if filtersOf(other) == base {
			t.Errorf("%v has the same filters", other)
		}
	}
}

func TestPageSize(t *testing.T) {
	for n, want := range map[int32]int{0: 100, 1: 1, 1000: 1000, -1: 0, 1001: 0} {
		got, err := pageSize(n)
		if got != want || (err != nil) != (want == 0) {
			t.Errorf("%d: %d, %v", n, got, err)
		}
	}
}

// Merging shards page by page gives every row once, in order, whatever each shard looked at per page.
func TestMergedPages(t *testing.T) {
	for name, order := range map[string]func(a, b []byte) int{"ascending": ascending, "descending": descending} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				shards := rapid.SliceOfN(rapid.SliceOfNDistinct(rapid.ByteRange(0, 255), 0, 30, rapid.ID), 1, 4).Draw(rt, "shards")
				wanted := rapid.SliceOfN(rapid.Bool(), 256, 256).Draw(rt, "wanted")
				limit := rapid.IntRange(1, 7).Draw(rt, "limit")
				scan := rapid.IntRange(1, 9).Draw(rt, "scan")
				var want, got []byte
				for i, s := range shards {
					s = bytes.Clone(s)
					for j := range s {
						s[j] = s[j]/4*4 + byte(i) // keys of different shards differ
					}
					shards[i] = sorted(s, order)
					for _, k := range shards[i] {
						if wanted[k] {
							want = append(want, k)
						}
					}
				}
				var cursor []byte
				for range 1000 {
					parts := make([]part, len(shards))
					for i, s := range shards {
						parts[i] = scanPart(s, cursor, order, wanted, limit, scan)
					}
					rows, next := merged(parts, limit, order)
					for _, r := range rows {
						got = append(got, r.key[0])
					}
					if next == nil {
						break
					}
					if cursor != nil && order(next, cursor) <= 0 {
						rt.Fatalf("the listing goes back from %v to %v", cursor, next)
					}
					cursor = next
				}
				if want := sorted(want, order); !bytes.Equal(got, want) {
					rt.Fatalf("got %v, want %v", got, want)
				}
			})
		})
	}
}

func sorted(keys []byte, order func(a, b []byte) int) []byte {
	var out []byte
	for k := range 256 {
		key := byte(k)
		if order([]byte{0}, []byte{1}) > 0 {
			key = byte(255 - k)
		}
		if bytes.IndexByte(keys, key) >= 0 {
			out = append(out, key)
		}
	}
	return out
}

// scanPart is a shard that looks at no more than scan keys per page.
func scanPart(keys, cursor []byte, order func(a, b []byte) int, wanted []bool, limit, scan int) part {
	var p part
	looked := 0
	for _, k := range keys {
		key := []byte{k}
		if cursor != nil && order(key, cursor) <= 0 {
			continue
		}
		if wanted[k] {
			p.rows = append(p.rows, found{key: key})
		}
		if looked++; len(p.rows) >= limit || looked >= scan {
			p.frontier = key
			return p
		}
	}
	return p
}
