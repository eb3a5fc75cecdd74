// Command bench measures one node, and three, beside a bare Go POST loop, in one run on one machine, and prints a table.
//
// What it is. The node is a real `sealane serve` on a temporary data directory with every write synced; the receiver is another process; the load
// comes from this one over gRPC. Rates are counted at the receiver and in the node's ledger, CPU is read from the three processes.
//
// What it may not do. It asserts nothing about time: it reports. It touches only loopback, and its loops are bounded.
//
// Start at main; scenarios.go has what is measured, bare.go the bound.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/sealane/sealane/test/robustness"
)

type options struct {
	binary   string
	messages int
	backlog  int
	lanes    int
	seconds  int
	only     string
	dir      string
	shards   int
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == receiverArg {
		if err := runReceiver(); err != nil {
			fmt.Fprintln(os.Stderr, "receiver:", err)
			os.Exit(1)
		}
		return
	}
	var o options
	flag.StringVar(&o.binary, "binary", "bin/sealane", "the node's binary")
	flag.IntVar(&o.messages, "messages", 50_000, "messages of each throughput run")
	flag.IntVar(&o.backlog, "backlog", 1_000_000, "pending messages of the backlog run; 0 leaves it out")
	flag.IntVar(&o.lanes, "lanes", 10_000, "destinations of the many-lanes run; 0 leaves it out")
	flag.IntVar(&o.seconds, "seconds", 10, "length of the open-loop latency runs")
	flag.StringVar(&o.only, "only", "", "comma-separated scenarios: bare, deliver, submit, unary, latency, backlog, lanes, cluster")
	flag.StringVar(&o.dir, "dir", "", "directory for data, default a temporary one")
	flag.IntVar(&o.shards, "shards", 4, "shards of the node")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	binary, err := filepath.Abs(o.binary)
	if err != nil {
		return err
	}
	if _, err := os.Stat(binary); err != nil {
		return fmt.Errorf("%w (make build makes it)", err)
	}
	receiver, err := startReceiver(ctx)
	if err != nil {
		return err
	}
	defer receiver.close()
	dir, err := os.MkdirTemp(o.dir, "sealane-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	node, err := robustness.NewProcess(binary, dir, o.shards)
	if err != nil {
		return err
	}
	defer node.Close()
	start, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := node.Start(start); err != nil {
		return err
	}
	b := &bench{o: o, node: node, receiver: receiver}
	fmt.Printf("machine: %d cores, %s; payload 256 bytes; %d shards; every write synced\n\n", runtime.NumCPU(), runtime.Version(), o.shards)
	if err := b.scenarios(ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, node.Output())
	}
	return nil
}

func (b *bench) wants(name string) bool {
	if b.o.only == "" {
		return true
	}
	for _, s := range strings.Split(b.o.only, ",") {
		if s == name {
			return true
		}
	}
	return false
}

// startSelf runs this program again as the receiver.
func startSelf(ctx context.Context) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return exec.CommandContext(ctx, self, receiverArg), nil
}
