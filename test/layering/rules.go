package layering

// module is the import path of the repository's root.
const module = "github.com/sealane/sealane"

// room is one package or subtree of the house and what of ours it may import. Subtrees end in "/...".
type room struct {
	path string
	may  []string
	pure bool
}

// house lists every room, from the ground up. The first match counts, so a special room stands before the subtree it is in. A package that
// no room covers fails the test: every line of code belongs somewhere.
var house = []room{
	{path: "policy", pure: true},
	{path: "lane", may: []string{"policy"}, pure: true},
	{path: "shard/shardtest", may: []string{"shard", "policy", "lane"}},
	{path: "shard/host/...", may: []string{"shard", "lane", "policy"}},
	{path: "shard/logcodec", may: []string{"shard", "policy", "catalog", "api/gen/sealane/log/v1"}},
	{path: "shard", may: []string{"lane", "policy"}, pure: true},
	{path: "controlops", may: []string{"shard", "policy"}, pure: true},
	{path: "catalog/plan", may: []string{"catalog", "policy"}, pure: true},
	{path: "catalog", may: []string{"controlops", "policy"}, pure: true},
	{path: "storage/...", may: []string{"storage"}},
	{path: "delivery/...", may: []string{"policy", "delivery/..."}},
	{path: "replication/peer/peertest"},
	{path: "replication/peer", may: []string{"replication"}},
	{path: "replication/...", may: []string{"storage", "api/gen/sealane/log/v1"}},
	{path: "sink"},
	{path: "client", may: []string{"api/gen/sealane/v1"}},
	{path: "api/openapi"},
	{path: "api/gen/...", may: []string{"api/gen/..."}},
	{path: "api/...", may: []string{"api/..."}},
	{path: "server/...", may: []string{
		"policy", "lane", "shard", "shard/host/...", "shard/logcodec", "controlops", "controlops/...", "catalog", "catalog/plan", "storage", "delivery/...",
		"replication", "replication/peer", "api/...", "server/...",
	}},
	{path: "cmd/sealane/...", may: []string{"server/...", "client", "sink", "api/...", "cmd/sealane/..."}},
	{path: "test/...", may: []string{"..."}},
}

// testsMay is what test files may import beyond their room's rule.
var testsMay = []string{
	"shard/shardtest", "storage/storagetest", "delivery/deliverytest", "replication/peer/peertest", "replication",
	"sink", "storage", "shard", "policy", "lane", "client", "api/..."}

// impure are the standard packages that no pure room imports.
var impure = []string{
	"os", "net", "net/http", "sync", "sync/atomic", "math/rand", "math/rand/v2", "crypto/rand", "log", "log/slog", "io", "context", "runtime",
	"syscall", "os/exec", "math", "unsafe", "reflect", "path/filepath", "io/fs", "testing",
}

// impureCalls are functions of package time that read or wait for a clock.
var impureCalls = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// crowded are package names that say nothing about what belongs in them.
var crowded = []string{"util", "utils", "common", "types", "pkg", "misc", "helpers", "base"}

// maxFunctionLines is the longest a function may be, signature and braces included.
const maxFunctionLines = 70
