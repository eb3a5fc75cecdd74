package client

import (
	"net"
	"slices"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// maxRetired bounds the connections to nodes that left; the oldest is closed beyond it.
const maxRetired = 16

// name notes which node answers at an endpoint. Of two endpoints of one node the one that was given to Dial and works keeps the name.
func (p *pool) name(e *endpoint, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.asked = true
	if id == "" || e.id == id {
		return
	}
	for _, other := range slices.Clone(p.all) {
		switch {
		case other.id != id:
		case other.seed && other.failures == 0:
			e.id = ""
			return
		case other.seed:
			other.id = ""
		default:
			p.retireLocked(other)
		}
	}
	e.id = id
}

// nameless are the endpoints that have not been asked which node they are, with a link to ask them.
func (p *pool) nameless() (list []*endpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.all {
		if e.id == "" && !e.asked && p.openLocked(e) == nil {
			list = append(list, e)
		}
	}
	return list
}

// learn takes the addresses that a node names for the cluster's nodes. What cannot be right is left out: an address that several nodes
// share, and a loopback address where the answer came from elsewhere. Learned endpoints that are named no more are retired, seeds never.
func (p *pool) learn(from *endpoint, nodes []*sealanev1.Node) {
	if p.static || len(nodes) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	shared := map[string]int{}
	for _, n := range nodes {
		shared[n.GetGrpcAddress()]++
	}
	named := map[string]bool{}
	for _, n := range nodes {
		named[n.GetId()] = true
		if addr := n.GetGrpcAddress(); shared[addr] == 1 && usable(addr, from.addr) {
			p.placeLocked(n.GetId(), addr)
		}
	}
	for _, e := range slices.Clone(p.all) {
		if !e.seed && !named[e.id] {
			p.retireLocked(e)
		}
	}
}

// usable tells whether an address that a node names can be one for this client.
func usable(addr, from string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || host == "" {
		return false
	}
	ip := net.ParseIP(host)
	return ip == nil || !ip.IsUnspecified() && (!ip.IsLoopback() || loopback(from))
}

func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// placeLocked makes sure that a node can be reached at an address.
func (p *pool) placeLocked(id, addr string) {
	at := slices.IndexFunc(p.all, func(e *endpoint) bool { return e.addr == addr })
	if at >= 0 {
		switch e := p.all[at]; e.id {
		case id:
		case "":
			e.id = id
		default:
			e.id, e.asked = "", false // another node is said to be there now: it is asked itself
		}
		return
	}
	for _, e := range slices.Clone(p.all) {
		switch {
		case e.id != id:
		case e.seed && e.failures == 0:
			return // known by an address of the caller's, which works
		case e.seed:
			e.id = ""
		default:
			p.retireLocked(e)
		}
	}
	if len(p.all) >= MaxAddresses {
		return
	}
	if i := slices.IndexFunc(p.retired, func(e *endpoint) bool { return e.addr == addr }); i >= 0 {
		e := p.retired[i]
		p.retired = slices.Delete(p.retired, i, i+1)
		e.id = id
		p.all = append(p.all, e)
		return
	}
	p.all = append(p.all, &endpoint{addr: addr, id: id})
}

// retireLocked takes an endpoint out of the choice. Its connection stays for calls under way; gRPC closes an unused one by itself.
func (p *pool) retireLocked(e *endpoint) {
	p.all = slices.DeleteFunc(p.all, func(other *endpoint) bool { return other == e })
	e.id = ""
	if p.current == e {
		p.current = nil
	}
	if e.link == nil {
		return
	}
	p.retired = append(p.retired, e)
	if len(p.retired) > maxRetired {
		// An error of closing says nothing that anybody could act on: the node is gone.
		_ = p.retired[0].link.Close()
		p.retired = slices.Delete(p.retired, 0, 1)
	}
}
