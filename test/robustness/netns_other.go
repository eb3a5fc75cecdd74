//go:build !linux

package robustness

import "errors"

// ErrNoNamespaces: this system has no network namespaces.
var ErrNoNamespaces = errors.New("robustness: no network namespaces here: not Linux")

// NewNamespaces says so.
func NewNamespaces() (Net, error) { return nil, ErrNoNamespaces }
