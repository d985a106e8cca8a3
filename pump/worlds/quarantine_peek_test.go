package worlds

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/queuepump/queuepump/pump/quarantine"
)

func TestQuarantineIsPeekedAtWithoutTakingAnything(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		both, asked := []string{"accounta", "accountb"}, 0
		peek := func() ([]*quarantine.Message, error) {
			var mu sync.Mutex
			return w.quarantine().Peek(t.Context(), both, func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				asked++
				return nil
			})
		}
		if ms, err := peek(); asked != 2 || len(ms) != 0 || err != nil {
			t.Fatalf("%v, %v", ms, err)
		}
		for account, n := range map[string]int{"accounta": 40, "accountb": 3} {
			must(t, w.Queue(account, "work-poison").Create(t.Context()))
			for i := range n {
				w.PutText(account, "work-poison", fmt.Appendf(nil, "m%d", i))
			}
		}
		gets, updates := w.Requests("GetMessages"), w.Requests("UpdateMessage")
		ms, err := peek()
		if err != nil || len(ms) != 35 || ms[34].Account != "accountb" || ms[34].Matching != 1 {
			t.Fatalf("%d messages, %v", len(ms), err)
		}
		tasks, err := ms[0].Open()
		if err != nil || string(tasks[0].Body) != "m0" {
			t.Errorf("%v, %v", tasks, err)
		}
		if w.Requests("GetMessages") != gets || w.Requests("UpdateMessage") != updates {
			t.Error("messages were taken")
		}
		if all := w.listed(quarantine.Filter{}); len(all) != 43 {
			t.Errorf("%d are left", len(all))
		}
		w.Sim.Blackout("accountb", true)
		if ms, err = peek(); err == nil || len(ms) != 32 {
			t.Errorf("with a dark account: %d messages, %v", len(ms), err)
		}
	})
}
