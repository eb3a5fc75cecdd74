// Package delivery is the seam between a shard's runtime and the networks: one attempt, made at most once, and what is known of it.
//
// What it is. The interfaces an adapter satisfies, the request it is given and the outcome it returns. An adapter classifies, it never decides:
// retry, dead letter and circuit are the shard's (R001).
//
// What it may not do. No adapter retries, follows or repeats: one admission is at most one physical request (P2). Nothing here counts attempts.
// It imports only policy.
//
// Invariants it keeps (REQUIREMENTS.md D): 7, nothing is sent unless the gate was passed right before the first byte; 20, NOT_PUBLISHED is said
// only with evidence; error text is never evidence.
//
// Where to start. adapter.go; then delivery/http for webhooks, and deliverytest for what every adapter must pass.
package delivery
