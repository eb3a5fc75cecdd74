package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sealane/sealane/client"
	"github.com/sealane/sealane/sink"
)

const defaultSinkAddr = "127.0.0.1:7460"

const sinkHelp = `Starts a receiver for webhooks that does on purpose what receivers do by accident. The path of a request chooses its answer:

  /ok                     200
  /status/{code}          that status
  /flaky/{n}              503 for the first n requests with a webhook-id, then 200
  /retry-after/{seconds}  503 with Retry-After for the first request with a webhook-id, then 200
  /slow/{duration}        200 after the duration
  /hang                   no answer
  /drop                   reads the whole body, then closes the connection without an answer

Every request is recorded before it is answered:

  GET /_received          what was received; ?since=N from a sequence number on
  DELETE /_received       forget it
  PUT /_mode/PATH?as=/X   from now on PATH answers as /X; without as, as itself again`

func (a *app) sinkCommand() *cobra.Command {
	var o sink.Options
	var listen string
	c := &cobra.Command{
		Use: "sink", Short: "Start a scriptable receiver", Long: sinkHelp, Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			return a.sink(ctx, listen, o)
		},
	}
	c.Flags().StringVar(&listen, "listen", defaultSinkAddr, "address to listen on; port 0 takes a free one")
	c.Flags().StringVar(&o.RecordFile, "record-file", "", "append one JSON line per request to this file, before it is answered")
	c.Flags().IntVar(&o.Records, "records", sink.DefaultRecords, "requests to keep in memory; -1 keeps none and only counts")
	return c
}

func (a *app) sink(ctx context.Context, listen string, o sink.Options) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return usagef("listen is %q: %w", listen, err)
	}
	s, err := sink.New(o)
	if err != nil {
		l.Close()
		return &usageError{err: err}
	}
	srv := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	fmt.Fprintf(a.out, "sealane sink: ready on http://%s\n", l.Addr())
	select {
	case err = <-served:
	case <-ctx.Done():
		err = srv.Close() // requests that hang are meant to be cut off
		<-served
	}
	fmt.Fprintf(a.out, "sealane sink: received %d requests\n", s.Count())
	return errors.Join(err, s.Close())
}

// addrFlag is what a client command needs to reach a node that does not listen at the default address.
func (a *app) addrFlag(addr string) string {
	if addr == client.DefaultAddr {
		return ""
	}
	return " --addr " + addr
}
