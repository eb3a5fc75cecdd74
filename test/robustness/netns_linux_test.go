package robustness

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"testing"
	"time"
)

// TestNamespaces shows that the cuts cut what they say, and nothing else.
func TestNamespaces(t *testing.T) {
	n, err := NewNamespaces()
	if err != nil {
		t.Skip(err)
	}
	defer func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}()
	var conns [2]net.PacketConn // UDP: each direction is seen by itself
	var addresses [2]net.Addr
	for i := range 2 {
		s, err := n.Site(fmt.Sprint("n", i+1))
		if err != nil {
			t.Fatal(err)
		}
		host, _, err := net.SplitHostPort(s.Peer)
		if err != nil {
			t.Fatal(err)
		}
		inside, err := n.(*Namespaces).node(s.ID)
		if err != nil {
			t.Fatal(err)
		}
		if err := inside.enter(func() (err error) { conns[i], err = net.ListenPacket("udp", host+":0"); return err }); err != nil {
			t.Fatal(err)
		}
		defer conns[i].Close()
		addresses[i] = conns[i].LocalAddr()
	}
	arrives := func(from, to int) bool {
		t.Helper()
		for range 3 { // the first one may only look for its neighbour
			_, _ = conns[from].WriteTo([]byte("x"), addresses[to]) // a pulled cable may be an error here
			if err := conns[to].SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			if _, _, err := conns[to].ReadFrom(make([]byte, 8)); err == nil {
				return true
			}
		}
		return false
	}
	expect := func(when string, there, back bool) {
		t.Helper()
		if got := arrives(0, 1); got != there {
			t.Errorf("%s: n1 reaches n2: %v, want %v", when, got, there)
		}
		if got := arrives(1, 0); got != back {
			t.Errorf("%s: n2 reaches n1: %v, want %v", when, got, back)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	expect("at first", true, true)
	must(n.Block(ctx, "n1", "n2"))
	expect("n1 does not reach n2", false, true)
	must(n.Unblock(ctx, "n1", "n2"))
	expect("healed", true, true)
	must(n.Unplug(ctx, "n2"))
	expect("unplugged", false, false)
	must(n.Plug(ctx, "n2"))
	deadline := time.Now().Add(5 * time.Second)
	for !(arrives(0, 1) && arrives(1, 0)) && time.Now().Before(deadline) { // neighbours are looked for again
	}
	expect("plugged in", true, true)
	hubIsReached(ctx, t, n)
}

// hubIsReached dials the receiver's place from inside a namespace.
func hubIsReached(ctx context.Context, t *testing.T, n Net) {
	t.Helper()
	l, err := n.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			fmt.Fprintln(c, "hello")
			c.Close()
		}
	}()
	inside, err := n.(*Namespaces).node("n1")
	if err != nil {
		t.Fatal(err)
	}
	c, err := inside.dial(ctx, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if line, err := bufio.NewReader(c).ReadString('\n'); line != "hello\n" {
		t.Errorf("read %q, %v", line, err)
	}
}
