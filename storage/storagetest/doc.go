// Package storagetest holds what tests need of storage: stores in memory, a disk that can crash, and conformance suites.
//
// RunStore is for implementations of the whole store, RunState for anything that keeps an ordered map of bytes as a group's state does,
// the in-memory state of other packages' tests included. It is imported by tests only. Start reading at suite.go.
package storagetest
