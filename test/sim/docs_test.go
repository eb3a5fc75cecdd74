package sim

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

var testName = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z][A-Za-z0-9]*`)

// TestInvariantTable: every test that docs/invariants.md names exists in the package it names, and no invariant is left out.
func TestInvariantTable(t *testing.T) {
	b, err := os.ReadFile(root + "/docs/invariants.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	named := 0
	for _, line := range strings.Split(string(b), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.HasPrefix(line, "|---") || strings.TrimSpace(cells[1]) == "id" {
			continue
		}
		id, by := strings.TrimSpace(cells[1]), strings.TrimSpace(cells[3])
		if rows[id] {
			t.Errorf("invariant %s has two rows", id)
		}
		rows[id] = true
		if by == "" {
			t.Errorf("invariant %s says nothing about its tests", id)
		}
		named += checkNames(t, id, by)
	}
	for _, id := range append(numbers("", 50), numbers("I", 11)...) {
		if !rows[id] {
			t.Errorf("invariant %s has no row", id)
		}
	}
	if named < 100 {
		t.Errorf("only %d names were found; the format of the table must have changed", named)
	}
}

func numbers(prefix string, n int) []string {
	var ids []string
	for i := range n {
		ids = append(ids, prefix+strconv.Itoa(i+1))
	}
	return ids
}

// checkNames reads "package: TestA, TestB; package: TestC".
func checkNames(t *testing.T, id, by string) (named int) {
	t.Helper()
	for _, part := range strings.Split(by, ";") {
		names := testName.FindAllString(part, -1)
		if len(names) == 0 {
			continue
		}
		before, _, _ := strings.Cut(part, names[0])
		words := strings.Fields(strings.TrimSuffix(strings.TrimSpace(before), ":"))
		if len(words) == 0 {
			t.Errorf("invariant %s: %q names no package", id, part)
			continue
		}
		dir := words[len(words)-1]
		for _, name := range names {
			named++
			if !hasTest(t, dir, name) {
				t.Errorf("invariant %s: there is no %s in %s", id, name, dir)
			}
		}
	}
	return named
}

func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}
