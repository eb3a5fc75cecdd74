package lane

// ID names what Fair schedules: a lane, or a target of one.
type ID uint64

// Limits of the scheduler's arithmetic.
const (
	maxQuantum = 1 << 30
	// maxDebtQuanta is how much of one overspent visit is paid back, in quanta. It bounds the work of Next after an absurd cost; a message
	// of the largest payload stays well under it.
	maxDebtQuanta = 1 << 12
)

// Fair is weighted deficit round robin in two levels (R194): first namespaces take turns, then the lanes inside one. A lane is active while
// it is due and able; only active lanes are known here, so that idle ones cost nothing.
//
// A namespace's turn is worth one quantum of cost, a lane's turn inside its namespace one quantum times its weight. A turn lasts until it is
// spent, over several visits and, for a lane, over several turns of its namespace if need be, or until there is nothing left to serve. What
// is left then is forfeited: credit is not saved up. A visit may overspend by the record that passed its budget; the lane and the namespace
// both pay that back before their next visit, so that shares hold in cost and not in messages.
//
// The bound (invariant 40), in cost served to others between two visits of a lane that stays active, for a quantum Q, weights w, and R the
// most that a visit overspends:
//
//	own namespace: S <= k * sum(Q*w + R) over its other lanes, where k = floor(R/(Q*w)) + 1, w being this lane's weight
//	elsewhere:     (N-1) * (T+1) * (Q+R), where N namespaces are active and T = ceil((S+R)/Q) + 1
//
// With one namespace and nobody overspending that is one round: each other lane its one turn. So a lane with a million overdue messages
// delays the others by one quantum. A lane that is activated comes after all that wait. (Visits that spend nothing give turns away and add
// a turn each to T.)
//
// Activate, Deactivate and Served take constant time, and Next does over any run of visits: what it skips was paid for by what was
// overspent. Visits allocate nothing, and neither does the return of a lane. Not safe for concurrent use.
type Fair struct {
	quantum    int64
	lanes      map[ID]*fairLane
	namespaces map[string]*fairNamespace
	turn       *fairNamespace // whose turn it is, in a ring; nil: nothing is active

	freeLanes      *fairLane      // spare, by next
	freeNamespaces *fairNamespace // spare, by next
}

// Credit is above zero only for the namespace whose turn it is and, in each namespace, for the lane whose turn it is.
type fairNamespace struct {
	name       string
	prev, next *fairNamespace
	turn       *fairLane // whose turn it is, in a ring; never nil while active
	credit     int64
}

type fairLane struct {
	id         ID
	ns         *fairNamespace
	prev, next *fairLane
	weight     int64
	credit     int64
}

// NewFair returns an empty scheduler. The quantum is in the unit of Served's cost and is held to 1 to 2^30.
func NewFair(quantum int64) *Fair {
	return &Fair{quantum: min(max(quantum, 1), maxQuantum), lanes: map[ID]*fairLane{}, namespaces: map[string]*fairNamespace{}}
}

// Len is the number of active lanes.
func (f *Fair) Len() int { return len(f.lanes) }

// Active tells whether a lane is active.
func (f *Fair) Active(id ID) bool { return f.lanes[id] != nil }

// Activate puts a lane at the end of its namespace's round, and the namespace at the end of all if it had no lane. A lane that is active
// already keeps its place and its namespace, and takes the new weight from its next turn on. Weight 0 counts as 1.
func (f *Fair) Activate(namespace string, id ID, weight uint32) {
	w := int64(max(weight, 1))
	if l := f.lanes[id]; l != nil {
		l.weight = w
		return
	}
	l := f.newLane()
	l.id, l.weight = id, w
	f.lanes[id] = l
	ns := f.namespaces[namespace]
	if ns == nil {
		ns = f.addNamespace(namespace)
	}
	l.ns = ns
	if ns.turn == nil {
		l.prev, l.next = l, l
		ns.turn = l
		l.credit = f.quantum * w
		return
	}
	l.prev, l.next = ns.turn.prev, ns.turn
	l.prev.next, l.next.prev = l, l
}

