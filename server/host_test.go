package server

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestHostMustBeThisMachine: a foreign name that resolves to loopback is not the same origin, whatever its Origin header says.
func TestHostMustBeThisMachine(t *testing.T) {
	n := startNode(t)
	for host, want := range map[string]int{
		"evil.example": http.StatusForbidden, "evil.example:7451": http.StatusForbidden, "localhost.evil.example": http.StatusForbidden,
		"localhost:7451": http.StatusOK, "127.0.0.1": http.StatusOK, "127.0.0.1:7451": http.StatusOK, "[::1]:7451": http.StatusOK,
	} {
		q := httptest.NewRequest(http.MethodGet, "http://"+n.n.HTTPAddr()+"/healthz", nil)
		q.RequestURI, q.Host = "", host
		r, err := n.http.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != want {
			t.Errorf("Host %s: %d, want %d", host, r.StatusCode, want)
		}
	}
}
