package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/client"
)

func (a *app) destinationCommand() *cobra.Command {
	apply, list, get, del := a.destinationApply(), a.destinationList(), a.destinationGet(), a.destinationDelete()
	a.clientFlags(apply, list, get, del)
	return group("destination", "Where messages go", apply, list, get, del)
}

const applyHelp = `Registers the destinations of a YAML file, one per document. A changed definition makes a new version; messages keep the version under which
they were accepted. An unchanged one makes none. "-" reads standard input.

  name: billing
  http: {url: https://billing.example.com/hooks, timeout: 15s}
  retry: {max_attempts: 8, initial_backoff: 1s, max_backoff: 1h}
  uncertainty: {on_uncertain: hold}

Every field is optional but name and http.url. Durations are written 15s, 1h30m, 72h.`

func (a *app) destinationApply() *cobra.Command {
	var path string
	c := &cobra.Command{
		Use: "apply -f FILE", Short: "Register destinations, or new versions of them", Long: applyHelp, Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if path == "" {
				return &usageError{fmt.Errorf("file is missing"), "name one with -f FILE, or -f - for standard input"}
			}
			all, err := a.openDestinations(path)
			if err != nil {
				return err
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error { return a.apply(ctx, c, all) })
		},
	}
	c.Flags().StringVarP(&path, "file", "f", "", "YAML file; - is standard input")
	return c
}

func (a *app) openDestinations(path string) ([]*sealanev1.Destination, error) {
	if path == "-" {
		return readDestinations("standard input", a.in)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, usagef("file: %s: %w", path, cause(err))
	}
	defer f.Close()
	return readDestinations(path, f)
}

// apply registers one after the other and says what became of each before the first refusal.
func (a *app) apply(ctx context.Context, c *client.Client, all []*sealanev1.Destination) error {
	for _, d := range all {
		resp, err := c.Destinations().ApplyDestination(ctx, &sealanev1.ApplyDestinationRequest{Name: d.GetName(), Destination: d})
		if err != nil {
			return &aboutError{"destination " + d.GetName(), err}
		}
		if a.output == outputJSON {
			if err := a.printJSON(resp); err != nil {
				return err
			}
			continue
		}
		what := "applied"
		if resp.GetUnchanged() {
			what = "unchanged"
		}
		fmt.Fprintf(a.out, "destination %s: version %d %s\n", resp.GetName(), resp.GetVersion(), what)
	}
	return nil
}

func (a *app) destinationList() *cobra.Command {
	var p paging
	c := &cobra.Command{
		Use: "list", Short: "List destinations", Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.check(); err != nil {
				return err
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				rows, next, err := fetch(p, func(size int32, token string) ([]*sealanev1.Destination, string, error) {
					resp, err := c.Destinations().ListDestinations(ctx, &sealanev1.ListDestinationsRequest{PageSize: size, PageToken: token})
					return resp.GetDestinations(), resp.GetNextPageToken(), err
				})
				if err != nil {
					return err
				}
				if a.output == outputJSON {
					return rowsJSON(a, "destinations", rows, next)
				}
				t := &table{}
				t.add("NAME", "VERSION", "URL", "ATTEMPTS", "ON UNCERTAIN", "CREATED")
				for _, d := range rows {
					t.add(d.GetName(), number(d.GetVersion()), d.GetHttp().GetUrl(), number(d.GetRetry().GetMaxAttempts()), holdOr(d), at(d.GetCreatedAt()))
				}
				a.printRows(t, len(rows), "no destinations", next)
				return nil
			})
		},
	}
	p.flags(c)
	return c
}

func holdOr(d *sealanev1.Destination) string {
	if d.GetUncertainty().GetOnUncertain() == sealanev1.OnUncertain_retry {
		return "retry " + number(d.GetUncertainty().GetMaxRetries())
	}
	return "hold"
}

func (a *app) destinationGet() *cobra.Command {
	var version uint32
	c := &cobra.Command{
		Use: "get NAME", Short: "Show a destination as a file that can be applied again", Args: args("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				resp, err := c.Destinations().GetDestination(ctx, &sealanev1.GetDestinationRequest{Name: args[0], Version: version})
				if err != nil {
					return err
				}
				d := resp.GetDestination()
				if a.output == outputJSON {
					return a.printJSON(d)
				}
				return writeDestination(a.out, d)
			})
		},
	}
	c.Flags().Uint32Var(&version, "version", 0, "the version; 0: the newest")
	return c
}

func (a *app) destinationDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Remove a destination; refused while anything of it is pending or held", Args: args("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				resp, err := c.Destinations().DeleteDestination(ctx, &sealanev1.DeleteDestinationRequest{Name: args[0]})
				if err != nil {
					return err
				}
				if a.output == outputJSON {
					return a.printJSON(resp)
				}
				_, err = fmt.Fprintf(a.out, "destination %s: deleted\n", args[0])
				return err
			})
		},
	}
}
