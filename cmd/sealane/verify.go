package main

import (
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sealane/sealane/server"
)

// verifyCommand checks a stopped node's data directory. It needs no running node and changes nothing.
func (a *app) verifyCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use: "verify --data-dir DIR", Short: "Check the data directory of a stopped node", Args: args(),
		Long: "Checks format and identity, every checksum, the continuity of the logs, and recounts every shard's books. It changes nothing.\n" +
			"Exits with an error if anything does not agree.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return usagef("data-dir is required")
			}
			report, err := server.Verify(cmd.Context(), dir, nil)
			if err != nil && !errors.Is(err, server.ErrVerify) {
				return err
			}
			if a.output == outputJSON {
				return errors.Join(a.printRaw(report), err)
			}
			return errors.Join(a.printVerify(report), err)
		},
	}
	c.Flags().StringVar(&dir, "data-dir", "", "the directory of the stopped node")
	return c
}

func (a *app) printVerify(r server.VerifyReport) error {
	fmt.Fprintf(a.out, "node %s, format %d, incarnation %s, %d tables\n\n", r.Node, r.Format, r.Incarnation, r.Tables)
	w := tabwriter.NewWriter(a.out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "GROUP\tLOG\tENTRIES\tDURABLE\tKEYS\tBYTES\tDIGEST")
	for _, g := range r.Groups {
		fmt.Fprintf(w, "%s\t%d-%d\t%d\t%d\t%d\t%d\t%.16s\n", g.Name, g.FirstIndex, g.LastIndex, g.LogEntries, g.DurableApplied, g.StateKeys, g.StateBytes, g.Digest)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, p := range r.Problems {
		fmt.Fprintf(a.out, "problem: %s\n", p)
	}
	if len(r.Problems) == 0 {
		fmt.Fprintln(a.out, "\nno problems found")
	}
	return nil
}
