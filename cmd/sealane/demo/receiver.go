package demo

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/sealane/sealane/sink"
)

// receiver is the sink, served in this process.
type receiver struct {
	sink *sink.Sink
	srv  *http.Server
	done chan error
	url  string
	path string
}

func startReceiver(path string) (*receiver, error) {
	s, err := sink.New(sink.Options{RecordFile: path})
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("demo: receiver: %w", err), s.Close())
	}
	r := &receiver{sink: s, srv: &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}, done: make(chan error, 1), url: "http://" + l.Addr().String(), path: path}
	go func() { r.done <- r.srv.Serve(l) }()
	return r, nil
}

func (r *receiver) close() error {
	err := r.srv.Close()
	if served := <-r.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return errors.Join(err, r.sink.Close())
}

// requests is what the receiver saw at a path so far.
func (r *receiver) requests(path string) (seen []sink.Record) {
	all, _ := r.sink.Records(0)
	for _, rec := range all {
		if rec.Path == path {
			seen = append(seen, rec)
		}
	}
	return seen
}

// record reads the whole record back from its file.
func (r *receiver) record() ([]sink.Record, error) {
	f, err := os.Open(r.path)
	if err != nil {
		return nil, fmt.Errorf("demo: the receiver's record: %w", err)
	}
	defer f.Close()
	var all []sink.Record
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var rec sink.Record
		if err := json.Unmarshal(lines.Bytes(), &rec); err != nil {
			return nil, fmt.Errorf("demo: the receiver's record, line %d: %w", len(all)+1, err)
		}
		all = append(all, rec)
	}
	return all, lines.Err()
}
