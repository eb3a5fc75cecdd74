// Package host is the runtime of one led shard: the only place that has the shard's clock, and where decisions of the log become requests.
//
// What it is. A Host finds due work by index, claims it (permits, a rate token, a connection in hand, the rendered request), proposes
// the admissions of one pass as one vector, sends what was admitted, and proposes what became of it. It also expires, trims, recovers
// attempts that an earlier leader left open, and checks targets whose circuit is open. It decides what to propose; the log decides what
// happens (DESIGN 3, 4, 7).
//
// What it may not do. It never sends without an admission that is applied, its own, and inside its send window; it never sends one
// admission twice; it counts no attempts and chooses no retry time (P5). It knows neither Raft nor Pebble nor HTTP: Log, Store and
// Carrier are joined to them by server. It imports only shard, lane and policy.
//
// Invariants it keeps (REQUIREMENTS.md D): 7, 8, 10, 13, 14 and the runtime half of 11, 12 and 19; I7 of STYLE.md.
//
// Goroutines. One loop per Host owns all of its state; it ends with Close. One goroutine per request in flight and one per connection
// being made, both bounded by Options; each ends when its Conn or Target returns, which a cancelled context makes it do. The calls
// Effects and the done functions given to the Log only append to the inbox, so the apply goroutine never waits.
//
// Where to start. options.go has every limit; ports.go what a Host needs; loop.go one turn of the loop; claims.go, send.go and settle.go
// are the life of an attempt in order; window.go and wake.go find the work; recover.go is what a new leader does first.
package host
