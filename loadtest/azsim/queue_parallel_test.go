package azsim

import (
	"fmt"
	"sync"
	"testing"
)

// AZURE.md C3, R4: 16 concurrent gets of 32 over 640 messages give each once.
func TestConcurrentGetsNeverHandOutAMessageTwice(t *testing.T) {
	w, _ := newRaw(t, Config{})
	w.create("queue")
	const n = 640
	for i := range n {
		w.put("queue", fmt.Sprint(i), "")
	}
	var (
		mu   sync.Mutex
		seen = make(map[string]int)
		wg   sync.WaitGroup
	)
	for range 16 {
		wg.Go(func() {
			for {
				a, err := w.try("GET", "/queue/messages?numofmessages=32", "")
				if err != nil {
					t.Error(err)
					return
				}
				ms := a.messages(t)
				if len(ms) == 0 {
					return
				}
				for _, m := range ms {
					mu.Lock()
					seen[m.ID]++
					mu.Unlock()
					if d, err := w.try("DELETE", m.target("queue", ""), ""); err != nil || d.status != 204 {
						t.Errorf("delete: %d, %v", d.status, err)
					}
				}
			}
		})
	}
	wg.Wait()
	if len(seen) != n {
		t.Errorf("%d messages of %d", len(seen), n)
	}
	for id, times := range seen {
		if times != 1 {
			t.Errorf("%s came %d times", id, times)
		}
	}
}
