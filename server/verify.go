package server

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/shard"
	"github.com/sealane/sealane/storage"
)

// ErrVerify: an offline check found something that does not agree. The report says what and where.
var ErrVerify = errors.New("server: the data directory has problems")

// VerifyProgress tells how far an offline check is.
type VerifyProgress struct {
	Stage       string // tables, log, state
	Done, Total int
}

// VerifyReport is what an offline check of a stopped node found.
type VerifyReport struct {
	StoreID     string        `json:"store_id"`
	Format      uint32        `json:"format_version"`
	Node        string        `json:"node"`
	Incarnation string        `json:"incarnation"`
	Tables      int           `json:"tables"`
	Groups      []VerifyGroup `json:"groups"`
	Problems    []string      `json:"problems"`
	Truncated   bool          `json:"truncated"` // there are more problems than listed
}

// VerifyGroup is one group of the node: its log, its durable state, and the state's digest.
type VerifyGroup struct {
	Name           string `json:"name"`
	FirstIndex     uint64 `json:"first_index"`
	LastIndex      uint64 `json:"last_index"`
	LogEntries     uint64 `json:"log_entries"`
	DurableApplied uint64 `json:"durable_applied"`
	StateKeys      uint64 `json:"state_keys"`
	StateBytes     uint64 `json:"state_bytes"`
	Digest         string `json:"digest"`
}

// Verify checks the data directory of a stopped node: format and identity, every table's and log entry's checksum, continuity of the logs, that no
// log begins past what the state holds, and a recount of every shard's books. It changes nothing. The error is ErrVerify if there are problems.
func Verify(ctx context.Context, dir string, progress func(VerifyProgress)) (VerifyReport, error) {
	digests := map[uint32]string{}
	check := func(_ context.Context, group uint32, state *storage.Snapshot) []error {
		return checkGroup(group, state, digests)
	}
	r, err := storage.Verify(ctx, dir, func(p storage.Progress) {
		if progress != nil {
			progress(VerifyProgress{p.Stage, p.Done, p.Total})
		}
	}, check)
	if err != nil {
		return VerifyReport{}, err
	}
	out := VerifyReport{
		StoreID: hex.EncodeToString(r.Identity.StoreID[:]), Format: r.Identity.FormatVersion, Node: r.Node,
		Incarnation: fmt.Sprintf("%016x", r.Incarnation), Tables: r.Tables, Truncated: r.Truncated,
	}
	for _, g := range r.Groups {
		out.Groups = append(out.Groups, VerifyGroup{
			Name: groupName(g.Group), FirstIndex: g.FirstIndex, LastIndex: g.LastIndex, LogEntries: g.LogEntries, DurableApplied: g.DurableApplied,
			StateKeys: g.StateKeys, StateBytes: g.StateBytes, Digest: digests[g.Group],
		})
	}
	for _, p := range r.Problems {
		where := p.Where
		if p.InGroup {
			where = groupName(p.Group) + " " + where
		}
		out.Problems = append(out.Problems, where+": "+p.Err.Error())
	}
	if len(out.Problems) > 0 {
		return out, fmt.Errorf("%w: %d", ErrVerify, len(out.Problems))
	}
	return out, nil
}

// checkGroup recounts one group and notes its digest.
func checkGroup(group uint32, state *storage.Snapshot, digests map[uint32]string) []error {
	digest, err := shard.Digest(state)
	if err != nil {
		return []error{err}
	}
	digests[group] = hex.EncodeToString(digest[:])
	if group == controlGroup {
		return checkCatalog(state)
	}
	problems, err := shard.Check(state)
	var errs []error
	for _, p := range problems {
		errs = append(errs, errors.New(p))
	}
	if err != nil {
		errs = append(errs, err)
	}
	return errs
}

func checkCatalog(state *storage.Snapshot) []error {
	if err := catalog.All(state, func(catalog.Version) error { return nil }); err != nil {
		return []error{err}
	}
	return nil
}

func groupName(group uint32) string {
	if group == controlGroup {
		return "control group"
	}
	return fmt.Sprintf("shard %d", group-1)
}
