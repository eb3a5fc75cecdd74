package policy

import (
	"fmt"
	"testing"
)

// TestOutcomeTable pins which pairs are legal and what each does (R175, C.7). An illegal pair does nothing.
func TestOutcomeTable(t *testing.T) {
	budgets := []string{"-", "counts", "terminal"}
	circuits := []string{"success", "answered", "failure", "throttle", "-"}
	var lines []string
	for s := SideEffectUnspecified; s <= Unknown+1; s++ {
		for d := DispositionUnspecified; d <= AdapterBug+1; d++ {
			b, c := EffectOf(s, d)
			if !LegalOutcome(s, d) {
				if b != BudgetNone || c != CircuitNone {
					t.Errorf("illegal %s %s has an effect: %d, %d", s, d, b, c)
				}
				lines = append(lines, fmt.Sprintf("%-24s %-24s illegal", s, d))
				continue
			}
			lines = append(lines, fmt.Sprintf("%-24s %-24s budget %-8s circuit %s", s, d, budgets[b], circuits[c]))
		}
	}
	golden(t, "outcomes", lines)
}

// TestOutcomeRules says the same in the words of the rules, over all pairs of all values.
func TestOutcomeRules(t *testing.T) {
	for s := range SideEffect(255) {
		for d := range Disposition(255) {
			known := s >= Published && s <= Unknown && d >= OK && d <= AdapterBug
			if got, want := LegalOutcome(s, d), known && (s == Published) == (d == OK); got != want {
				t.Fatalf("LegalOutcome(%d, %d) = %v", s, d, got)
			}
			b, c := EffectOf(s, d)
			if lane := d == LaneUnavailable || d == LaneThrottled || d == Fenced; lane && b != BudgetNone {
				t.Errorf("%s %s costs budget", s, d)
			}
			if s != NotPublished && b != BudgetNone {
				t.Errorf("%s %s costs budget", s, d)
			}
			if c == CircuitSuccess && s != Published || s == Unknown && (c == CircuitAnswered || c == CircuitThrottle) {
				t.Errorf("%s %s tells the circuit %d", s, d, c)
			}
		}
	}
}

func TestOutcomeNames(t *testing.T) {
	effects := []string{"SIDE_EFFECT_UNSPECIFIED", "PUBLISHED", "NOT_PUBLISHED", "UNKNOWN", "SIDE_EFFECT_UNSPECIFIED"}
	for i, name := range effects {
		if got := SideEffect(i).String(); got != name {
			t.Errorf("side effect %d is %q, want %q", i, got, name)
		}
	}
	dispositions := []string{
		"DISPOSITION_UNSPECIFIED", "OK", "MESSAGE_RETRIABLE", "MESSAGE_PERMANENT", "LANE_UNAVAILABLE", "LANE_THROTTLED", "FENCED", "ADAPTER_BUG",
		"DISPOSITION_UNSPECIFIED",
	}
	for i, name := range dispositions {
		if got := Disposition(i).String(); got != name {
			t.Errorf("disposition %d is %q, want %q", i, got, name)
		}
	}
}

func FuzzParseSideEffect(f *testing.F) {
	for _, name := range []string{"", "PUBLISHED", "NOT_PUBLISHED", "UNKNOWN", "published", "UNKNOWN ", "SIDE_EFFECT_UNSPECIFIED"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		s, ok := ParseSideEffect(name)
		if ok != (name == "PUBLISHED" || name == "NOT_PUBLISHED" || name == "UNKNOWN") {
			t.Fatalf("ParseSideEffect(%q): %v", name, ok)
		}
		if ok && s.String() != name || !ok && s != SideEffectUnspecified {
			t.Fatalf("ParseSideEffect(%q) = %s", name, s)
		}
	})
}
