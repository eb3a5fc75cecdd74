package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// Bounds of a list's --limit.
const (
	defaultLimit = 100
	maxLimit     = 10_000
	maxPage      = 1000
)

// paging is how much of a list to show.
type paging struct {
	limit int
	token string
}

func (p *paging) flags(c *cobra.Command) {
	c.Flags().IntVar(&p.limit, "limit", defaultLimit, "most rows to show, 1 to 10000")
	c.Flags().StringVar(&p.token, "page-token", "", "go on where an earlier list ended")
}

func (p paging) check() error {
	if p.limit < 1 || p.limit > maxLimit {
		return usagef("limit is %d, want 1 to %d", p.limit, maxLimit)
	}
	return nil
}

// fetch reads pages until the limit; next goes on where it ended, and is empty where there is no more.
func fetch[T any](p paging, page func(size int32, token string) ([]T, string, error)) (rows []T, next string, err error) {
	next = p.token
	for len(rows) < p.limit {
		var more []T
		more, next, err = page(int32(min(p.limit-len(rows), maxPage)), next)
		if err != nil {
			return nil, "", err
		}
		rows = append(rows, more...)
		if next == "" {
			break
		}
	}
	return rows, next, nil
}

// printRows prints a list's table, or says that there is nothing, and tells where it goes on.
func (a *app) printRows(t *table, rows int, none, next string) {
	if rows == 0 {
		fmt.Fprintln(a.err, none)
	} else {
		t.print(a.out)
	}
	if next != "" {
		fmt.Fprintf(a.err, "there is more: --page-token %s\n", next)
	}
}
