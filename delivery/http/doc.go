// Package webhook is the HTTP adapter: one POST per admission, over a connection that was in hand before the admission was written.
//
// What it is. A Target keeps connections to one URL. Send writes one request, reads the head of the answer and classifies it by one table
// (rules.go, C.1 of REQUIREMENTS.md with DESIGN 6's change). The body of an answer is read within a size and a time bound so that the
// connection can be used again; it never changes what the head decided.
//
// What it may not do. It never resends: a request is bound to one connection (http.ClientConn), has a body without GetBody even when it is
// empty, follows no redirect and knows no proxy. The gate is asked on the first write of the request. Secrets appear in no error and no log.
//
// Invariants it keeps: those of package delivery; private addresses are refused on the address really dialled.
//
// Where to start. target.go for connections, send.go for one request, rules.go for what an answer means.
package webhook
