package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const receiverArg = "receive"

// counts is what the receiver process tells about itself.
type counts struct {
	Requests uint64  `json:"requests"`
	CPU      float64 `json:"cpu"`     // seconds
	Lags     []int64 `json:"lags_ns"` // from the time in a payload to the request, of payloads that begin with one
}

// runReceiver answers every POST with 200 and counts. A payload that begins with "t" and 8 bytes carries the time at which it was submitted.
func runReceiver() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var n atomic.Uint64
	var mu sync.Mutex
	var lags []int64
	mux := http.NewServeMux()
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		now := time.Now().UnixNano()
		if err != nil {
			return
		}
		n.Add(1)
		if len(body) > 9 && body[0] == 't' {
			mu.Lock()
			lags = append(lags, now-int64(binary.BigEndian.Uint64(body[1:9])))
			mu.Unlock()
		}
	})
	mux.HandleFunc("GET /counts", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		c := counts{Requests: n.Load(), CPU: cpuOf(os.Getpid()), Lags: lags}
		lags = nil
		mu.Unlock()
		_ = json.NewEncoder(w).Encode(c)
	})
	fmt.Println(l.Addr())
	return http.Serve(l, mux)
}

type receiver struct {
	cmd *exec.Cmd
	url string
}

func startReceiver(ctx context.Context) (*receiver, error) {
	cmd, err := startSelf(ctx)
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, err
	}
	return &receiver{cmd: cmd, url: "http://" + strings.TrimSpace(line)}, nil
}

func (r *receiver) close() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
}

func (r *receiver) counts() (c counts, err error) {
	resp, err := http.Get(r.url + "/counts")
	if err != nil {
		return c, err
	}
	defer resp.Body.Close()
	return c, json.NewDecoder(resp.Body).Decode(&c)
}

// cpuOf is the CPU time of a process so far, in seconds; 0 where /proc does not tell.
func cpuOf(pid int) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, ok := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if !ok || len(f) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(f[11], 64)
	system, _ := strconv.ParseFloat(f[12], 64)
	return (user + system) / 100
}

// rssOf is the resident memory of a process in MiB; 0 where /proc does not tell.
func rssOf(pid int) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(b), "\n") {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 64)
			return kb / 1024
		}
	}
	return 0
}
