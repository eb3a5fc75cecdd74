package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/sealane/sealane/replication"
)

// failures are why the process should be replaced, nil while it is sound.
func (n *Node) failures() []string {
	var out []string
	if err := n.store.Failed(); err != nil {
		out = append(out, "storage has failed: "+err.Error())
	}
	for number, g := range n.groups() {
		if err := g.Status().Failure; err != nil {
			out = append(out, fmt.Sprintf("%s has stopped: %v", number, err))
		}
	}
	return out
}

// groups walks the control group and the shards by their names.
func (n *Node) groups() func(func(string, *replication.Group) bool) {
	return func(yield func(string, *replication.Group) bool) {
		if !yield("control group", n.control.group) {
			return
		}
		for r := range n.replicas() {
			if !yield("shard "+strconv.Itoa(int(r.shard)), r.group) {
				return
			}
		}
	}
}

// unready are why the node should get no traffic now, nil while it is ready. No destination is ever a reason.
func (n *Node) unready(draining bool) []string {
	out := n.failures()
	if draining {
		out = append(out, "the node is stopping")
	}
	for number, g := range n.groups() {
		st := g.Status()
		leads := st.Role == replication.RoleLeader && st.Ready
		follows := st.Role == replication.RoleFollower && st.LeaderID != ""
		if !leads && !follows {
			out = append(out, number+" has no leader")
		}
	}
	if c := n.stamper.State(); c.GateClosed {
		out = append(out, fmt.Sprintf("the wall clock made a step; it is trusted again in %s if it makes no other", c.OpensIn))
	}
	if n.space.low.Load() {
		out = append(out, "the disk is nearly full: new messages are refused")
	}
	return out
}

func (g *gateway) healthz(w http.ResponseWriter, _ *http.Request) {
	writeHealth(w, g.n.failures())
}

func (g *gateway) readyz(w http.ResponseWriter, _ *http.Request) {
	writeHealth(w, g.n.unready(isClosed(g.doors.draining)))
}

// writeHealth answers 200, or 503 with the reasons.
func writeHealth(w http.ResponseWriter, reasons []string) {
	answer := struct {
		Status  string   `json:"status"`
		Reasons []string `json:"reasons,omitempty"`
	}{"ok", reasons}
	code := http.StatusOK
	if len(reasons) > 0 {
		answer.Status, code = "unavailable", http.StatusServiceUnavailable
	}
	body, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // the prober may be gone
}

// frontPage links what HTTP serves.
const frontPage = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Sealane</title></head>
<body>
<h1>Sealane</h1>
<p>A durable delivery engine. This is the HTTP door of one node.</p>
<ul>
<li><a href="/v1/cluster">/v1/cluster</a>: nodes and shards</li>
<li><a href="/v1/destinations">/v1/destinations</a>: where messages go</li>
<li><a href="/v1/lanes">/v1/lanes</a>: queues, gates and circuits</li>
<li><a href="/v1/messages">/v1/messages</a>: messages</li>
<li><a href="/v1/deadLetters">/v1/deadLetters</a>: dead letters</li>
<li><a href="/v1/uncertainAttempts">/v1/uncertainAttempts</a>: attempts of which nobody can tell whether they arrived</li>
<li><a href="/openapi.json">/openapi.json</a>: the API as a document</li>
<li><a href="/metrics">/metrics</a>, <a href="/healthz">/healthz</a>, <a href="/readyz">/readyz</a></li>
</ul>
</body></html>
`
