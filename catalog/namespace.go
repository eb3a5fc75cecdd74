package catalog

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sealane/sealane/policy"
)

// ErrTooManyNamespaces: the cluster has MaxNamespaces namespaces.
var ErrTooManyNamespaces = errors.New("catalog: too many namespaces")

const (
	// DefaultNamespace is always there and is not stored.
	DefaultNamespace = "default"
	// MaxNamespaces bounds the namespaces of a cluster, the default one apart.
	MaxNamespaces = 10_000
)

// Namespace is a tenant.
type Namespace struct {
	Name      string      `json:"name"`
	CreatedAt policy.Time `json:"created_at,omitempty"`
}

// CreateNamespace makes a namespace; one that is there stays as it is.
type CreateNamespace struct{ Name string }

func (*CreateNamespace) command() {}

func createNamespace(st State, m *meta, c *CreateNamespace) (Result, error) {
	if !ValidName(c.Name) {
		return Result{Err: fmt.Errorf("%w: namespace must match [a-z0-9][a-z0-9._-]{0,62}", ErrInvalid)}, nil
	}
	if _, ok, err := GetNamespace(st, c.Name); err != nil || ok {
		return Result{}, err
	}
	if m.Namespaces >= MaxNamespaces {
		return Result{Err: fmt.Errorf("%w: the limit is %d", ErrTooManyNamespaces, MaxNamespaces)}, nil
	}
	m.Namespaces++
	return Result{Changed: true}, put(st, namespaceKey(c.Name), Namespace{Name: c.Name, CreatedAt: m.Clock})
}

// GetNamespace reads a namespace; the default one is always found.
func GetNamespace(r Reader, name string) (Namespace, bool, error) {
	if name == DefaultNamespace {
		return Namespace{Name: name}, true, nil
	}
	return get[Namespace](r, namespaceKey(name))
}

// Namespaces returns up to limit namespaces in the order of their names, after the name given; "" starts.
func Namespaces(r Reader, after string, limit int) ([]Namespace, error) {
	var out []Namespace
	pending := after < DefaultNamespace // the default one takes its place in the order
	add := func(n Namespace) bool {
		if len(out) < limit {
			out = append(out, n)
		}
		return len(out) < limit
	}
	lower := namespaceKey(after)
	if after != "" {
		lower = append(lower, 0)
	}
	more := limit > 0
	err := r.Scan(lower, []byte{keyNamespace + 1}, false, func(_, b []byte) (bool, error) {
		var n Namespace
		if err := json.Unmarshal(b, &n); err != nil {
			return false, fmt.Errorf("%w: namespace: %w", ErrCorrupt, err)
		}
		if pending && n.Name > DefaultNamespace {
			pending = false
			if more = add(Namespace{Name: DefaultNamespace}); !more {
				return false, nil
			}
		}
		more = add(n)
		return more, nil
	})
	if pending && more {
		add(Namespace{Name: DefaultNamespace})
	}
	return out, err
}

func namespaceKey(name string) []byte { return append([]byte{keyNamespace}, name...) }
