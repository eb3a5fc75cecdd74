package logcodec_test

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"

	logv1 "github.com/sealane/sealane/api/gen/sealane/log/v1"
	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
	"github.com/sealane/sealane/shard/logcodec"
	"pgregory.net/rapid"
)

// catalogSamples has one command of every kind, with every field set.
func catalogSamples() []catalog.Command {
	d := sampleDestination()
	return []catalog.Command{
		&catalog.FoundCluster{Incarnation: 0x0102030405060708, Shards: 16, ReplicationFactor: 3, Founders: []catalog.Node{sampleNode("n1"), sampleNode("n2")}},
		&catalog.ApplyDestination{Namespace: "ns", Spec: catalog.Destination{
			Name: "billing",
			HTTP: &catalog.HTTPTarget{
				URL: "https://billing.example.com/hooks", Timeout: time.Second, Headers: []catalog.Header{{Name: "X-Tenant", Value: "acme"}, {Name: "X-Z", Value: "1"}},
				StatusVerdicts: catalog.VerdictsStrict, TLSPin: "sha256/x", SigningSecrets: []catalog.SecretRef{{Env: "A"}, {File: "/b"}},
			},
			Retry: d.Retry, Uncertainty: d.Uncertainty,
			Probe:   &catalog.Probe{URL: "https://p/{webhook_id}", Found: []uint32{200, 204}, Absent: []uint32{404}, AbsentIsAuthoritative: true},
			Lane:    catalog.LaneLimits{MaxInFlight: 1, RatePerSecond: 2, Spread: 3, MaxPending: 4, MaxPendingBytes: 5, MaxBytesInFlight: 6},
			Circuit: d.Circuit, Retention: 6, IdempotencyWindow: 7, DeadLetter: catalog.DeadLetter{Retention: 8, Export: "archive"},
		}},
		&catalog.DeleteDestination{Namespace: "ns", Name: "billing"},
		&catalog.CreateNamespace{Name: "acme"},
		&catalog.RegisterNode{Node: sampleNode("n3")},
		&catalog.SetNodeState{Node: "n1", State: catalog.NodeRemoved, Replica: "n1@0123456789abcdef", Gone: true},
		&catalog.ChangePlacement{Group: 3, ExpectVersion: 9, Replica: "n1@0123456789abcdef", State: catalog.ReplicaTombstone},
		&catalog.PreferLeader{Group: 3, ExpectVersion: 9, Node: "n1"},
		&catalog.RegisterOperation{
			ID: "op-1", Hash: [32]byte{1, 31: 2}, Kind: catalog.ActivateNode, Actor: "ann", Reason: "why",
			Params: catalog.OperationParams{Node: "n1", PeerAddress: "a:1", Gone: true, Group: 3, AllShards: true, From: "n2", To: "n3"},
		},
		&catalog.AdvanceOperation{ID: "op-1", ExpectVersion: 2, Target: &catalog.OperationTarget{
			Group: 3, State: catalog.TargetCancelled, FirstIndex: 4, LastIndex: 5, Matched: 6, Applied: 1, Skipped: 2, Failed: 3, Node: "n1", Detail: "so",
			Replicas: []catalog.ReplicaResult{{Replica: "n1@0123456789abcdef", Result: catalog.ResultEqual, Digest: "00"}, {Replica: "n2@0123456789abcdef"}},
		}},
		&catalog.FinishOperation{ID: "op-1", ExpectVersion: 3, State: catalog.OperationCancelled, Detail: "so"},
	}
}

// sampleNode has every field set that a node says of itself.
func sampleNode(id string) catalog.Node {
	return catalog.Node{
		ID: id, Replica: id + "@0123456789abcdef", PeerAddress: "p:1", GRPCAddress: "g:2", HTTPAddress: "h:3", Version: "v1", Boot: 1 << 60, LogVersion: 4,
	}
}

func mustAppendCatalog(t testing.TB, c catalog.Command) []byte {
	t.Helper()
	b, err := logcodec.AppendCatalog(nil, c)
	if err != nil {
		t.Fatalf("%T: %v", c, err)
	}
	return b
}

