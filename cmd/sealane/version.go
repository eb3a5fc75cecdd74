package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/sealane/sealane/server"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of this binary", Args: args(),
		RunE: func(*cobra.Command, []string) error {
			if a.output == outputJSON {
				return a.printRaw(map[string]string{"version": server.Version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH})
			}
			_, err := fmt.Fprintf(a.out, "sealane %s (%s, %s/%s)\n", server.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
