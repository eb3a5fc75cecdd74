package server

import (
	"maps"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sealane/sealane/lane"
	"github.com/sealane/sealane/replication"
	"github.com/sealane/sealane/shard"
)

// Limits of a scrape.
const (
	// maxMetricDestinations bounds the values of label destination; what comes after them in the order of names is summed up in one series.
	maxMetricDestinations = 1000
	otherDestinations     = "_other"
	// scrapePage is how many lanes one step of a scrape reads.
	scrapePage = 512
)

// scrape reads, when it is asked, the numbers that state and storage keep anyway.
type scrape struct {
	n     *Node
	descs map[string]*prometheus.Desc
}

// family is one family that scrape gives.
type family struct {
	name, help string
	labels     []string
}

var families = []family{
	{"build_info", "Always 1; the labels say which build and node this is.", []string{"version", "node"}},
	{"start_time_seconds", "When the node was started.", nil},
	{"lane_messages", "Generations in the lanes of a destination, by state; terminal ones as long as they are kept.", []string{"destination", "state"}},
	{"lane_pending_bytes", "Payload bytes of pending messages.", []string{"destination"}},
	{"lane_open_attempts", "Admitted attempts without an outcome.", []string{"destination"}},
	{"lanes_not_open", "Lanes whose gate is not open, by gate.", []string{"gate"}},
	{"lanes", "Lanes that this node leads. Numbers of lanes and messages are given by the leader of their shard only, so that they can be summed.", nil},
	{"circuits", "Targets, by the phase of their circuit.", []string{"phase"}},
	{"uncertain_oldest_seconds", "Age of the oldest attempt whose outcome is unknown; 0 without one.", []string{"shard"}},
	{"shard_applied_index", "Newest index that is applied.", []string{"shard"}},
	{"shard_commit_index", "Newest index that is committed.", []string{"shard"}},
	{"shard_snapshot_index", "Index of the newest snapshot marker.", []string{"shard"}},
	{"shard_leading", "1 where this node leads the shard.", []string{"shard"}},
	{"shard_term", "Raft term.", []string{"shard"}},
	{"shard_queue_commands", "Commands that wait for the log, by class.", []string{"shard", "class"}},
	{"shard_submitted_total", "Messages ever accepted by the shard.", []string{"shard"}},
	{"clock_gate_closed", "1 while the wall clock is not trusted: nothing is admitted or expired.", nil},
	{"clock_steps_total", "Steps of the wall clock seen since the start.", nil},
	{"clock_ahead_seconds", "How far the stamped time is ahead of the wall clock.", nil},
	{"watches", "Watches of messages.", nil},
	{"storage_disk_bytes", "Bytes on disk, by instance.", []string{"instance"}},
	{"storage_wal_bytes_total", "Bytes written to write-ahead logs, by instance.", []string{"instance"}},
	{"storage_flushed_bytes_total", "Bytes written by flushes, by instance.", []string{"instance"}},
	{"storage_compacted_bytes_total", "Bytes written by compactions, by instance.", []string{"instance"}},
	{"storage_read_amplification", "Tables that a point read may have to look at, by instance.", []string{"instance"}},
	{"storage_compaction_debt_bytes", "Bytes that compactions should still rewrite, by instance.", []string{"instance"}},
	{"storage_fsyncs_total", "Syncs of the log.", nil},
	{"storage_fsync_seconds_total", "Time spent in them.", nil},
	{"storage_background_errors_total", "Failed flushes and compactions.", nil},
	{"storage_slow_disk_total", "File operations above 5 seconds.", nil},
	{"storage_cache_hits_total", "Reads that the block cache answered.", nil},
	{"storage_cache_misses_total", "Reads that it did not.", nil},
	{"storage_free_bytes", "Room left on the data directory's disk; absent where it cannot be told.", nil},
	{"nodes", "Nodes of the cluster, by recorded state.", []string{"state"}},
	{"node_reachable", "1 where this node heard from the other one in the last seconds.", []string{"peer"}},
	{"control_leading", "1 where this node leads the control group.", nil},
	{"control_applied_index", "Newest index of the control group that is applied here.", nil},
	{"replica_lag_entries", "Entries that are committed, as far as this replica knows, and not applied here.", []string{"shard"}},
	{"replica_leader_contact_seconds", "Since this replica heard from its leader; 0 where it leads. Nothing is heard where there is none.", []string{"shard"}},
	{"replica_voter", "1 where this replica votes, 0 where it learns.", []string{"shard"}},
	{"elections_total", "Times this node's replicas stood for election.", nil},
	{"leader_changes_total", "Times this node's replicas learned of a leader.", nil},
	{"leadership_transfers_total", "Leaderships that this node handed over.", nil},
	{"raft_restarts_total", "Times a replica's Raft had to be begun anew, because a transfer never ended.", nil},
	{"snapshot_installs_total", "States that this node's replicas received from another node.", nil},
	{"peer_bytes_sent_total", "Bytes of Raft's messages sent, by peer.", []string{"peer"}},
	{"peer_bytes_received_total", "Bytes of Raft's messages received, by peer.", []string{"peer"}},
	{"peer_queue_full_total", "Messages refused because too much waited to be sent, by peer: the line is slow.", []string{"peer"}},
	{"peer_inbox_full_total", "Requests refused because their group here did not keep up, by peer: its disk is slow.", []string{"peer"}},
	{"peer_timed_out_total", "Messages without an answer in time, by peer: the group there is blocked, or the line is.", []string{"peer"}},
	{"proposals_held", "Commands of callers that wait for a leader.", nil},
	{"scrape_errors", "Reads that failed in this scrape; its numbers are then incomplete.", nil},
}