func (f *Fair) addNamespace(name string) *fairNamespace {
	ns := f.freeNamespaces
	if ns != nil {
		f.freeNamespaces = ns.next
		*ns = fairNamespace{}
	} else {
		ns = &fairNamespace{}
	}
	ns.name = name
	f.namespaces[name] = ns
	if f.turn == nil {
		ns.prev, ns.next = ns, ns
		f.turn = ns
		ns.credit = f.quantum
		return ns
	}
	ns.prev, ns.next = f.turn.prev, f.turn
	ns.prev.next, ns.next.prev = ns, ns
	return ns
}

func (f *Fair) newLane() *fairLane {
	l := f.freeLanes
	if l == nil {
		return &fairLane{}
	}
	f.freeLanes = l.next
	*l = fairLane{}
	return l
}

// Deactivate takes a lane out; a lane that is not active is fine. What it had left is lost, and what it owed is forgiven, which is less than
// one record: it leaves because it has nothing to send or has reached a limit of its own, and comes back behind everyone. Its namespace
// keeps its debt as long as another lane of it is active.
func (f *Fair) Deactivate(id ID) {
	l := f.lanes[id]
	if l == nil {
		return
	}
	delete(f.lanes, id)
	ns := l.ns
	if l.next == l {
		f.removeNamespace(ns)
	} else {
		if ns.turn == l {
			f.advanceLane(ns)
		}
		l.prev.next, l.next.prev = l.next, l.prev
	}
	*l = fairLane{next: f.freeLanes}
	f.freeLanes = l
}

func (f *Fair) removeNamespace(ns *fairNamespace) {
	delete(f.namespaces, ns.name)
	if ns.next == ns {
		f.turn = nil
	} else {
		if f.turn == ns {
			f.advanceNamespace()
		}
		ns.prev.next, ns.next.prev = ns.next, ns.prev
	}
	*ns = fairNamespace{next: f.freeNamespaces}
	f.freeNamespaces = ns
}

// advanceNamespace ends a namespace's turn and begins the next one's.
func (f *Fair) advanceNamespace() {
	f.turn.credit = min(f.turn.credit, 0)
	f.turn = f.turn.next
	f.turn.credit += f.quantum
}

// advanceLane ends a lane's turn in its namespace and begins the next one's.
func (f *Fair) advanceLane(ns *fairNamespace) {
	ns.turn.credit = min(ns.turn.credit, 0)
	ns.turn = ns.turn.next
	ns.turn.credit += f.quantum * ns.turn.weight
}

// Next visits the lane whose turn it is and returns what it may spend, at least 1. ok is false when no lane is active. Call Served before the
// next visit.
func (f *Fair) Next() (id ID, budget int64, ok bool) {
	for f.turn != nil {
		ns := f.turn
		switch {
		case ns.credit <= 0:
			f.advanceNamespace()
		case ns.turn.credit <= 0:
			f.advanceLane(ns)
		default:
			return ns.turn.id, min(ns.turn.credit, ns.credit), true
		}
	}
	return 0, 0, false
}

// Served ends a visit: cost was spent, and more says whether the lane still has work that could be served now. Without more it is
// deactivated. With more and budget left, which happens when the caller reached a limit of its own, the next visit goes on where this one
// stopped; but a visit that spent nothing gives up its turn, so that it cannot hold up the others. A negative cost counts as 0.
func (f *Fair) Served(id ID, cost int64, more bool) {
	l := f.lanes[id]
	if l == nil {
		return
	}
	cost = max(cost, 0)
	ns := l.ns
	l.credit, ns.credit = f.charge(l.credit, cost), f.charge(ns.credit, cost)
	switch {
	case !more:
		f.Deactivate(id)
	case cost == 0:
		if ns.turn == l {
			f.advanceLane(ns)
		}
		if f.turn == ns {
			f.advanceNamespace()
		}
	}
}

// charge takes a cost from a credit, which may go below zero as far as debts go.
func (f *Fair) charge(credit, cost int64) int64 {
	if deepest := -maxDebtQuanta * f.quantum; cost >= credit-deepest {
		return deepest
	}
	return credit - cost
}
