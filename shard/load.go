package shard

import "fmt"

// lane returns the lane's record for reading and changing; it is written back at the end of the entry.
func (t *tx) lane(id LaneID) (*LaneRecord, error) {
	if l := t.lanes[id]; l != nil {
		return l, nil
	}
	b, ok, err := t.st.Get(laneKey(id))
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("%w: lane %d is named but has no record", ErrCorrupt, id)
	}
	l, err := decodeLane(b)
	if err != nil {
		return nil, err
	}
	if l.ID != id {
		return nil, fmt.Errorf("%w: the record of lane %d is that of lane %d", ErrCorrupt, id, l.ID)
	}
	t.keepLane(l)
	return l, nil
}

// targetRecord returns a target that a generation was given.
func (l *LaneRecord) targetRecord(id TargetID) (*TargetRecord, error) {
	if id == 0 || int64(id) > int64(len(l.Targets)) {
		return nil, fmt.Errorf("%w: target %d of lane %d is named but has no record", ErrCorrupt, id, l.ID)
	}
	return &l.Targets[id-1], nil
}

func (t *tx) keepLane(l *LaneRecord) {
	t.lanes[l.ID] = l
	t.laneOrder = append(t.laneOrder, l.ID)
}

// laneID finds a lane by its name.
func (t *tx) laneID(n laneName) (LaneID, bool, error) {
	if id, ok := t.m.lanes[n]; ok {
		return id, true, nil
	}
	b, ok, err := t.st.Get(laneNameKey(n.namespace, n.destination, n.slot))
	if err != nil || !ok {
		return 0, false, err
	}
	d := openRecord("lane name", b)
	id := LaneID(d.u32())
	if err := d.finish(); err != nil {
		return 0, false, err
	}
	t.m.rememberLane(n, id)
	return id, true, nil
}

func (m *Machine) rememberLane(n laneName, id LaneID) {
	if len(m.lanes) >= cachedLanes {
		clear(m.lanes)
	}
	m.lanes[n] = id
}

// destination returns an installed version. The value is shared and must not be changed.
func (t *tx) destination(namespace, name string, version uint64) (*Destination, error) {
	n := destinationName{namespace, name, version}
	if d := t.m.destinations[n]; d != nil {
		return d, nil
	}
	d, ok, err := loadDestination(t.st, namespace, name, version)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("%w: %s/%s version %d is pinned but not installed", ErrCorrupt, namespace, name, version)
	}
	if len(t.m.destinations) >= cachedDestinations {
		clear(t.m.destinations)
	}
	t.m.destinations[n] = d
	return d, nil
}

// newest returns the newest installed version of a destination, nil if there is none.
func (t *tx) newest(namespace, name string) (*Destination, error) {
	v, ok, err := newestVersion(t.st, namespace, name)
	if err != nil || !ok {
		return nil, err
	}
	return t.destination(namespace, name, v)
}

// owns tells whether an id was made for this shard of this incarnation.
func (m *Machine) owns(id MessageID) bool {
	return id.Shard() == m.shard && id.Incarnation() == m.incarnation
}

// message loads a message of this shard and incarnation, nil if there is none.
func (t *tx) message(id MessageID) (*Message, error) { return loadMessage(t.st, id) }

func (t *tx) saveMessage(m *Message) error {
	return t.st.Set(messageKey(m.ID.Local()), encodeMessage(m))
}

// generation loads a generation, nil if there is none. Keys hold only the part of an id that is unique inside this shard and incarnation;
// an id of another one names nothing here.
func (t *tx) generation(r Ref) (*Generation, error) {
	if !t.m.owns(r.ID) {
		return nil, nil
	}
	return loadGeneration(t.st, r.ID.Local(), r.Generation)
}

func (t *tx) saveGeneration(id MessageID, g *Generation) error {
	return t.st.Set(generationKey(id.Local(), g.Number), encodeGeneration(g))
}

func (t *tx) attempt(r Ref, number uint32) (*Attempt, error) {
	return loadAttempt(t.st, r.ID.Local(), r.Generation, number)
}

func (t *tx) saveAttempt(r Ref, a *Attempt) error {
	return t.st.Set(attemptKey(r.ID.Local(), r.Generation, a.Number), encodeAttempt(a))
}

func loadMessage(r Reader, id MessageID) (*Message, error) {
	b, ok, err := r.Get(messageKey(id.Local()))
	if err != nil || !ok {
		return nil, err
	}
	m, err := decodeMessage(b)
	if err != nil {
		return nil, err
	}
	if m.ID != id {
		return nil, nil // another incarnation's id with the same local part: not this message
	}
	return m, nil
}

func loadGeneration(r Reader, id LocalID, number uint32) (*Generation, error) {
	b, ok, err := r.Get(generationKey(id, number))
	if err != nil || !ok {
		return nil, err
	}
	return decodeGeneration(b)
}

func loadAttempt(r Reader, id LocalID, generation, number uint32) (*Attempt, error) {
	b, ok, err := r.Get(attemptKey(id, generation, number))
	if err != nil || !ok {
		return nil, err
	}
	return decodeAttempt(b)
}

func loadDestination(r Reader, namespace, name string, version uint64) (*Destination, bool, error) {
	b, ok, err := r.Get(destinationKey(namespace, name, version))
	if err != nil || !ok {
		return nil, false, err
	}
	d, err := decodeDestination(b)
	return d, err == nil, err
}

func newestVersion(r Reader, namespace, name string) (uint64, bool, error) {
	b, ok, err := r.Get(newestKey(namespace, name))
	if err != nil || !ok {
		return 0, false, err
	}
	d := openRecord("newest version", b)
	v := d.uint()
	return v, true, d.finish()
}

// idTail is the part of a message id that index keys leave out; index values hold it so that a reader can rebuild the id.
func idTail(id MessageID) []byte { return append([]byte{recordVersion}, id[1:11]...) }

// idFromTail rebuilds an id from a key's local part and an index value.
func idFromTail(local, tail []byte) (MessageID, error) {
	var id MessageID
	if len(local) != len(LocalID{}) || len(tail) < 11 || tail[0] != recordVersion {
		return id, fmt.Errorf("%w: index entry of %d and %d bytes", ErrCorrupt, len(local), len(tail))
	}
	id[0] = idVersion
	copy(id[1:11], tail[1:11])
	copy(id[11:27], local)
	id.seal()
	return id, nil
}
