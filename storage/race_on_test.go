//go:build race

package storage_test

// crashStride thins out the crash points: the race detector makes each fifteen times dearer, and they are there to find lost data, not races.
const crashStride = 8
