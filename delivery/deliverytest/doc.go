// Package deliverytest has what tests of adapters need: receivers that speak bytes or frames from a script over real connections and record every
// request that they physically saw, and the conformance suite that every adapter passes.
//
// What it may not do. Only tests import it. The receivers know no outcome and no rule: they do what the script says and remember.
//
// Invariants it checks for every adapter: one Send is at most one physical request; nothing is sent without the gate; every outcome is a legal
// pair whose statement fits; an answer that does not come is UNKNOWN.
//
// Where to start. Receiver for HTTP/1 and bytes, FrameReceiver for HTTP/2, Run for the suite.
package deliverytest
