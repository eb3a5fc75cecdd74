package whole

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// operate lets operators pause lanes and resolve unknown attempts until the load is stopped.
func (l *load) operate() {
	l.run.background.Go(func() {
		random := rand.New(rand.NewPCG(l.run.seed, 0x0be7a))
		for n := 0; !isClosed(l.stop); n++ {
			l.pause(time.Duration(1000+random.IntN(3000)) * time.Millisecond)
			l.resolveSome(random, 3, false)
		}
	})
	l.run.background.Go(func() {
		random := rand.New(rand.NewPCG(l.run.seed, 0x9a05e))
		for n := 0; !isClosed(l.stop); n++ {
			l.pause(time.Duration(2000+random.IntN(5000)) * time.Millisecond)
			l.pauseLane(destinations[n%len(destinations)], n)
		}
	})
}

// operation creates a control operation, again and again under one id until there is an answer, at most for a while.
func (l *load) operation(req *sealanev1.CreateOperationRequest, within time.Duration) (*sealanev1.Operation, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	for {
		try, done := context.WithTimeout(ctx, callWait)
		r, err := l.client.Control().CreateOperation(try, req)
		done()
		if err == nil {
			return r.GetOperation(), nil
		}
		switch status.Code(err) {
		case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted, codes.Unknown, codes.ResourceExhausted:
		default:
			return nil, err
		}
		if rest(ctx, 200*time.Millisecond) != nil {
			return nil, err
		}
	}
}

// pauseLane pauses a destination for a while. Where the answers are known, the positions between which nothing may be admitted are kept.
func (l *load) pauseLane(dest string, n int) {
	pause, err := l.operation(&sealanev1.CreateOperationRequest{
		OperationId: fmt.Sprintf("pause-%d", n), Reason: "simulation",
		Parameters: &sealanev1.CreateOperationRequest_PauseLane{PauseLane: &sealanev1.PauseLane{Destination: dest}},
	}, 20*time.Second)
	l.run.trace.note("operator", "pause %s: %v", dest, err)
	l.pause(2 * time.Second)
	resume, err2 := l.operation(resumeOf(dest, n), 2*time.Minute)
	l.run.trace.note("operator", "resume %s: %v", dest, err2)
	if err != nil || err2 != nil {
		return
	}
	l.run.journal.mu.Lock()
	defer l.run.journal.mu.Unlock()
	l.run.journal.pauses = append(l.run.journal.pauses, pausing{dest, effective(pause), effective(resume)})
}

func resumeOf(dest string, n int) *sealanev1.CreateOperationRequest {
	return &sealanev1.CreateOperationRequest{
		OperationId: fmt.Sprintf("resume-%d", n), Reason: "simulation",
		Parameters: &sealanev1.CreateOperationRequest_ResumeLane{ResumeLane: &sealanev1.ResumeLane{Destination: dest}},
	}
}

// effective is where an operation took effect, by shard.
func effective(o *sealanev1.Operation) map[uint32]uint64 {
	out := map[uint32]uint64{}
	for _, t := range o.GetTargets() {
		if _, index, err := positionOf(t.GetEffectivePosition()); err == nil && !t.GetControlGroup() {
			out[t.GetShard()] = index
		}
	}
	return out
}

// lateEnough is how old an unknown attempt must be before an operator asks the receiver: no request of it can arrive any more.
const lateEnough = 12 * time.Second

// resolveSome decides about unknown attempts, by what the receiver really saw. With all it decides about every one that holds an ordering key.
func (l *load) resolveSome(random *rand.Rand, most int, all bool) (open int) {
	ctx, cancel := context.WithTimeout(context.Background(), callWait)
	defer cancel()
	for u, err := range l.client.UncertainAttempts(ctx, &sealanev1.ListUncertainAttemptsRequest{PageSize: 200}) {
		if err != nil {
			return max(open, 1)
		}
		if all && u.GetHoldsOrderingKey() == "" {
			continue
		}
		open++
		if most == 0 || u.GetNextAttemptAt() != nil || u.GetGenerationState() != sealanev1.GenerationState_UNCERTAIN {
			continue
		}
		if !all && random.IntN(3) > 0 {
			continue
		}
		name := attempt{u.GetGeneration(), u.GetAttempt()}
		if !l.run.old(u.GetMessageId(), name) {
			continue
		}
		most--
		l.resolve(u, random)
	}
	return open
}

func (l *load) resolve(u *sealanev1.UncertainAttempt, random *rand.Rand) {
	took := l.run.receivers.took(u.GetMessageId(), u.GetGeneration(), u.GetAttempt())
	v := sealanev1.ResolveVerdict_PUBLISHED
	if !took {
		v = []sealanev1.ResolveVerdict_Value{
			sealanev1.ResolveVerdict_NOT_PUBLISHED, sealanev1.ResolveVerdict_RETRY, sealanev1.ResolveVerdict_DEAD_LETTER,
		}[random.IntN(3)]
	}
	id := fmt.Sprintf("resolve-%s-%d-%d-%d", u.GetMessageId(), u.GetGeneration(), u.GetAttempt(), v)
	_, err := l.operation(&sealanev1.CreateOperationRequest{
		OperationId: id, Reason: "simulation",
		Parameters: &sealanev1.CreateOperationRequest_Resolve{Resolve: &sealanev1.Resolve{
			MessageId: u.GetMessageId(), Generation: u.GetGeneration(), Attempt: u.GetAttempt(), Verdict: v, Evidence: "looked at the receiver",
		}},
	}, 20*time.Second)
	l.run.trace.note("operator", "resolve %s-%d attempt %d as %s: %v", u.GetMessageId(), u.GetGeneration(), u.GetAttempt(), v, err)
}

// old tells whether an attempt has been known as unknown for long enough.
func (r *Run) old(id string, at attempt) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := fmt.Sprintf("%s-%d-%d", id, at.generation, at.number)
	since, ok := r.unknownSince[key]
	if !ok {
		r.unknownSince[key] = time.Now()
		return false
	}
	return time.Since(since) >= lateEnough
}

// took tells whether the receiver accepted a request of an attempt.
func (r *receivers) took(id string, generation, number uint32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.seen {
		if s := &r.seen[i]; s.message == id && s.generation == generation && s.attempt == number && s.reaction.took() {
			return true
		}
	}
	return false
}
