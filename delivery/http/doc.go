// Package webhook is the HTTP adapter: one POST per admission, over a connection that was in hand before the admission was written.
//
// What it is. A Target keeps connections to one URL. Each lies under a wire, which sees every request in clear, between net/http and TLS: the wire
// asks the send gate on the first byte of a request, and can stop every byte after it. Send writes one request, reads the head of the answer and
// classifies it by one table (rules.go, C.1 of REQUIREMENTS.md with DESIGN 6's change). The body of an answer is read within a size and a time bound
// so that the connection can be used again; it never changes what the head decided.
//
// Over HTTP/2 a connection carries one request at a time, so that the wire knows whose bytes it sees; its frames say what the library's errors hide
// (REFUSED_STREAM, the last stream of a GOAWAY).
//
// What it may not do. It never resends: a request is bound to one connection (http.ClientConn, which retries nothing, over HTTP/1 and 2), has a body
// without GetBody even when it is empty, follows no redirect and knows no proxy. Secrets appear in no error and no log.
//
// Invariants it keeps: those of package delivery; private addresses are refused on the address really dialled.
//
// Where to start. target.go for connections, wire.go for the gate, send.go for one request, rules.go for what an answer means.
package webhook
