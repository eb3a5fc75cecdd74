package demo

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// The destinations of the story and the receiver's paths behind them.
const (
	orders   = "orders"   // answered 200
	stock    = "stock"    // 503 with Retry-After: 1 at first, then 200
	invoices = "invoices" // 422
	payments = "payments" // takes the body and drops the connection
	shipping = "shipping" // 401 until it is repaired, then 200
	events   = "events"   // 200 after a tenth of a second; the node is killed meanwhile

	stockPath    = "/retry-after/1"
	paymentsPath = "/drop"
	shippingPath = "/shipping"
	eventsPath   = "/slow/100ms"
)

// eventsInFlight is how many requests of events are under way at once, so about that many are cut off by the kill.
const eventsInFlight = 8

// destinations are the definitions, with times short enough for a demo.
func destinations(url string) []*sealanev1.Destination {
	http := func(name, path string) *sealanev1.Destination {
		return &sealanev1.Destination{
			Name:    name,
			Adapter: &sealanev1.Destination_Http{Http: &sealanev1.HttpTarget{Url: url + path, Timeout: durationpb.New(5 * time.Second)}},
			Retry:   &sealanev1.RetryPolicy{InitialBackoff: durationpb.New(100 * time.Millisecond), MaxBackoff: durationpb.New(2 * time.Second)},
		}
	}
	lane := http(shipping, shippingPath)
	lane.Lane = &sealanev1.LaneLimits{MaxInFlight: 2}
	lane.Circuit = &sealanev1.CircuitPolicy{
		FailureThreshold: 3, OpenFor: durationpb.New(time.Second), MaxOpenFor: durationpb.New(time.Second), HalfOpenSuccesses: 2,
	}
	flow := http(events, eventsPath)
	flow.Lane = &sealanev1.LaneLimits{MaxInFlight: eventsInFlight}
	// The receiver of events promises to treat a repeated webhook-id as one, so the policy may repeat what nobody can tell about.
	flow.Uncertainty = &sealanev1.UncertaintyPolicy{
		OnUncertain: sealanev1.OnUncertain_retry, MaxRetries: 3, ReceiverDedupWindow: durationpb.New(time.Hour),
	}
	// What the kill cuts off counts as unknown, and is no fault of the receiver: the circuit stays closed over it.
	flow.Circuit = &sealanev1.CircuitPolicy{FailureThreshold: 100}
	return []*sealanev1.Destination{http(orders, "/ok"), http(stock, stockPath), http(invoices, "/status/422"), http(payments, paymentsPath), lane, flow}
}
