package catalog_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sealane/sealane/catalog"
)

func names(t *testing.T, g *group, after string, limit int) (out []string) {
	t.Helper()
	all, err := catalog.Namespaces(g.st, after, limit)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range all {
		out = append(out, n.Name)
	}
	return out
}

// TestNamespaces: the default one is always there and in its place; making one twice is harmless.
func TestNamespaces(t *testing.T) {
	g := newGroup(t)
	if got := names(t, g, "", 10); !slices.Equal(got, []string{"default"}) {
		t.Errorf("%q", got)
	}
	for _, name := range []string{"acme", "zeta", "default", "acme"} {
		if r := g.one(&catalog.CreateNamespace{Name: name}); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	g.refused(&catalog.CreateNamespace{Name: "No"}, catalog.ErrInvalid)
	all := []string{"acme", "default", "zeta"}
	for i, after := range append([]string{""}, all...) {
		for limit := range 5 {
			want := all[i:min(i+limit, len(all))]
			if got := names(t, g, after, limit); !slices.Equal(got, want) {
				t.Errorf("after %q, limit %d: %q, want %q", after, limit, got, want)
			}
		}
	}
	n, ok, err := catalog.GetNamespace(g.st, "acme")
	if err != nil || !ok || n.CreatedAt != 1000 {
		t.Errorf("%+v %v %v", n, ok, err)
	}
	if _, ok, err := catalog.GetNamespace(g.st, "default"); err != nil || !ok {
		t.Errorf("the default one: %v %v", ok, err)
	}
	if _, ok, err := catalog.GetNamespace(g.st, "nobody"); err != nil || ok {
		t.Errorf("none: %v %v", ok, err)
	}
}

func TestNamespacesAreBounded(t *testing.T) {
	g := newGroup(t)
	for i := range catalog.MaxNamespaces {
		if r := g.one(&catalog.CreateNamespace{Name: fmt.Sprintf("t%d", i)}); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	g.refused(&catalog.CreateNamespace{Name: "more"}, catalog.ErrTooManyNamespaces)
}
