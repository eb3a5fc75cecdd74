// Command sealane is the one binary: a node, the tools of an operator, a demo and a receiver to try things with.
//
// What it is. Flags, wiring and what people read. main.go runs a command line; root.go builds the tree of commands; each group of commands has
// its own files, and what a group prints stands beside it (message_story.go tells the story of one message).
//
// What it may not do. It decides nothing about a delivery and hides nothing: --output json prints what the API answered, field for field.
// It never retries anything but a submit, whose key makes that harmless, and it never reports a write as refused when the node did not say so.
//
// Invariants it keeps. Results go to standard output, everything else to standard error. Exit codes are those of exit.go, and mean the same for
// every command. A payload is read and written byte for byte.
//
// Where to start. root.go, then message.go for a client's command, serve.go for a node, demo/ for the demo.
package main
