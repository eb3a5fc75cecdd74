package delivery

import (
	"fmt"
	"slices"
)

// Opener opens a target from the encoded description that a destination holds.
type Opener func(encoded []byte) (Target, error)

// Registry finds the opener of an adapter kind. Fill it at start; afterwards it is only read, so it needs no lock.
type Registry struct{ openers map[string]Opener }

// Register adds a kind. The same kind twice is a programmer's error and panics.
func (r *Registry) Register(kind string, open Opener) {
	if kind == "" || open == nil {
		panic("delivery: register: kind and opener are needed")
	}
	if _, twice := r.openers[kind]; twice {
		panic("delivery: register: kind " + kind + " is registered twice")
	}
	if r.openers == nil {
		r.openers = make(map[string]Opener)
	}
	r.openers[kind] = open
}

// Open opens a target. The error is ErrUnknownAdapter for a kind that is not registered; otherwise the adapter's.
func (r *Registry) Open(kind string, encoded []byte) (Target, error) {
	open, ok := r.openers[kind]
	if !ok {
		return nil, fmt.Errorf("%w: %q", ErrUnknownAdapter, kind)
	}
	return open(encoded)
}

// Kinds lists what is registered, sorted.
func (r *Registry) Kinds() []string {
	kinds := make([]string, 0, len(r.openers))
	for k := range r.openers {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	return kinds
}
