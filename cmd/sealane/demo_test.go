package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sealane/sealane/cmd/sealane/demo"
)

// The whole demo with real processes. It must end well, say so for every finding, and leave nothing behind.
func TestDemo(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out bytes.Buffer
	err = demo.Run(ctx, demo.Options{Binary: binary, Env: append(withoutOurs(os.Environ()), asBinary), Out: &out, Parent: parent})
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{
		"1. Delivered", "Retry-After 1s", "DEAD_LETTERED, reason PERMANENT_FAILURE", "UNCERTAIN: it may be paid or not", "resolved as PUBLISHED",
		"the circuit is OPEN", "the circuit is CLOSED: all 10 parcels delivered", "SIGKILL after", "exits with 0",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the story does not say %q", want)
		}
	}
	for _, finding := range []string{"acknowledged messages lost", "requests without an admission in the ledger", "unexplained duplicates"} {
		if !regexp.MustCompile(finding + ` +0\n`).MatchString(out.String()) {
			t.Errorf("the audit does not count %q as 0", finding)
		}
	}
	if !regexp.MustCompile(`[1-9]\d* requests were cut off by the kill`).MatchString(out.String()) {
		t.Error("the kill cut nothing off")
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("escape sequences without a terminal")
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

// An interrupted demo ends its node and leaves nothing behind.
func TestDemoInterrupted(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	out := &trigger{word: "2. Retried", fire: cancel}
	err = demo.Run(ctx, demo.Options{Binary: binary, Env: append(withoutOurs(os.Environ()), asBinary), Out: out, Parent: parent})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// trigger calls a function when a word is written.
type trigger struct {
	word string
	fire func()
}

func (w *trigger) Write(b []byte) (int, error) {
	if strings.Contains(string(b), w.word) {
		w.fire()
	}
	return len(b), nil
}

// A node that cannot start ends the demo with its reason.
func TestDemoWithoutANode(t *testing.T) {
	var out bytes.Buffer
	err := demo.Run(t.Context(), demo.Options{Binary: "/nowhere/sealane", Out: &out, Parent: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "/nowhere/sealane") {
		t.Errorf("got %v", err)
	}
}
