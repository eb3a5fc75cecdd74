package shard_test

import (
	"fmt"
	"strings"

	"github.com/sealane/sealane/shard"
)

// describe prints an entry with its verdicts, for a failing test.
func describe(e *shard.Entry, results []shard.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "entry %d at %d by %s\n", e.Index, e.Stamp, e.Owner.Node)
	for i, c := range e.Commands {
		text := fmt.Sprintf("%T%+v", c, c)
		if len(text) > 600 {
			text = text[:600] + "…"
		}
		fmt.Fprintf(&b, "  %s\n", text)
		if i < len(results) {
			fmt.Fprintf(&b, "    -> rejected=%v state=%s ref=%s-%d\n", results[i].Rejected, results[i].State, results[i].Ref.ID, results[i].Ref.Generation)
		}
	}
	return b.String()
}
