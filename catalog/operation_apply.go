package catalog

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// AdvanceOperation makes an operation APPLYING, and records the stage of one target.
type AdvanceOperation struct {
	ID string
	// ExpectVersion must be the recorded version.
	ExpectVersion uint64
	// Target replaces the recorded one of the same group; nil: none changes.
	Target *OperationTarget
}

// FinishOperation ends an operation.
type FinishOperation struct {
	ID string
	// ExpectVersion must be the recorded version; 0: any, which is for cancelling only.
	ExpectVersion uint64
	// State is COMPLETED, COMPLETED_WITH_OUTSTANDING, REJECTED or CANCELLED.
	State  OperationState
	Detail string
}

func (*AdvanceOperation) command() {}
func (*FinishOperation) command()  {}

// GetOperation reads one operation.
func GetOperation(r Reader, id string) (Operation, bool, error) {
	return get[Operation](r, operationKey(id))
}

// Operations returns up to limit operations, the newest first, before the sequence given; 0 starts.
func Operations(r Reader, before uint64, limit int) ([]Operation, error) {
	upper := []byte{keyOperationOrder + 1}
	if before != 0 {
		upper = sequenceKey(keyOperationOrder, before)
	}
	return readOperations(r, []byte{keyOperationOrder}, upper, true, limit)
}

// OpenOperations returns the operations that are not done, the oldest first; at most MaxOpenOperations.
func OpenOperations(r Reader) ([]Operation, error) {
	return readOperations(r, []byte{keyOperationOpen}, []byte{keyOperationOpen + 1}, false, MaxOpenOperations)
}

func readOperations(r Reader, lower, upper []byte, reverse bool, limit int) ([]Operation, error) {
	var out []Operation
	if limit <= 0 {
		return nil, nil
	}
	err := r.Scan(lower, upper, reverse, func(_, id []byte) (bool, error) {
		o, ok, err := GetOperation(r, string(id))
		if err != nil {
			return false, err
		}
		if !ok {
			return false, fmt.Errorf("%w: operation %q is listed and not there", ErrCorrupt, id)
		}
		out = append(out, o)
		return len(out) < limit, nil
	})
	return out, err
}

func operationKey(id string) []byte { return append([]byte{keyOperation}, id...) }

func sequenceKey(kind byte, sequence uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{kind}, sequence)
}

// saveOperation stores a changed operation and keeps the index of the open ones.
func saveOperation(st State, m *meta, o *Operation) (Result, error) {
	o.Version++
	o.UpdatedAt = m.Clock
	o.Detail = cut(o.Detail)
	open := sequenceKey(keyOperationOpen, o.Sequence)
	var err error
	if o.State.Done() {
		o.CompletedAt = m.Clock
		err = st.Delete(open)
	} else {
		err = st.Set(open, []byte(o.ID))
	}
	if err != nil {
		return Result{}, err
	}
	return Result{Operation: o, Changed: true}, put(st, operationKey(o.ID), o)
}

// cut shortens a detail to its limit, at the end of a character.
func cut(s string) string {
	s = strings.ToValidUTF8(s, "?")
	for len(s) > MaxDetailBytes {
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
	}
	return s
}

// current reads an operation for a change; a Result with an error refuses the change.
func current(st State, id string, expect uint64) (Operation, *Result, error) {
	o, ok, err := GetOperation(st, id)
	if err != nil {
		return o, nil, err
	}
	if !ok {
		return o, &Result{Err: fmt.Errorf("%w: %.80q", ErrOperationNotFound, id)}, nil
	}
	if expect != o.Version {
		return o, &Result{Operation: &o, Err: fmt.Errorf("%w: operation %q has version %d", ErrStale, id, o.Version)}, nil
	}
	return o, nil, nil
}

func advanceOperation(st State, m *meta, c *AdvanceOperation) (Result, error) {
	o, refused, err := current(st, c.ID, c.ExpectVersion)
	if err != nil || refused != nil {
		return deref(refused), err
	}
	refuse := func(format string, args ...any) (Result, error) {
		return Result{Operation: &o, Err: fmt.Errorf("%w: operation %q: %s", ErrIllegalTransition, c.ID, fmt.Sprintf(format, args...))}, nil
	}
	if o.State.Done() {
		return refuse("it is %s already", o.State)
	}
	before, err := json.Marshal(o)
	if err != nil {
		return Result{}, err
	}
	next := o
	next.Targets = slices.Clone(o.Targets)
	next.State = OperationApplying
	if c.Target != nil {
		t := next.Target(c.Target.Group)
		switch {
		case t == nil:
			return refuse("group %d is not one of its targets", c.Target.Group)
		case len(c.Target.Replicas) > 2*MaxNodes:
			return refuse("%d results of replicas, the limit is %d", len(c.Target.Replicas), 2*MaxNodes)
		case !slices.Contains(targetSteps[t.State], c.Target.State):
			return refuse("group %d is %s and cannot become %s", t.Group, t.State, c.Target.State)
		}
		*t = *c.Target
		t.Detail = cut(t.Detail)
	}
	after, err := json.Marshal(next)
	if err != nil {
		return Result{}, err
	}
	if string(before) == string(after) {
		return Result{Operation: &o}, nil
	}
	return saveOperation(st, m, &next)
}

func deref(r *Result) Result {
	if r == nil {
		return Result{}
	}
	return *r
}

func finishOperation(st State, m *meta, c *FinishOperation) (Result, error) {
	expect := c.ExpectVersion
	if expect == 0 && c.State == OperationCancelled {
		have, _, err := GetOperation(st, c.ID)
		if err != nil {
			return Result{}, err
		}
		expect = have.Version
	}
	o, refused, err := current(st, c.ID, expect)
	if err != nil || refused != nil {
		return deref(refused), err
	}
	if c.State == o.State && o.State.Done() {
		return Result{Operation: &o}, nil
	}
	why := o.mayFinish(c.State)
	if !c.State.Done() || c.State > OperationCancelled {
		why = fmt.Sprintf("%s is not an end", c.State)
	}
	if why != "" {
		return Result{Operation: &o, Err: fmt.Errorf("%w: operation %q cannot become %s: %s", ErrIllegalTransition, c.ID, c.State, why)}, nil
	}
	next := o
	next.Targets = slices.Clone(o.Targets)
	for i := range next.Targets {
		switch t := &next.Targets[i]; {
		case t.State.Done():
		case c.State == OperationCancelled:
			t.State = TargetCancelled
		case c.State == OperationRejected:
			t.State = TargetRejected
		}
	}
	next.State, next.Detail = c.State, c.Detail
	return saveOperation(st, m, &next)
}
