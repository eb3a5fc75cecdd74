//go:build !race

package storage_test

// crashStride 1 opens every crash point.
const crashStride = 1
