package coordination

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
	"github.com/queuepump/queuepump/pump/storage/storagetest"
)

// TestOnAzurite shows the row protocols of ids, gates and claims to a server that
// is not ours. Rules that take time are shown in virtual time, by the other tests.
func TestOnAzurite(t *testing.T) {
	server := storagetest.StartAzurite(t, "control")
	client := azure.NewTransport(16)
	t.Cleanup(client.CloseIdleConnections)
	account, err := azure.Open(azure.Options{ConnectionString: server.ConnectionString("control"), Transport: client})
	must(t, err)
	table := account.Table(row.TableName)
	t.Run("no number is given twice", func(t *testing.T) { numbersOn(t, table) })
	t.Run("a gate opens for those who wait", func(t *testing.T) { gateOn(t, table) })
	t.Run("a key is claimed once", func(t *testing.T) { claimsOn(t, table) })
}

func numbersOn(t *testing.T, table storage.Table) {
	const processes, each = 8, 300
	given := make([][]uint64, processes)
	var wg sync.WaitGroup
	for p := range processes {
		r := mustIDRange(t, table, 50)
		wg.Go(func() {
			for range each {
				id, err := r.Next(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				given[p] = append(given[p], id)
			}
		})
	}
	wg.Wait()
	all := slices.Sorted(slices.Values(slices.Concat(given...)))
	if len(slices.Compact(slices.Clone(all))) != processes*each || all[len(all)-1] != processes*each {
		t.Errorf("%d numbers, the last %d", len(all), all[len(all)-1])
	}
}

func gateOn(t *testing.T, table storage.Table) {
	g := NewGate(table, "city", "start")
	passed := make(chan error, 5)
	looks := make([]chan struct{}, 5)
	for i := range looks {
		look := make(chan struct{}, 1)
		looks[i] = look
		go func() { passed <- NewGate(table, "city", "start").Wait(t.Context(), look) }()
	}
	mustRelease(t, g)
	for _, look := range looks {
		look <- struct{}{}
	}
	for range looks {
		must(t, <-passed)
	}
	must(t, g.Hold(t.Context(), "Zoë"))
	all, err := Gates(t.Context(), table, "city")
	if err != nil || len(all) != 1 || all[0].Name != "start" || all[0].Open || all[0].By != "Zoë" || all[0].Since.IsZero() {
		t.Errorf("%+v, %v", all, err)
	}
}

func claimsOn(t *testing.T, table storage.Table) {
	claims := make([]*Claims, 5)
	for i := range claims {
		claims[i] = NewClaims(table, "city", eightHours, fmt.Sprint("p", i))
	}
	want := func(c *Claims, task TaskRef, want Verdict) *Claim {
		t.Helper()
		claim, verdict, _, err := c.Claim(t.Context(), []byte("Zürich"), task)
		if err != nil || verdict != want {
			t.Fatalf("%v, %v, want %v", verdict, err, want)
		}
		return claim
	}
	var mu sync.Mutex
	var claim *Claim
	var wg sync.WaitGroup
	for i, c := range claims {
		wg.Go(func() {
			got, verdict, left, err := c.Claim(t.Context(), []byte("Zürich"), taskN(uint64(i)))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil || verdict == Busy || verdict == Fresh && left > eightHours:
				t.Errorf("%v, %v, %v", verdict, left, err)
			case got != nil && claim != nil:
				t.Error("two were granted")
			case got != nil:
				claim = got
			}
		})
	}
	wg.Wait()
	if claim == nil {
		t.Fatal("none was granted")
	}
	mustEnd(t, claim, false)
	want(claims[0], taskN(9), Fresh)

	other := TaskRef{Foreign: "city-00/1"}
	first, _, _, err := claims[1].Claim(t.Context(), []byte{0, 0xff}, other)
	if err != nil || first == nil {
		t.Fatal(err)
	}
	mustEnd(t, first, true)
	if _, verdict, _, err := claims[2].Claim(t.Context(), []byte{0, 0xff}, other); verdict != Granted {
		t.Errorf("a retry: %v, %v", verdict, err)
	}
	if _, verdict, _, err := claims[3].Claim(t.Context(), []byte{0, 0xff}, other); verdict != Busy {
		t.Errorf("a copy of what runs: %v, %v", verdict, err)
	}
	list, all, err := claims[0].List(t.Context(), 10)
	if err != nil || !all || len(list) != 2 || !list[0].Running || list[0].Key != "AP8=" || list[1].Key != "Zürich" || list[1].Stop.Before(list[1].Start) || time.Since(list[1].Stop).Abs() > time.Hour {
		t.Errorf("%+v, %v, %v", list, all, err)
	}
}
