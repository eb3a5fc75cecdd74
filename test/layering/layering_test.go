package layering

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// load type-checks the repository once for all tests.
func load(t *testing.T) []*packages.Package {
	t.Helper()
	cfg := &packages.Config{
		Mode:  packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports,
		Dir:   "../..",
		Tests: true,
	}
	pkgs, err := packages.Load(cfg, "./...")
	if err != nil {
		t.Fatal(err)
	}
	if len(pkgs) < 10 {
		t.Fatalf("only %d packages were found; the test would prove nothing", len(pkgs))
	}
	for _, p := range pkgs {
		for _, e := range p.Errors {
			t.Errorf("%s: %v", p.PkgPath, e)
		}
	}
	return pkgs
}

// short is a package's path inside the repository, without the suffixes that test builds add.
func short(p *packages.Package) string {
	path, _, _ := strings.Cut(p.PkgPath, " ")
	path = strings.TrimSuffix(strings.TrimSuffix(path, ".test"), "_test")
	return strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
}

func matches(pattern, path string) bool {
	if pattern == "..." {
		return true
	}
	sub, tree := strings.CutSuffix(pattern, "/...")
	return path == sub || tree && strings.HasPrefix(path, sub+"/")
}

func roomOf(path string) (room, bool) {
	for _, r := range house {
		if matches(r.path, path) {
			return r, true
		}
	}
	return room{}, false
}

func TestHouse(t *testing.T) {
	pkgs := load(t)
	seen := map[string]bool{}
	for _, p := range pkgs {
		path := short(p)
		r, ok := roomOf(path)
		if !ok {
			t.Errorf("package %q stands in no room; add it to rules.go on purpose", path)
			continue
		}
		seen[r.path] = true
		for _, f := range p.Syntax {
			name := p.Fset.Position(f.Pos()).Filename
			if !strings.Contains(name, "/") || generated(f) {
				continue
			}
			test := strings.HasSuffix(name, "_test.go")
			checkImports(t, r, path, f, test)
			checkFunctions(t, p.Fset, f)
			if r.pure && !test {
				checkPure(t, p, f)
			}
			if test {
				checkNoSleep(t, p.Fset, f)
			}
		}
	}
	for _, must := range []string{"policy", "lane", "shard", "catalog", "storage/...", "replication/...", "server/..."} {
		if !seen[must] {
			t.Errorf("room %q was not checked", must)
		}
	}
}

func generated(f *ast.File) bool { return ast.IsGenerated(f) }

func checkImports(t *testing.T, r room, path string, f *ast.File, test bool) {
	t.Helper()
	for _, imp := range f.Imports {
		target := strings.Trim(imp.Path.Value, `"`)
		ours, ok := strings.CutPrefix(target, module+"/")
		if !ok {
			if r.pure && !test && slices.Contains(impure, target) {
				t.Errorf("%s is pure and imports %s", path, target)
			}
			continue
		}
		if ours == path || allowed(r.may, ours) || test && allowed(testsMay, ours) {
			continue
		}
		t.Errorf("%s imports %s, which its room may not", path, ours)
	}
}

func allowed(may []string, path string) bool {
	return slices.ContainsFunc(may, func(p string) bool { return matches(p, path) })
}

func checkFunctions(t *testing.T, fset *token.FileSet, f *ast.File) {
	t.Helper()
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		from, to := fset.Position(fn.Pos()), fset.Position(fn.End())
		if n := to.Line - from.Line + 1; n > maxFunctionLines && !strings.HasSuffix(from.Filename, "_test.go") {
			t.Errorf("%s:%d: %s has %d lines, at most %d", from.Filename, from.Line, fn.Name.Name, n, maxFunctionLines)
		}
	}
}

// checkPure looks for what makes a result depend on anything but its arguments.
func checkPure(t *testing.T, p *packages.Package, f *ast.File) {
	t.Helper()
	at := func(n ast.Node) token.Position { return p.Fset.Position(n.Pos()) }
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt, *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
			t.Errorf("%s: a pure room has no goroutines and channels", at(n))
		case *ast.RangeStmt:
			checkMapRange(t, p, f, n)
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(impureCalls, n.Sel.Name) {
				t.Errorf("%s: a pure room does not read a clock: time.%s", at(n), n.Sel.Name)
			}
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "maps" && (n.Sel.Name == "Keys" || n.Sel.Name == "Values" || n.Sel.Name == "All") {
				t.Errorf("%s: a pure room does not depend on map order: maps.%s", at(n), n.Sel.Name)
			}
		case *ast.Ident:
			if obj := p.TypesInfo.Uses[n]; obj != nil && isFloatType(obj) {
				t.Errorf("%s: a pure room has no floats", at(n))
			}
		case *ast.BasicLit:
			if n.Kind == token.FLOAT {
				t.Errorf("%s: a pure room has no floats", at(n))
			}
		}
		return true
	})
}

func isFloatType(obj types.Object) bool {
	tn, ok := obj.(*types.TypeName)
	return ok && obj.Pkg() == nil && (tn.Name() == "float64" || tn.Name() == "float32")
}

// checkMapRange allows a range over a map only where the line says that the order does not matter, for example because it is sorted next.
func checkMapRange(t *testing.T, p *packages.Package, f *ast.File, n *ast.RangeStmt) {
	t.Helper()
	tv, ok := p.TypesInfo.Types[n.X]
	if !ok {
		return
	}
	if _, isMap := tv.Type.Underlying().(*types.Map); !isMap {
		return
	}
	line := p.Fset.Position(n.Pos()).Line
	for _, g := range f.Comments {
		for _, c := range g.List {
			if p.Fset.Position(c.Pos()).Line == line && strings.Contains(c.Text, "sorted below") {
				return
			}
		}
	}
	t.Errorf("%s: a pure room does not range over a map", p.Fset.Position(n.Pos()))
}

// checkNoSleep keeps tests from waiting by the clock: poll with a deadline, or use testing/synctest, where sleeping is exact.
func checkNoSleep(t *testing.T, fset *token.FileSet, f *ast.File) {
	t.Helper()
	for _, imp := range f.Imports {
		if imp.Path.Value == `"testing/synctest"` {
			return
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Sleep" {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" {
				t.Errorf("%s: tests do not sleep", fset.Position(n.Pos()))
			}
		}
		return true
	})
}

// TestPackages checks what every package must have: a comment that says what it is, and a name that says what belongs in it.
func TestPackages(t *testing.T) {
	commented := map[string]bool{}
	packagesSeen := map[string]bool{}
	for _, p := range load(t) {
		path := short(p)
		if strings.HasPrefix(path, "api/gen") || strings.HasSuffix(p.PkgPath, ".test") || strings.HasSuffix(p.Name, "_test") {
			continue
		}
		packagesSeen[path] = true
		if slices.Contains(crowded, p.Name) {
			t.Errorf("package name %q says nothing", p.Name)
		}
		for _, f := range p.Syntax {
			if f.Doc != nil && len(f.Doc.Text()) > 40 {
				commented[path] = true
			}
		}
	}
	for path := range packagesSeen {
		if !commented[path] {
			t.Errorf("package %q has no package comment", path)
		}
	}
}
