package main

import (
	"io"
	"os"
	"time"
)

func main() {
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Environ(), now: time.Now}
	os.Exit(a.run(os.Args[1:]))
}

// app is one run of the command line: where it reads and writes, and what all commands share.
type app struct {
	in  io.Reader
	out io.Writer
	err io.Writer
	env []string
	now func() time.Time

	// The flags that every client command has.
	addr    string
	output  string
	timeout time.Duration
}

// run executes a command line and returns the process's exit code.
func (a *app) run(args []string) int {
	root := a.root()
	root.SetArgs(args)
	return a.report(root.Execute())
}
