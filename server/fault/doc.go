// Package fault lets a test make a real node suffer: a slow, hanging, failing or full disk, a wall clock that steps or drifts, a connection
// that delays or holds its bytes, a goroutine that stalls between two steps of the protocol.
//
// What it is. A handful of wrappers that the node calls at its edges. In a build with the tag `faults` they obey a control endpoint, whose
// loopback address is in SEALANE_TEST_FAULTS_ADDR; without the variable they do nothing. In every other build they return what they were
// given, read no environment and leave nothing in the binary; a test builds both and looks.
//
// What it may not do. It decides nothing and repairs nothing. It never reorders, changes or invents bytes: what a disk or a connection may not
// do in reality, it does not do here. It listens on loopback only.
//
// Invariants it keeps: what is set stays until it is set otherwise, and clearing wakes everything that waits, so that a test can always come to rest.
//
// Where to start. spec.go is what can be asked for, as data; off.go is the whole of the package in a released binary; control.go is the endpoint.
package fault
