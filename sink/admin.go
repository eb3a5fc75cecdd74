package sink

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// received is the answer of GET /_received.
type received struct {
	Count   uint64   `json:"count"`   // requests seen since the sink started
	Dropped uint64   `json:"dropped"` // records that are no longer kept: over the bound, or deleted
	Next    uint64   `json:"next"`    // the since of the next page, 0 after the last
	Records []Record `json:"records"`
}

// admin serves the record and the switch:
//
//	GET /_received?since=N&limit=M  the records from sequence number N on, at most M (MaxPage)
//	DELETE /_received               forgets them; sequence numbers and the count go on, the file stays
//	PUT /_mode/PATH?as=/X           PATH answers as /X from now on; without as, as itself again
func (s *Sink) admin(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/_received" && r.Method == http.MethodGet:
		s.list(w, r)
	case r.URL.Path == "/_received" && r.Method == http.MethodDelete:
		s.mu.Lock()
		s.dropped += uint64(len(s.records))
		s.records = nil
		s.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	case strings.HasPrefix(r.URL.Path, "/_mode/") && r.Method == http.MethodPut:
		as := r.URL.Query().Get("as")
		if as != "" && !strings.HasPrefix(as, "/") {
			http.Error(w, "sink: as must be a path", http.StatusBadRequest)
			return
		}
		s.SetMode(strings.TrimPrefix(r.URL.Path, "/_mode"), as)
		w.WriteHeader(http.StatusNoContent)
	default:
		http.NotFound(w, r)
	}
}

func (s *Sink) list(w http.ResponseWriter, r *http.Request) {
	since, err := number(r, "since", 0)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	limit, err := number(r, "limit", MaxPage)
	if err != nil || limit < 1 || limit > MaxPage {
		http.Error(w, fmt.Sprintf("sink: limit must be from 1 to %d", MaxPage), http.StatusBadRequest)
		return
	}
	var a received
	a.Records, a.Dropped, a.Next = s.page(since, int(limit))
	if a.Records == nil {
		a.Records = []Record{} // [] rather than null
	}
	a.Count = s.Count()
	if s.opt.Records < 0 {
		a.Dropped = a.Count
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(a) // the client went away: nobody to tell
}

func number(r *http.Request, name string, absent uint64) (uint64, error) {
	v := r.URL.Query().Get(name)
	if v == "" {
		return absent, nil
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("sink: %s must be a number", name)
	}
	return n, nil
}
