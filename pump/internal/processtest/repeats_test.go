package processtest

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// TestOnceRepeatsLittleMoreThanAtLeastOnce when processors of both are killed at the same moments.
func TestOnceRepeatsLittleMoreThanAtLeastOnce(t *testing.T) {
	proof.Only(t)
	t.Parallel()
	const n, kills = 20_000, 3
	w, e, random := newWorld(t, 2, 4), newEndpoint(t), rand.New(rand.NewPCG(*countSeed, 3))
	c := &chaos{world: w}
	writeTasks(t, w.path("tasks.jsonl"), n)
	for _, delivery := range []string{"once", "at-least-once"} {
		config := w.path(delivery)
		writeText(t, config, strings.Replace(readText(t, w.config), "test", delivery+"\ndelivery: "+delivery, 1))
		e.sent = append(e.sent, w.sends(config, w.path("tasks.jsonl")).Run)
		for range 2 {
			p := e.poster("--concurrency", "8", "--config", config)
			c.parts = append(c.parts, p)
			c.start(p)
		}
	}
	for k := 0; k < kills && !e.complete(n); k++ {
		time.Sleep(time.Duration(500+random.IntN(2500)) * time.Millisecond)
		for i := random.IntN(2); i < len(c.parts); i += 2 {
			c.parts[i].kill()
			c.start(c.parts[i])
		}
	}
	w.eventually("all is done and deleted", func() bool { return e.complete(n) && w.inAll() == 0 })
	once, least := e.repeats(e.sent[0]), e.repeats(e.sent[1])
	t.Logf("of %d tasks once repeats %d, at least once %d", n, once, least)
	if least == 0 || once > least*3/2+200 {
		t.Errorf("once repeats %d, and at least once %d", once, least)
	}
}
