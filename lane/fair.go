package lane

// ID names a lane (or a target of one) to the scheduler.
type ID uint64

// Fair is weighted deficit round robin in two levels (R194): namespaces take turns, and inside a namespace its lanes do. One visit gives one
// lane a budget of quantum times its weight plus what it could not use before, at most one visit's worth.
//
// Bound (invariant 40): between two visits of an active lane at most (N-1) + N*(L-1) other visits take place, where N is the number of active
// namespaces and L that of active lanes in its own; each of them costs at most two budgets and the record that passed the budget. Activate,
// Deactivate, Next and Served take constant time and Next allocates nothing. Not safe for concurrent use.
type Fair struct {
	quantum    int64
	lanes      map[ID]*fairLane
	namespaces map[string]*fairNamespace
	turn       *fairNamespace // the namespace whose turn it is; a ring
}

type fairNamespace struct {
	name       string
	prev, next *fairNamespace
	turn       *fairLane // the lane whose turn it is; a ring
	lanes      int
}

type fairLane struct {
	id         ID
	ns         *fairNamespace
	prev, next *fairLane
	weight     int64
	deficit    int64
}

// NewFair returns an empty scheduler. A quantum below 1 counts as 1.
func NewFair(quantum int64) *Fair {
	return &Fair{quantum: max(quantum, 1), lanes: map[ID]*fairLane{}, namespaces: map[string]*fairNamespace{}}
}

// Len is the number of active lanes.
func (f *Fair) Len() int { return len(f.lanes) }

// Active tells whether a lane is active.
func (f *Fair) Active(id ID) bool { return f.lanes[id] != nil }

// Activate puts a lane at the end of its namespace's round. An active lane keeps its place and takes the new weight; 0 counts as 1.
func (f *Fair) Activate(namespace string, id ID, weight uint32) {
	w := int64(max(weight, 1))
	if l := f.lanes[id]; l != nil {
		l.weight = w
		return
	}
	ns := f.namespaces[namespace]
	if ns == nil {
		ns = &fairNamespace{name: namespace}
		f.namespaces[namespace] = ns
		f.insertNamespace(ns)
	}
	l := &fairLane{id: id, ns: ns, weight: w}
	f.lanes[id] = l
	ns.lanes++
	if ns.turn == nil {
		l.prev, l.next = l, l
		ns.turn = l
		return
	}
	at := ns.turn
	l.prev, l.next = at.prev, at
	at.prev.next, at.prev = l, l
}

func (f *Fair) insertNamespace(ns *fairNamespace) {
	if f.turn == nil {
		ns.prev, ns.next = ns, ns
		f.turn = ns
		return
	}
	at := f.turn
	ns.prev, ns.next = at.prev, at
	at.prev.next, at.prev = ns, ns
}

// Deactivate takes a lane out; what it could not use is forgotten. A lane that is not active is fine.
func (f *Fair) Deactivate(id ID) {
	l := f.lanes[id]
	if l == nil {
		return
	}
	delete(f.lanes, id)
	ns := l.ns
	ns.lanes--
	if ns.lanes == 0 {
		f.removeNamespace(ns)
		return
	}
	l.prev.next, l.next.prev = l.next, l.prev
	if ns.turn == l {
		ns.turn = l.next
	}
}

func (f *Fair) removeNamespace(ns *fairNamespace) {
	delete(f.namespaces, ns.name)
	if ns.next == ns {
		f.turn = nil
		return
	}
	ns.prev.next, ns.next.prev = ns.next, ns.prev
	if f.turn == ns {
		f.turn = ns.next
	}
}

// Next visits the lane whose turn it is and returns what it may spend. ok is false when no lane is active. Call Served before the next visit.
func (f *Fair) Next() (id ID, budget int64, ok bool) {
	if f.turn == nil {
		return 0, 0, false
	}
	l := f.turn.turn
	visit := f.quantum * l.weight
	l.deficit = min(l.deficit, visit) + visit
	return l.id, l.deficit, true
}

// Served ends a visit: cost was spent, and more says whether the lane still has work that could be served. Without more it is deactivated.
// A cost over the budget is paid back in later visits.
func (f *Fair) Served(id ID, cost int64, more bool) {
	l := f.lanes[id]
	if l == nil {
		return
	}
	l.deficit -= cost
	if l.ns.turn == l {
		l.ns.turn = l.next
	}
	if f.turn == l.ns {
		f.turn = l.ns.next
	}
	if !more {
		f.Deactivate(id)
	}
}
