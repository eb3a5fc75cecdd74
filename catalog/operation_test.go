package catalog_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sealane/sealane/catalog"
)

// register makes the command for an operation with its canonical hash.
func register(id string, kind catalog.OperationKind, p catalog.OperationParams) *catalog.RegisterOperation {
	return &catalog.RegisterOperation{
		ID: id, Hash: catalog.OperationHash(kind, p, "why"), Kind: kind, Params: p, Actor: "ann", Reason: "why",
	}
}

// must runs a command that has to take effect.
func (g *group) must(c catalog.Command) catalog.Result {
	g.t.Helper()
	r := g.one(c)
	if r.Err != nil || !r.Changed {
		g.t.Fatalf("%+v: %+v", c, r)
	}
	return r
}

// TestRegisterOperation: the same id and hash give the first receipt, whatever became of it; another hash is a conflict.
func TestRegisterOperation(t *testing.T) {
	g := foundedGroup(t, 3, 4)
	cmd := register("op-1", catalog.Snapshot, catalog.OperationParams{AllShards: true})
	r := g.must(cmd)
	o := *r.Operation
	if o.State != catalog.OperationRegistered || o.Sequence != 1 || o.Version != 1 || o.RegisteredIndex != g.index || o.RegisteredAt != 1000 || o.Actor != "ann" || o.Reason != "why" {
		t.Errorf("%+v", o)
	}
	var groups []uint32
	for _, target := range o.Targets {
		groups = append(groups, target.Group)
		if target.State != catalog.TargetPending {
			t.Errorf("%+v", target)
		}
	}
	if !slices.Equal(groups, []uint32{1, 2, 3, 4}) {
		t.Errorf("targets %v", groups)
	}
	g.now = 5000
	other := *cmd
	other.Actor = "bob" // who asks again does not matter
	if r := g.one(&other); r.Err != nil || r.Changed || !reflect.DeepEqual(*r.Operation, o) {
		t.Errorf("the same again: %+v", r)
	}
	g.must(&catalog.FinishOperation{ID: "op-1", State: catalog.OperationCancelled, Detail: "enough"})
	if r := g.one(cmd); r.Err != nil || r.Changed || r.Operation.State != catalog.OperationCancelled || r.Operation.CompletedAt != 5000 {
		t.Errorf("again after its end: %+v", r)
	}
	g.refused(register("op-1", catalog.Snapshot, catalog.OperationParams{Group: 1}), catalog.ErrOperationConflict)
}

// TestOperationHash: every parameter counts.
func TestOperationHash(t *testing.T) {
	seen := map[[32]byte]string{}
	add := func(what string, kind catalog.OperationKind, p catalog.OperationParams, reason string) {
		t.Helper()
		h := catalog.OperationHash(kind, p, reason)
		if have, ok := seen[h]; ok {
			t.Errorf("%s hashes like %s", what, have)
		}
		seen[h] = what
	}
	add("nothing", catalog.AddNode, catalog.OperationParams{}, "")
	add("kind", catalog.RemoveNode, catalog.OperationParams{}, "")
	add("reason", catalog.AddNode, catalog.OperationParams{}, "x")
	v := reflect.TypeFor[catalog.OperationParams]()
	for i := range v.NumField() {
		var p catalog.OperationParams
		switch f := reflect.ValueOf(&p).Elem().Field(i); f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Bool:
			f.SetBool(true)
		default:
			f.SetUint(1)
		}
		add(v.Field(i).Name, catalog.AddNode, p, "")
	}
}

