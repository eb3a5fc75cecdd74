package policy

import "time"

// GenerationDeadline is the last instant at which a new admission may qualify: expire_at if the client set one, and the end of the lifetime,
// whichever is earlier. The lifetime runs from the later of acceptance and deliver_at, so that a far deliver_at does not eat it.
// byLifetime tells EXPIRED (LIFETIME) from EXPIRED (EXPIRE_AT).
func GenerationDeadline(acceptedAt, deliverAt, expireAt Time, lifetime time.Duration) (at Time, byLifetime bool) {
	end := max(acceptedAt, deliverAt).Add(max(lifetime, 0))
	if expireAt != 0 && expireAt <= end {
		return expireAt, false
	}
	return end, true
}
