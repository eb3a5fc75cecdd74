package client

import (
	"fmt"
	"strings"
	"testing"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

func TestHints(t *testing.T) {
	v := newView()
	v.adopt([]*sealanev1.Shard{{Number: 0, Leader: "a", Term: 3}, {Number: 1, Leader: "b", Term: 3}})
	check := func(what, destination, key, want string) {
		t.Helper()
		if got := v.leaderFor(destination, key); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	check("nothing known", "d", "", "")
	v.learn("d", "", "1:5")
	v.learn("d", "", "damaged")
	check("one lane", "d", "", "b")
	check("one lane, with a key", "d", "k", "b")
	v.adopt([]*sealanev1.Shard{{Number: 1, Leader: "old", Term: 2}})
	check("an older term", "d", "", "b")
	v.adopt([]*sealanev1.Shard{{Number: 1, Leader: "new", Term: 4}})
	check("a newer term", "d", "", "new")
	v.learn("d", "k", "0:9")
	check("several lanes, no key", "d", "", "")
	check("several lanes, a key that was seen", "d", "k", "a")
	check("several lanes, another key", "d", "l", "")
	if v.leaderAt("0:17") != "a" || v.leaderAt("5:1") != "" || v.leaderAt("x") != "" {
		t.Error("leaders of positions")
	}
	for i := range 3 * maxHints {
		v.learn(fmt.Sprint("d", i), "", "0:1")
	}
	if len(v.shards) > maxHints {
		t.Errorf("%d hints", len(v.shards))
	}
}

// What a node says about addresses is taken with care.
func TestLearnedAddresses(t *testing.T) {
	type n = *sealanev1.Node
	at := func(id, addr string) n { return &sealanev1.Node{Id: id, GrpcAddress: addr} }
	for _, c := range []struct {
		name   string
		seeds  string
		static bool
		nodes  []n
		want   string
	}{
		{"the others are learned", "10.0.0.1:1", false, []n{at("a", "10.0.0.1:1"), at("b", "10.0.0.2:1")}, "10.0.0.1:1=a 10.0.0.2:1=b"},
		{"a name resolves to one of them", "sealane:1", false, []n{at("a", "10.0.0.1:1"), at("b", "10.0.0.2:1")}, "sealane:1=a 10.0.0.2:1=b"},
		{"static", "10.0.0.1:1", true, []n{at("a", "10.0.0.1:1"), at("b", "10.0.0.2:1")}, "10.0.0.1:1=a"},
		{"all name the same", "x:1,y:1", false, []n{at("a", "127.0.0.1:1"), at("b", "127.0.0.1:1")}, "x:1=a y:1="},
		{"all name one balancer", "x:1,y:1", false, []n{at("a", "10.0.0.9:1"), at("b", "10.0.0.9:1")}, "x:1=a y:1="},
		{"loopback of another machine", "10.0.0.1:1", false, []n{at("a", "10.0.0.1:1"), at("b", "127.0.0.1:1")}, "10.0.0.1:1=a"},
		{"loopback of this machine", "localhost:1", false, []n{at("a", "127.0.0.1:1"), at("b", "127.0.0.1:2")}, "localhost:1=a 127.0.0.1:2=b"},
		{"no addresses", "10.0.0.1:1", false, []n{at("a", ""), at("b", "b"), at("c", ":7"), at("d", "0.0.0.0:7")}, "10.0.0.1:1=a"},
		{"nothing", "10.0.0.1:1", false, nil, "10.0.0.1:1=a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPool(strings.Split(c.seeds, ","), c.static, nil)
			p.name(p.all[0], "a")
			p.learn(p.all[0], c.nodes)
			if got := p.text(); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			p.learn(p.all[0], c.nodes)
			if got := p.text(); got != c.want {
				t.Errorf("the second time %s", got)
			}
		})
	}
	p := newPool([]string{"10.0.0.1:1"}, false, func(string) (link, error) { return &nodeLink{newNode()}, nil })
	p.name(p.all[0], "a")
	p.learn(p.all[0], []n{at("a", "10.0.0.1:1"), at("b", "10.0.0.2:1"), at("c", "10.0.0.3:1")})
	if err := p.openAll(); err != nil {
		t.Fatal(err)
	}
	p.learn(p.all[0], []n{at("a", "10.0.0.1:1"), at("b", "10.0.0.9:1")})
	if got := p.text(); got != "10.0.0.1:1=a 10.0.0.9:1=b" {
		t.Errorf("one moved and one left: %s", got)
	}
	p.learn(p.all[0], []n{at("b", "10.0.0.2:1")})
	if got := p.text(); got != "10.0.0.1:1=a 10.0.0.2:1=b" || len(p.retired) > maxRetired {
		t.Errorf("moved back: %s", got)
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
}

// text lists the endpoints with their names.
func (p *pool) text() string {
	var list []string
	for _, e := range p.all {
		list = append(list, e.addr+"="+e.id)
	}
	return strings.Join(list, " ")
}
