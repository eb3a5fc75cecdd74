package robustness

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Report is what the audit found. Lost, Unexplained, WithoutAdmission, Wrong and Disorder must be empty.
type Report struct {
	Acknowledged, Open, Refused int // submits by their answer
	Found                       int // of the open ones: those that took effect
	Messages, Requests          int // in the ledger, at the receiver
	Attempts                    int
	States                      map[string]int
	UnknownBy                   map[string]int // initial outcomes UNKNOWN by the rule that decided
	NotSentBy                   map[string]int // NOT_PUBLISHED because nothing was sent, by error class
	Lost                        []string       // acknowledged and not there, or in no state
	Unexplained                 []string       // a second request that nothing permitted, or two for one attempt
	WithoutAdmission            []string       // a request whose attempt is not in the ledger
	Wrong                       []string       // the ledger contradicts the receiver, the submitter, or itself
	Disorder                    []string       // messages of one ordering key delivered in another order
	Early                       int            // requests before deliver_at by the receiver's clock; right only where clocks were moved
}

func newReport() *Report {
	return &Report{States: map[string]int{}, UnknownBy: map[string]int{}, NotSentBy: map[string]int{}}
}

// Failed tells whether the audit found what must not be.
func (r *Report) Failed() bool {
	return len(r.Lost)+len(r.Unexplained)+len(r.WithoutAdmission)+len(r.Wrong)+len(r.Disorder) > 0
}

func (r *Report) String() string {
	var b strings.Builder
	line := func(what string, n int) { fmt.Fprintf(&b, "  %-36s %d\n", what, n) }
	line("submits acknowledged", r.Acknowledged)
	line("submits refused", r.Refused)
	line("submits without a verdict", r.Open)
	line("  of these accepted after all", r.Found)
	line("messages in the ledger", r.Messages)
	for _, k := range sorted(r.States) {
		line("  "+k, r.States[k])
	}
	line("attempts in the ledger", r.Attempts)
	for _, k := range sorted(r.UnknownBy) {
		line("  unknown by "+k, r.UnknownBy[k])
	}
	for _, k := range sorted(r.NotSentBy) {
		line("  certainly not sent: "+k, r.NotSentBy[k])
	}
	line("requests at the receiver", r.Requests)
	line("lost", len(r.Lost))
	line("unexplained duplicates", len(r.Unexplained))
	line("sends without admission", len(r.WithoutAdmission))
	line("ledger against receiver", len(r.Wrong))
	line("out of order", len(r.Disorder))
	if r.Early > 0 {
		line("sent before deliver_at", r.Early)
	}
	for _, list := range [][]string{r.Lost, r.Unexplained, r.WithoutAdmission, r.Wrong, r.Disorder} {
		for i, what := range list {
			if i == 20 {
				fmt.Fprintf(&b, "    … and %d more\n", len(list)-i)
				break
			}
			fmt.Fprintf(&b, "    %s\n", what)
		}
	}
	return b.String()
}

// sort makes two reports of one run the same text.
func (r *Report) sort() {
	for _, list := range [][]string{r.Lost, r.Unexplained, r.WithoutAdmission, r.Wrong, r.Disorder} {
		slices.Sort(list)
	}
}

func sorted(m map[string]int) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
