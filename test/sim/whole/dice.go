package whole

import (
	"math/rand/v2"
	"slices"
	"time"
)

// dice draw one actor's chances from the seed. One goroutine uses them.
type dice struct{ random *rand.Rand }

func newDice(seed, actor uint64) *dice { return &dice{rand.New(rand.NewPCG(seed, actor))} }

func (d *dice) int(n int) int { return d.random.IntN(n) }

// rest sleeps for between least and most milliseconds.
func (d *dice) rest(least, most int) {
	time.Sleep(time.Duration(least)*time.Millisecond + time.Duration(d.random.IntN((most-least)*1000+1))*time.Microsecond)
}

// pick chooses one of several; empty where there is none.
func (d *dice) pick(from []string) string { return pick(d.random, from) }

func pick(random *rand.Rand, from []string) string {
	if len(from) == 0 {
		return ""
	}
	return from[random.IntN(len(from))]
}

func (d *dice) shuffled(from []string) []string {
	from = slices.Clone(from)
	d.random.Shuffle(len(from), func(i, j int) { from[i], from[j] = from[j], from[i] })
	return from
}

// some chooses n of several.
func (d *dice) some(from []string, n int) []string { return d.shuffled(from)[:min(n, len(from))] }