// TestRegisterOperationRefused: what cannot be done is refused at registration and stores nothing.
func TestRegisterOperationRefused(t *testing.T) {
	type params = catalog.OperationParams
	for name, c := range map[string]struct {
		cmd  *catalog.RegisterOperation
		want error
	}{
		"no id":                       {register("", catalog.Snapshot, params{AllShards: true}), catalog.ErrInvalid},
		"a long id":                   {register(strings.Repeat("x", 256), catalog.Snapshot, params{AllShards: true}), catalog.ErrInvalid},
		"no kind":                     {register("a", 0, params{}), catalog.ErrInvalid},
		"a kind of the future":        {register("a", 9, params{}), catalog.ErrInvalid},
		"a node id that cannot be":    {register("a", catalog.AddNode, params{Node: "a@b"}), catalog.ErrInvalid},
		"a long peer address":         {register("a", catalog.AddNode, params{Node: "a", PeerAddress: strings.Repeat("x", 300)}), catalog.ErrInvalid},
		"removing nobody":             {register("a", catalog.RemoveNode, params{Node: "n99"}), catalog.ErrNodeNotFound},
		"removing a removed one":      {register("a", catalog.RemoveNode, params{Node: "n03"}), catalog.ErrNodeRemoved},
		"draining nobody":             {register("a", catalog.DrainNode, params{Node: "n99"}), catalog.ErrNodeNotFound},
		"activating a removed one":    {register("a", catalog.ActivateNode, params{Node: "n03"}), catalog.ErrNodeRemoved},
		"no such shard":               {register("a", catalog.Snapshot, params{Group: 9}), catalog.ErrNoSuchGroup},
		"the control group":           {register("a", catalog.VerifyDigests, params{}), catalog.ErrNoSuchGroup},
		"moving from nobody":          {register("a", catalog.MoveReplica, params{Group: 1, From: "n99", To: "n04"}), catalog.ErrIllegalStep},
		"moving from one without":     {register("a", catalog.MoveReplica, params{Group: 1, From: "n04", To: "n05"}), catalog.ErrIllegalStep},
		"moving to nobody":            {register("a", catalog.MoveReplica, params{Group: 1, From: "n01", To: "n99"}), catalog.ErrNodeNotFound},
		"moving to a holder":          {register("a", catalog.MoveReplica, params{Group: 1, From: "n01", To: "n02"}), catalog.ErrIllegalStep},
		"moving to a draining one":    {register("a", catalog.MoveReplica, params{Group: 1, From: "n01", To: "n05"}), catalog.ErrIllegalStep},
		"a leader that does not vote": {register("a", catalog.TransferLeadership, params{Group: 1, To: "n04"}), catalog.ErrIllegalStep},
	} {
		t.Run(name, func(t *testing.T) {
			g := foundedGroup(t, 3, 2)
			g.must(&catalog.RegisterNode{Node: testNode("n04", 1)})
			g.must(&catalog.RegisterNode{Node: testNode("n05", 1)})
			g.must(&catalog.SetNodeState{Node: "n05", State: catalog.NodeDraining})
			g.must(&catalog.SetNodeState{Node: "n03", State: catalog.NodeRemoved, Gone: true})
			g.refused(c.cmd, c.want)
		})
	}
	g := foundedGroup(t, 1, 1)
	g.refused(register("a", catalog.RemoveNode, catalog.OperationParams{Node: "n01"}), catalog.ErrLastNode)
	g.refused(register("a", catalog.DrainNode, catalog.OperationParams{Node: "n01"}), catalog.ErrLastNode)
	newGroup(t).refused(register("a", catalog.Snapshot, catalog.OperationParams{AllShards: true}), catalog.ErrNoSuchGroup)
}

// TestTargets: an operation on a node names its replica, so that a later node of the same name is not meant.
func TestTargets(t *testing.T) {
	g := foundedGroup(t, 4, 4)
	o := g.must(register("r", catalog.RemoveNode, catalog.OperationParams{Node: "n02"})).Operation
	var groups []uint32
	for _, target := range o.Targets {
		if groups = append(groups, target.Group); target.Node != replicaID("n02", 1) {
			t.Errorf("%+v", target)
		}
	}
	if !slices.Equal(groups, []uint32{0, 1, 2, 4}) {
		t.Errorf("targets %v", groups)
	}
	if o := g.must(register("m", catalog.MoveReplica, catalog.OperationParams{Group: 1, From: "n01", To: "n04"})).Operation; len(o.Targets) != 1 || o.Targets[0].Group != 1 {
		t.Errorf("%+v", o.Targets)
	}
	if o := g.must(register("t", catalog.TransferLeadership, catalog.OperationParams{Group: 2})).Operation; len(o.Targets) != 1 || o.Targets[0].Group != 2 {
		t.Errorf("%+v", o.Targets)
	}
	if o := g.must(register("d", catalog.DrainNode, catalog.OperationParams{Node: "n03"})).Operation; len(o.Targets) != 1 || o.Targets[0].Group != catalog.ControlGroup {
		t.Errorf("%+v", o.Targets)
	}
}

