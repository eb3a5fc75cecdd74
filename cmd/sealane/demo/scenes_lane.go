package demo

import (
	"context"
	"fmt"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

const shippingMessages = 10

// circuit: the receiver refuses everybody, so the lane stops by itself; the receiver is repaired, and the lane goes on by itself.
func (d *demo) circuit(ctx context.Context) error {
	d.receiver.sink.SetMode(shippingPath, "/status/401")
	ids := make([]string, shippingMessages)
	for i := range ids {
		id, err := d.submit(ctx, shipping, fmt.Sprintf(`{"parcel": %d}`, i+1))
		if err != nil {
			return err
		}
		ids[i] = id
	}
	d.out.tell("The receiver has lost our credentials: it answers 401 to everybody. %d parcels are submitted.", len(ids))
	opened, err := d.awaitCircuit(ctx, sealanev1.CircuitPhase_OPEN)
	if err != nil {
		return err
	}
	d.out.tell("After %d refusals the circuit is %s. The other parcels wait, and nothing is held against them.", len(d.receiver.requests(shippingPath)), opened.GetPhase())
	if _, err := d.passThrough(ctx); err != nil {
		return err
	}
	d.receiver.sink.SetMode(shippingPath, "/ok")
	refused := len(d.receiver.requests(shippingPath))
	d.out.tell("The receiver is repaired. Nobody tells Sealane.")
	for _, id := range ids {
		m, err := d.await(ctx, id, sealanev1.GenerationState_DELIVERED)
		if err != nil {
			return err
		}
		if n := m.GetGenerations()[0].GetAttemptsCounted(); n > 1 {
			return fmt.Errorf("%s had %d attempts counted against its budget; refusals of everybody must not count", id, n)
		}
	}
	if _, err := d.awaitCircuit(ctx, sealanev1.CircuitPhase_CLOSED); err != nil {
		return err
	}
	d.out.tell("A trial succeeded, then another, and the circuit is CLOSED: all %d parcels delivered, %d refused requests in all, no budget used.", len(ids), refused)
	return nil
}

// passThrough shows that other lanes do not notice: an order is delivered while shipping is stopped.
func (d *demo) passThrough(ctx context.Context) (*sealanev1.Message, error) {
	id, err := d.submit(ctx, orders, `{"order": "while shipping is stopped"}`)
	if err != nil {
		return nil, err
	}
	m, err := d.await(ctx, id, sealanev1.GenerationState_DELIVERED)
	if err != nil {
		return nil, err
	}
	d.out.tell("Meanwhile an order goes through: the other lanes do not notice.")
	return m, nil
}

// awaitCircuit waits for a phase of shipping's circuit.
func (d *demo) awaitCircuit(ctx context.Context, want sealanev1.CircuitPhase_Value) (c *sealanev1.Circuit, err error) {
	err = d.until(ctx, func(ctx context.Context) (bool, error) {
		resp, err := d.client.Query().GetLane(ctx, &sealanev1.GetLaneRequest{Destination: shipping, Consistency: sealanev1.Consistency_linearizable})
		if err != nil {
			return false, err
		}
		targets := resp.GetLane().GetTargets()
		if len(targets) == 0 {
			return false, nil
		}
		c = targets[len(targets)-1].GetCircuit()
		return c.GetPhase() == want, nil
	})
	if err != nil {
		return nil, fmt.Errorf("the circuit should become %s and is %s: %w", want, c.GetPhase(), err)
	}
	return c, nil
}
