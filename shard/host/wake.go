package host

import "time"

// wakeHeap holds the targets that wait for a time, earliest first: work not yet due, a rate token, the end of a circuit's open time, the next
// attempt to connect. Idle lanes are not in it.
type wakeHeap []*target

func (w wakeHeap) next() time.Duration {
	if len(w) == 0 {
		return never
	}
	return w[0].wakeAt
}

// set makes t wake at a time, in place of any earlier wish.
func (w *wakeHeap) set(t *target, at time.Duration) {
	if at == never {
		w.clear(t)
		return
	}
	if t.wakePos < 0 {
		t.wakePos = len(*w)
		*w = append(*w, t)
	}
	t.wakeAt = at
	w.fix(t.wakePos)
}

func (w *wakeHeap) clear(t *target) {
	i := t.wakePos
	if i < 0 {
		return
	}
	s := *w
	last := len(s) - 1
	s.swap(i, last)
	s[last] = nil
	*w = s[:last]
	t.wakePos = -1
	if i < last {
		w.fix(i)
	}
}

func (w wakeHeap) swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].wakePos, w[j].wakePos = i, j
}

func (w wakeHeap) fix(i int) {
	for i > 0 && w[i].wakeAt < w[(i-1)/2].wakeAt {
		w.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	for {
		c := 2*i + 1
		if c >= len(w) {
			return
		}
		if c+1 < len(w) && w[c+1].wakeAt < w[c].wakeAt {
			c++
		}
		if w[c].wakeAt >= w[i].wakeAt {
			return
		}
		w.swap(i, c)
		i = c
	}
}

// wakeTargets looks again at every target whose time has come.
func (h *Host) wakeTargets() {
	for len(h.wakes) > 0 && h.wakes[0].wakeAt <= h.mono {
		t := h.wakes[0]
		h.wakes.clear(t)
		h.poke(t)
	}
}