// TestTargetSteps tries every state of a target after every state.
func TestTargetSteps(t *testing.T) {
	const pending, applying, completed, rejected, cancelled = catalog.TargetPending, catalog.TargetApplying, catalog.TargetCompleted, catalog.TargetRejected, catalog.TargetCancelled
	legal := map[catalog.TargetState][]catalog.TargetState{
		pending: {pending, applying, completed, rejected}, applying: {applying, completed}, completed: {}, rejected: {},
	}
	for from, next := range legal {
		for to := catalog.TargetState(0); to <= 7; to++ {
			t.Run(from.String()+" to "+to.String(), func(t *testing.T) {
				g := foundedGroup(t, 3, 2)
				g.must(register("a", catalog.Snapshot, catalog.OperationParams{AllShards: true}))
				g.must(&catalog.AdvanceOperation{ID: "a", ExpectVersion: 1, Target: &catalog.OperationTarget{Group: 1, State: from, Node: "x"}})
				cmd := &catalog.AdvanceOperation{ID: "a", ExpectVersion: 2, Target: &catalog.OperationTarget{Group: 1, State: to, LastIndex: 9, Matched: 3}}
				if !slices.Contains(next, to) {
					g.refused(cmd, catalog.ErrIllegalTransition)
					return
				}
				o := g.must(cmd).Operation
				if o.Version != 3 || o.State != catalog.OperationApplying || !reflect.DeepEqual(o.Target(1), cmd.Target) {
					t.Errorf("%+v", o)
				}
				if o.Target(2).State != pending {
					t.Errorf("the other target is %s", o.Target(2).State)
				}
			})
		}
	}
	if cancelled.String() != "CANCELLED" || !cancelled.Done() {
		t.Error(cancelled)
	}
}

func TestAdvanceRefused(t *testing.T) {
	g := foundedGroup(t, 3, 2)
	g.must(register("a", catalog.Snapshot, catalog.OperationParams{Group: 1}))
	g.refused(&catalog.AdvanceOperation{ID: "b", ExpectVersion: 1}, catalog.ErrOperationNotFound)
	g.refused(&catalog.AdvanceOperation{ID: "a", ExpectVersion: 2}, catalog.ErrStale)
	g.refused(&catalog.AdvanceOperation{ID: "a", ExpectVersion: 1, Target: &catalog.OperationTarget{Group: 2, State: 2}}, catalog.ErrIllegalTransition)
	g.refused(&catalog.AdvanceOperation{ID: "a", ExpectVersion: 1, Target: &catalog.OperationTarget{
		Group: 1, State: 2, Replicas: make([]catalog.ReplicaResult, 2*catalog.MaxNodes+1),
	}}, catalog.ErrIllegalTransition)
	g.must(&catalog.AdvanceOperation{ID: "a", ExpectVersion: 1})
	if r := g.one(&catalog.AdvanceOperation{ID: "a", ExpectVersion: 2}); r.Err != nil || r.Changed || r.Operation.Version != 2 {
		t.Errorf("nothing new: %+v", r)
	}
	long := strings.Repeat("ä", catalog.MaxDetailBytes) + "\xff"
	o := g.must(&catalog.AdvanceOperation{ID: "a", ExpectVersion: 2, Target: &catalog.OperationTarget{Group: 1, State: 2, Detail: long}}).Operation
	if d := o.Targets[0].Detail; len(d) > catalog.MaxDetailBytes || len(d) < catalog.MaxDetailBytes-1 || !utf8.ValidString(d) {
		t.Errorf("a detail of %d bytes", len(d))
	}
	g.must(&catalog.FinishOperation{ID: "a", State: catalog.OperationCancelled})
	g.refused(&catalog.AdvanceOperation{ID: "a", ExpectVersion: 4}, catalog.ErrIllegalTransition)
}

