package policy

import "time"

// GenerationDeadline is the first instant at which no new admission qualifies any more: expire_at if the client set one (0 means not), or the
// end of the lifetime, whichever comes first (DESIGN 4, 5). The lifetime runs from the later of acceptance and deliver_at, so that a far
// deliver_at does not eat it; a negative one counts as none. byLifetime tells EXPIRED (LIFETIME) from EXPIRED (EXPIRE_AT); where both end
// at the same instant the client's word is the reason. It saturates at MaxTime.
func GenerationDeadline(acceptedAt, deliverAt, expireAt Time, lifetime time.Duration) (at Time, byLifetime bool) {
	end := max(acceptedAt, deliverAt).Add(max(lifetime, 0))
	if expireAt != 0 && expireAt <= end {
		return expireAt, false
	}
	return end, true
}