func TestCatalogSamplesAreFull(t *testing.T) {
	kinds := (&logv1.CatalogCommand{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields().Len()
	if len(catalogSamples()) != kinds {
		t.Errorf("%d samples of %d kinds", len(catalogSamples()), kinds)
	}
	for _, c := range catalogSamples() {
		v := reflect.ValueOf(c).Elem()
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("the sample of %T leaves out %s", c, v.Type().Field(i).Name)
			}
		}
		if a, ok := c.(*catalog.ApplyDestination); ok {
			spec := reflect.ValueOf(a.Spec)
			for i := range spec.NumField() {
				if spec.Field(i).IsZero() {
					t.Errorf("the sample leaves out %s", spec.Type().Field(i).Name)
				}
			}
		}
	}
}

// TestCatalogRoundTrip: any command of the control group comes back as it was.
func TestCatalogRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		found := rapid.Make[catalog.FoundCluster]().Draw(t, "found")
		deleted := rapid.Make[catalog.DeleteDestination]().Draw(t, "delete")
		applied := rapid.Make[catalog.ApplyDestination]().Draw(t, "apply")
		namespace := rapid.Make[catalog.CreateNamespace]().Draw(t, "namespace")
		node := rapid.Make[catalog.RegisterNode]().Draw(t, "node")
		state := rapid.Make[catalog.SetNodeState]().Draw(t, "node state")
		placement := rapid.Make[catalog.ChangePlacement]().Draw(t, "placement")
		prefer := rapid.Make[catalog.PreferLeader]().Draw(t, "prefer")
		register := rapid.Make[catalog.RegisterOperation]().Draw(t, "register")
		advance := rapid.Make[catalog.AdvanceOperation]().Draw(t, "advance")
		finish := rapid.Make[catalog.FinishOperation]().Draw(t, "finish")
		normal(&applied.Spec)
		normalNodes(append([]*catalog.Node{&node.Node}, pointers(found.Founders)...))
		if len(found.Founders) == 0 {
			found.Founders = nil
		}
		state.State %= catalog.NodeRemoved + 1
		placement.State %= catalog.ReplicaTombstone + 1
		register.Kind %= catalog.ActivateNode + 1
		if target := advance.Target; target != nil {
			if target.State %= catalog.TargetCancelled + 1; len(target.Replicas) == 0 {
				target.Replicas = nil
			}
		}
		if finish.State %= catalog.OperationCancelled + 1; finish.State < catalog.OperationCompleted {
			finish.State = 0 // the stages that are no end have no number in this command
		}
		for _, c := range []catalog.Command{
			&found, &deleted, &applied, &namespace, &node, &state, &placement, &prefer, &register, &advance, &finish,
		} {
			b, err := logcodec.AppendCatalog(nil, c)
			if err != nil {
				t.Fatal(err)
			}
			got, err := logcodec.DecodeCatalog(b)
			if err != nil || !reflect.DeepEqual(got, c) {
				t.Fatalf("%v\ngot  %+v\nwant %+v", err, got, c)
			}
		}
	})
}

// TestFoundClusterOfOldLogs: the first command of a log from before there were clusters reads as it was written, and is written as it was.
func TestFoundClusterOfOldLogs(t *testing.T) {
	old := []byte{0x0a, 0x0b, 0x09, 8, 7, 6, 5, 4, 3, 2, 1, 0x10, 0x10}
	want := &catalog.FoundCluster{Incarnation: 0x0102030405060708, Shards: 16}
	got, err := logcodec.DecodeCatalog(old)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v %v", got, err)
	}
	if b := mustAppendCatalog(t, want); !bytes.Equal(b, old) {
		t.Errorf("%x", b)
	}
}

// TestCatalogKeepsOutWhatIsNotTheNodes: a node's state, its times and its ended processes are the control group's to say, so no command has
// them.
func TestCatalogKeepsOutWhatIsNotTheNodes(t *testing.T) {
	n := sampleNode("n1")
	n.State, n.RegisteredAt, n.RemovedAt, n.PastBoots[0] = catalog.NodeRemoved, 1, 2, 3
	got, err := logcodec.DecodeCatalog(mustAppendCatalog(t, &catalog.RegisterNode{Node: n}))
	if err != nil || !reflect.DeepEqual(got, &catalog.RegisterNode{Node: sampleNode("n1")}) {
		t.Errorf("%+v %v", got, err)
	}
}

