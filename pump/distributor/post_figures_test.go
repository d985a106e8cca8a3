package distributor_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
)

// What 64 clients that post ten tasks at a time cost, beside a put for each task.
func TestPostsTakeFewRequests(t *testing.T) {
	for _, c := range []struct {
		name  string
		spec  workload.Spec
		tasks bool // those of a post have one key
		keyed bool
		fewer float64
	}{
		{"neither has keys", testworld.Plain, false, false, 20},
		{"posts have keys", testworld.Once, false, true, 20},
		{"tasks have keys", testworld.Once, true, false, 8},
		{"both have keys", testworld.Once, true, true, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			testworld.In(t, c.spec, 2, 4, nil, func(t *testing.T, w *testworld.World) {
				s := poster(w, "d")
				proof.Must(t, proof.ErrOf(s.Post(t.Context(), "", newTask("first"))))
				before := w.Requests("")
				var all sync.WaitGroup
				for client := range 64 {
					all.Go(func() {
						for n := range 30 {
							key := ""
							if c.keyed {
								key = fmt.Sprint(client, " ", n)
							}
							tasks := tasksOf(fmt.Sprint(client, " ", n), 10)
							for i := range tasks {
								if tasks[i].Key = nil; c.tasks {
									tasks[i].Key = fmt.Append(nil, "customer ", client)
								}
							}
							proof.Must(t, proof.ErrOf(s.Post(t.Context(), key, tasks...)))
						}
					})
				}
				all.Wait()
				tasks, requests := 64*30*10, w.Requests("")-before
				if fewer := float64(tasks) / float64(requests); fewer < c.fewer {
					t.Errorf("%d tasks took %d requests, %.1f times fewer; want %v", tasks, requests, fewer, c.fewer)
				} else {
					t.Logf("%.1f times fewer", fewer)
				}
				closed(t, s)
			})
		})
	}
}

func TestASinglePostWaitsForItsPutAndLinger(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		s := poster(w, "d")
		proof.Must(t, proof.ErrOf(s.Post(t.Context(), "", newTask("first"))))
		took := map[bool][]time.Duration{}
		for n := range 200 {
			time.Sleep(time.Duration(n%7) * 100 * time.Millisecond)
			key, began := "", time.Now()
			if n%2 > 0 {
				key = fmt.Sprint(n)
			}
			rec := source.Record{Key: fmt.Append(nil, n), Body: []byte("x")}
			proof.Must(t, proof.ErrOf(s.Post(t.Context(), key, rec)))
			took[n%2 > 0] = append(took[n%2 > 0], time.Since(began))
		}
		const put, linger = 15 * time.Millisecond, 10 * time.Millisecond // a request takes 10 to 15 ms
		for keyed, most := range map[bool]time.Duration{
			false: put + linger + 5*time.Millisecond, true: 2*(put+linger) + 5*time.Millisecond,
		} {
			slices.Sort(took[keyed])
			if p99 := took[keyed][98]; p99 > most {
				t.Errorf("keyed %v: the 99th of 100 posts took %v, want %v", keyed, p99, most)
			}
		}
		closed(t, s)
	})
}