func newScrape(n *Node) *scrape {
	s := &scrape{n: n, descs: make(map[string]*prometheus.Desc, len(families))}
	for _, f := range families {
		s.descs[f.name] = prometheus.NewDesc("sealane_"+f.name, f.help, f.labels, nil)
	}
	return s
}

// Describe tells the registry every family.
func (s *scrape) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range families {
		ch <- s.descs[f.name]
	}
}

// sheet is one scrape under way.
type sheet struct {
	s      *scrape
	ch     chan<- prometheus.Metric
	errors int
}

func (sh *sheet) gauge(name string, v float64, labels ...string) {
	sh.ch <- prometheus.MustNewConstMetric(sh.s.descs[name], prometheus.GaugeValue, v, labels...)
}

func (sh *sheet) counter(name string, v float64, labels ...string) {
	sh.ch <- prometheus.MustNewConstMetric(sh.s.descs[name], prometheus.CounterValue, v, labels...)
}

func (sh *sheet) failed(err error) bool {
	if err != nil {
		sh.errors++
	}
	return err != nil
}

// Collect reads everything once.
func (s *scrape) Collect(ch chan<- prometheus.Metric) {
	sh := &sheet{s: s, ch: ch}
	sh.gauge("build_info", 1, Version, s.n.cfg.NodeID)
	sh.gauge("start_time_seconds", float64(s.n.started.UnixNano())/1e9)
	sh.storage()
	sh.shards()
	sh.lanes()
	sh.cluster()
	clock := s.n.stamper.State()
	sh.gauge("clock_gate_closed", truth(clock.GateClosed))
	sh.counter("clock_steps_total", float64(clock.Steps))
	sh.gauge("clock_ahead_seconds", clock.Ahead.Seconds())
	sh.gauge("scrape_errors", float64(sh.errors))
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (sh *sheet) storage() {
	m := sh.s.n.store.Metrics()
	sh.counter("storage_fsyncs_total", float64(m.Fsyncs))
	sh.counter("storage_fsync_seconds_total", m.FsyncSeconds)
	sh.counter("storage_background_errors_total", float64(m.BackgroundErrors))
	sh.counter("storage_slow_disk_total", float64(m.SlowDiskReports))
	sh.counter("storage_cache_hits_total", float64(m.CacheHits))
	sh.counter("storage_cache_misses_total", float64(m.CacheMisses))
	if free, err := sh.s.n.store.FreeBytes(); !sh.failed(err) && free != ^uint64(0) {
		sh.gauge("storage_free_bytes", float64(free))
	}
	for _, name := range []string{"log", "state"} {
		i := m.Log
		if name == "state" {
			i = m.State
		}
		sh.gauge("storage_disk_bytes", float64(i.DiskBytes), name)
		sh.counter("storage_wal_bytes_total", float64(i.WALBytes), name)
		sh.counter("storage_flushed_bytes_total", float64(i.FlushedBytes), name)
		sh.counter("storage_compacted_bytes_total", float64(i.CompactedBytes), name)
		sh.gauge("storage_read_amplification", float64(i.ReadAmp), name)
		sh.gauge("storage_compaction_debt_bytes", float64(i.CompactionDebt), name)
	}
}

func (sh *sheet) shards() {
	watches := int64(0)
	for r := range sh.s.n.replicas() {
		label := strconv.Itoa(int(r.shard))
		st := r.group.Status()
		sh.gauge("shard_applied_index", float64(st.AppliedIndex), label)
		sh.gauge("shard_commit_index", float64(st.CommitIndex), label)
		sh.gauge("shard_snapshot_index", float64(st.SnapshotIndex), label)
		sh.gauge("shard_leading", truth(st.Ready && st.Role == replication.RoleLeader), label)
		sh.gauge("shard_term", float64(st.Term), label)
		sh.gauge("shard_queue_commands", float64(st.ClientQueue), label, "client")
		sh.gauge("shard_queue_commands", float64(st.EngineQueue), label, "engine")
		sh.gauge("replica_lag_entries", float64(st.CommitIndex-min(st.CommitIndex, st.AppliedIndex)), label)
		sh.gauge("replica_voter", truth(st.Voter), label)
		contact := 0.0
		if !r.leading() {
			contact = sinceContact(st.LastContact, sh.s.n.started).Seconds()
		}
		sh.gauge("replica_leader_contact_seconds", contact, label)
		watches += r.watch.count.Load()
		if !r.leading() {
			continue
		}
		meta, err := shard.ReadMeta(r.Reader())
		if sh.failed(err) {
			continue
		}
		sh.counter("shard_submitted_total", float64(meta.Submitted), label)
		oldest, err := shard.ScanUncertain(r.Reader(), nil, 1)
		if sh.failed(err) {
			continue
		}
		age := 0.0
		if len(oldest) > 0 {
			age = max(max(meta.Clock, sh.s.n.stamper.Stamp()).Sub(oldest[0].Since), 0).Seconds()
		}
		sh.gauge("uncertain_oldest_seconds", age, label)
	}
	sh.gauge("watches", float64(watches))
}

// laneSums are the counters of a destination's lanes together.
type laneSums struct {
	counts shard.LaneCounts
}

func (s *laneSums) add(c shard.LaneCounts) {
	s.counts.Scheduled += c.Scheduled
	s.counts.InFlight += c.InFlight
	s.counts.Uncertain += c.Uncertain
	s.counts.OpenAttempts += c.OpenAttempts
	s.counts.PendingBytes += c.PendingBytes
	for i := range c.Terminal {
		s.counts.Terminal[i] += c.Terminal[i]
	}
}

func (sh *sheet) lanes() {
	byName := make(map[string]*laneSums)
	gates, phases := [3]int{}, [3]int{}
	total := 0
	for r := range sh.s.n.replicas() {
		if !r.leading() {
			continue
		}
		sh.failed(eachLane(r, func(l *shard.LaneRecord) {
			total++
			sums := byName[l.Destination]
			if sums == nil {
				sums = &laneSums{}
				byName[l.Destination] = sums
			}
			sums.add(l.Counts)
			gates[min(int(l.Gate), 2)]++
			for i := range l.Targets {
				phases[min(int(l.Targets[i].Circuit.Phase), 2)]++
			}
		}))
	}
	sh.gauge("lanes", float64(total))
	sh.gauge("lanes_not_open", float64(gates[lane.GatePaused]), "paused")
	sh.gauge("lanes_not_open", float64(gates[lane.GateClosed]), "closed")
	for p := lane.CircuitClosed; p <= lane.CircuitHalfOpen; p++ {
		sh.gauge("circuits", float64(phases[p]), lower(p.String()))
	}
	for name, sums := range bounded(byName) {
		sh.destination(name, &sums.counts)
	}
}

// bounded keeps the first names and sums up the rest.
func bounded(byName map[string]*laneSums) map[string]*laneSums {
	if len(byName) <= maxMetricDestinations {
		return byName
	}
	out := make(map[string]*laneSums, maxMetricDestinations+1)
	rest := &laneSums{}
	for i, name := range slices.Sorted(maps.Keys(byName)) {
		if i < maxMetricDestinations {
			out[name] = byName[name]
			continue
		}
		rest.add(byName[name].counts)
	}
	out[otherDestinations] = rest
	return out
}

func (sh *sheet) destination(name string, c *shard.LaneCounts) {
	sh.gauge("lane_messages", float64(c.Scheduled), name, "scheduled")
	sh.gauge("lane_messages", float64(c.InFlight), name, "in_flight")
	sh.gauge("lane_messages", float64(c.Uncertain), name, "uncertain")
	for i, v := range c.Terminal {
		sh.gauge("lane_messages", float64(v), name, lower((shard.StateDelivered + shard.GenerationState(i)).String()))
	}
	sh.gauge("lane_pending_bytes", float64(c.PendingBytes), name)
	sh.gauge("lane_open_attempts", float64(c.OpenAttempts), name)
}

// eachLane walks the lanes of a shard, page by page.
func eachLane(r *replica, fn func(*shard.LaneRecord)) error {
	at := shard.LaneID(0)
	for {
		page, err := shard.ScanLanes(r.Reader(), at, scrapePage)
		if err != nil {
			return err
		}
		for i := range page {
			fn(&page[i])
			at = page[i].ID
		}
		if len(page) < scrapePage {
			return nil
		}
	}
}
