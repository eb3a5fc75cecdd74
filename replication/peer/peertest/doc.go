// Package peertest is a network in memory for tests and simulations: listeners and connections by address, with cuts, one-way holds and delays.
// It works on fake time under testing/synctest as on real time, and it carries bytes as TCP does: nothing is lost or reordered as long as a
// connection lasts; what a hold keeps back arrives when it ends.
//
// It may not import anything of ours. Start reading at Net.
package peertest