// TestFinish tries every end from every stage of the operation and of its target.
func TestFinish(t *testing.T) {
	const registered, applying = catalog.OperationRegistered, catalog.OperationApplying
	const completed, outstanding, rejected, cancelled = catalog.OperationCompleted, catalog.OperationOutstanding, catalog.OperationRejected, catalog.OperationCancelled
	for _, c := range []struct {
		state  catalog.OperationState
		target catalog.TargetState
		legal  []catalog.OperationState
	}{
		{registered, catalog.TargetPending, []catalog.OperationState{rejected, cancelled}},
		{applying, catalog.TargetPending, []catalog.OperationState{rejected, cancelled}},
		{applying, catalog.TargetApplying, []catalog.OperationState{cancelled}},
		{applying, catalog.TargetCompleted, []catalog.OperationState{completed, outstanding, cancelled}},
		{applying, catalog.TargetRejected, []catalog.OperationState{outstanding, rejected, cancelled}},
	} {
		for to := catalog.OperationState(0); to <= 8; to++ {
			t.Run(fmt.Sprintf("%s with %s to %s", c.state, c.target, to), func(t *testing.T) {
				g := foundedGroup(t, 3, 1)
				version := g.must(register("a", catalog.Snapshot, catalog.OperationParams{Group: 1})).Operation.Version
				if c.state == applying {
					version = g.must(&catalog.AdvanceOperation{ID: "a", ExpectVersion: 1, Target: &catalog.OperationTarget{Group: 1, State: c.target}}).Operation.Version
				}
				cmd := &catalog.FinishOperation{ID: "a", ExpectVersion: version, State: to, Detail: "so"}
				if !slices.Contains(c.legal, to) {
					g.refused(cmd, catalog.ErrIllegalTransition)
					return
				}
				g.now = 7000
				o := g.must(cmd).Operation
				if o.State != to || o.CompletedAt != 7000 || o.Detail != "so" || !o.Targets[0].State.Done() {
					t.Errorf("%+v", o)
				}
				cmd.ExpectVersion = o.Version
				if r := g.one(cmd); r.Err != nil || r.Changed {
					t.Errorf("the same end again: %+v", r)
				}
				cmd.State = cancelled
				if to != cancelled {
					g.refused(cmd, catalog.ErrIllegalTransition)
				}
			})
		}
	}
	g := foundedGroup(t, 3, 1)
	g.must(register("a", catalog.Snapshot, catalog.OperationParams{Group: 1}))
	g.refused(&catalog.FinishOperation{ID: "a", State: rejected}, catalog.ErrStale)
	g.refused(&catalog.FinishOperation{ID: "b", State: cancelled}, catalog.ErrOperationNotFound)
}

// TestRegisterIsBounded: open operations are refused beyond their bound, done ones make room, the oldest first.
func TestRegisterIsBounded(t *testing.T) {
	g := foundedGroup(t, 3, 1)
	add := func(id string) catalog.Result {
		return g.one(register(id, catalog.Snapshot, catalog.OperationParams{Group: 1}))
	}
	for i := range catalog.MaxOpenOperations {
		if r := add(fmt.Sprintf("open-%d", i)); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	if r := add("more"); !errors.Is(r.Err, catalog.ErrTooManyOperations) {
		t.Errorf("%+v", r)
	}
	g.must(&catalog.FinishOperation{ID: "open-63", State: catalog.OperationCancelled})
	for i := range catalog.MaxOperations {
		id := fmt.Sprintf("done-%d", i)
		if r := add(id); r.Err != nil {
			t.Fatal(r.Err)
		}
		g.must(&catalog.FinishOperation{ID: id, State: catalog.OperationCancelled})
	}
	all, err := catalog.Operations(g.st, 0, 2*catalog.MaxOperations)
	if err != nil || len(all) != catalog.MaxOperations {
		t.Fatalf("%d are kept, %v", len(all), err)
	}
	if all[0].ID != "done-999" || all[len(all)-1].ID != "open-0" {
		t.Errorf("from %s to %s", all[0].ID, all[len(all)-1].ID)
	}
	if _, ok, err := catalog.GetOperation(g.st, "open-63"); ok || err != nil {
		t.Errorf("the oldest done one is still there: %v", err)
	}
	open, err := catalog.OpenOperations(g.st)
	if err != nil || len(open) != catalog.MaxOpenOperations-1 || open[0].ID != "open-0" {
		t.Errorf("%d open, %v", len(open), err)
	}
	page, err := catalog.Operations(g.st, all[9].Sequence, 5)
	if err != nil || len(page) != 5 || page[0].ID != all[10].ID {
		t.Errorf("%d on the second page, %v", len(page), err)
	}
	if none, err := catalog.Operations(g.st, 0, 0); err != nil || len(none) != 0 {
		t.Errorf("%d on a page of none, %v", len(none), err)
	}
}

// TestErrorsAreListed: every verdict travels by name, so each must be in the list, once.
func TestErrorsAreListed(t *testing.T) {
	seen := map[string]bool{}
	for _, err := range catalog.Errors() {
		if seen[err.Error()] {
			t.Errorf("%v is listed twice", err)
		}
		seen[err.Error()] = true
	}
	for _, err := range []error{catalog.ErrInvalid, catalog.ErrStale, catalog.ErrIllegalTransition, catalog.ErrTooManyNamespaces} {
		if !seen[err.Error()] {
			t.Errorf("%v is not listed", err)
		}
	}
	for _, err := range []error{catalog.ErrUnknownCommand, catalog.ErrCorrupt} {
		if seen[err.Error()] {
			t.Errorf("%v stops the group and is no verdict", err)
		}
	}
}