func pointers(nodes []catalog.Node) (out []*catalog.Node) {
	for i := range nodes {
		out = append(out, &nodes[i])
	}
	return out
}

// normalNodes keeps what a node says of itself.
func normalNodes(nodes []*catalog.Node) {
	for _, n := range nodes {
		n.State, n.RegisteredAt, n.RemovedAt, n.PastBoots = 0, 0, 0, [catalog.MaxPastBoots]uint64{}
	}
}

// normal makes empty lists nil and keeps enumerations to what this build knows.
func normal(d *catalog.Destination) {
	d.Retry.Jitter %= 3
	d.Uncertainty.OnUncertain %= 2
	d.Uncertainty.WhenExhausted %= 2
	if len(d.Retry.Schedule) == 0 {
		d.Retry.Schedule = nil
	}
	if h := d.HTTP; h != nil {
		if len(h.Headers) == 0 {
			h.Headers = nil
		}
		if len(h.SigningSecrets) == 0 {
			h.SigningSecrets = nil
		}
	}
	if p := d.Probe; p != nil {
		if len(p.Found) == 0 {
			p.Found = nil
		}
		if len(p.Absent) == 0 {
			p.Absent = nil
		}
	}
}

// TestCatalogUnknown: a field or number this build does not know stops the control group, wherever it is.
func TestCatalogUnknown(t *testing.T) {
	for _, c := range catalogSamples() {
		tryUnknown(t, kindName(c), mustAppendCatalog(t, c), &logv1.CatalogCommand{}, func(b []byte) error {
			_, err := logcodec.DecodeCatalog(b)
			return err
		})
	}
	if _, err := logcodec.DecodeCatalog(nil); !errors.Is(err, logcodec.ErrUnknown) {
		t.Errorf("an empty command: %v", err)
	}
	if _, err := logcodec.DecodeCatalog([]byte{0xff}); !errors.Is(err, logcodec.ErrMalformed) {
		t.Errorf("no protobuf at all: %v", err)
	}
	if _, err := logcodec.AppendCatalog(nil, nil); !errors.Is(err, logcodec.ErrUnknown) {
		t.Errorf("no command: %v", err)
	}
}

func FuzzDecodeCatalog(f *testing.F) {
	for _, c := range catalogSamples() {
		b := mustAppendCatalog(f, c)
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := logcodec.DecodeCatalog(b)
		if err != nil {
			if !errors.Is(err, logcodec.ErrUnknown) && !errors.Is(err, logcodec.ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		again, err := logcodec.DecodeCatalog(mustAppendCatalog(t, c))
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Fatalf("%v\n%+v\n%+v", err, c, again)
		}
	})
}

// TestBoundsAgree: what a definition may say and what a shard takes are the same bounds.
func TestBoundsAgree(t *testing.T) {
	for _, r := range []struct {
		ok  bool
		why string
	}{
		{catalog.MaxNameBytes == shard.MaxDestinationName, "names of destinations"},
		{catalog.DefaultMaxPending == shard.DefaultLaneMessages, "default backlog in messages"},
		{catalog.DefaultMaxPendingBytes == shard.DefaultLaneBytes, "default backlog in bytes"},
		{catalog.DefaultMaxPendingBytes >= shard.MaxPayloadBytes, "a lane must hold its largest message"},
		{catalog.MaxRetention <= shard.MaxExpiry, "history is not kept longer than a message may live"},
		{catalog.MaxTimeout < policy.MaxBackoffLimit, "an attempt ends before its longest wait"},
		{catalog.MinIdempotencyWindow > 0, "a key is remembered"},
		{catalog.MaxSpread <= 1<<16, "shards are numbered by 16 bits"},
		{catalog.DefaultTimeout < catalog.MaxTimeout, "the default timeout is legal"},
	} {
		if !r.ok {
			t.Error(r.why)
		}
	}
}
