// Package layering proves the shape of the house: who may import whom, that the pure rooms are pure, and that functions stay readable.
//
// It may not be imported. It checks invariant I11 (docs/invariants.md). Start at rules.go, which is the whole plan of the house as data.
package layering
