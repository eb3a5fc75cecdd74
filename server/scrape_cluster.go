package server

import (
	"github.com/sealane/sealane/catalog"
)

// cluster gives what concerns more than one node.
func (sh *sheet) cluster() {
	n := sh.s.n
	if n.control == nil || n.control.group == nil {
		return
	}
	sh.gauge("control_leading", truth(n.control.ref.leads()))
	sh.gauge("control_applied_index", float64(n.control.group.Applied()))
	nodes, err := catalog.Nodes(n.controlState())
	if sh.failed(err) {
		return
	}
	states := map[catalog.NodeState]int{catalog.NodeActive: 0, catalog.NodeDraining: 0, catalog.NodeRemoved: 0}
	greeted := n.greetings()
	for i := range nodes {
		states[nodes[i].State]++
		if nodes[i].ID != n.cfg.NodeID && nodes[i].State != catalog.NodeRemoved {
			g := greeted[nodes[i].ID]
			sh.gauge("node_reachable", truth(g.reachable()), nodes[i].ID)
		}
	}
	for state, count := range states {
		sh.gauge("nodes", float64(count), lower(state.String()))
	}
	sh.peers()
	var elections, changes, transfers, restarts, installs uint64
	held := 0
	for _, ref := range n.refs() {
		held += ref.waiting()
		group := ref.local.Load()
		if group == nil {
			continue
		}
		st := group.Status()
		elections += st.Elections
		changes += st.LeaderChanges
		transfers += st.Transfers
		restarts += st.Restarts
		installs += st.Installs
	}
	sh.counter("elections_total", float64(elections))
	sh.counter("leader_changes_total", float64(changes))
	sh.counter("leadership_transfers_total", float64(transfers))
	sh.counter("raft_restarts_total", float64(restarts))
	sh.counter("snapshot_installs_total", float64(installs))
	sh.gauge("proposals_held", float64(held))
}

// peers gives the numbers of the peer transport.
func (sh *sheet) peers() {
	network := sh.s.n.peers.network
	if network == nil {
		return
	}
	for _, p := range network.Status() {
		if p.Node == joinName {
			continue
		}
		sh.counter("peer_bytes_sent_total", float64(p.BytesSent), p.Node)
		sh.counter("peer_bytes_received_total", float64(p.BytesReceived), p.Node)
		sh.counter("peer_queue_full_total", float64(p.QueueFull), p.Node)
		sh.counter("peer_inbox_full_total", float64(p.InboxFull), p.Node)
		sh.counter("peer_timed_out_total", float64(p.TimedOut), p.Node)
	}
}
