package storage

const (
	arenaFirst = 4 << 10
	arenaChunk = 64 << 10
	arenaKeep  = 1 << 20 // memory that a pooled batch may hold on to
)

// arena gives out small byte slices from chunks. Slices stay valid until reset, or for ever if reset is never called.
type arena struct {
	chunks [][]byte // the last one is being filled
	spare  [][]byte // empty chunks kept by reset
}

// alloc gives n zero or stale bytes, capped so that append copies.
func (a *arena) alloc(n int) []byte {
	if n > arenaChunk/4 {
		return make([]byte, n) // large values get their own memory, which reset leaves to the garbage collector
	}
	if len(a.chunks) == 0 || cap(a.last())-len(a.last()) < n {
		a.grow(n)
	}
	last := a.last()
	from := len(last)
	a.chunks[len(a.chunks)-1] = last[:from+n]
	return last[from : from+n : from+n]
}

func (a *arena) last() []byte { return a.chunks[len(a.chunks)-1] }

func (a *arena) grow(n int) {
	if k := len(a.spare); k > 0 && cap(a.spare[k-1]) >= n {
		a.chunks = append(a.chunks, a.spare[k-1])
		a.spare = a.spare[:k-1]
		return
	}
	size := arenaFirst
	if len(a.chunks) > 0 {
		size = min(2*cap(a.last()), arenaChunk)
	}
	a.chunks = append(a.chunks, make([]byte, 0, max(size, n)))
}

// copy gives a copy of b, never nil.
func (a *arena) copy(b []byte) []byte {
	c := a.alloc(len(b))
	copy(c, b)
	return c
}

// reset takes everything back, keeping a bounded amount of memory.
func (a *arena) reset() {
	kept := 0
	for _, c := range a.spare {
		kept += cap(c)
	}
	for _, c := range a.chunks {
		if kept+cap(c) > arenaKeep {
			continue
		}
		kept += cap(c)
		a.spare = append(a.spare, c[:0])
	}
	a.chunks = a.chunks[:0]
}
