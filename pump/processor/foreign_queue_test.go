package processor_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/jsonline"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/workloads"
	"github.com/queuepump/queuepump/shardmap"
)

// shop is a configuration of a workload that no distributor has made, with queues that other
// programs put into: orders in the first account, invoices in the second.
func shop(w *testworld.World, instance string) pump.Config {
	cfg := w.Config(instance, 2)
	cfg.Workload, cfg.Segments, cfg.ForeignKey = "shop", 64, "city"
	cfg.Accounts[0].Foreign, cfg.Accounts[1].Foreign = []string{"orders"}, []string{"invoices"}
	return cfg
}

func shopProcessor(w *testworld.World, instance string, h pump.Handler) *started {
	w.T.Helper()
	p, err := processor.New(shop(w, instance), h, processor.Options{Make: true})
	proof.Must(w.T, err)
	return testworld.Start(w.T, p)
}

// makeForeign makes the queues of the other programs.
func makeForeign(w *testworld.World) {
	w.T.Helper()
	for account, queue := range map[string]string{"accounta": "orders", "accountb": "invoices"} {
		proof.Must(w.T, w.Queue(account, queue).Create(w.T.Context()))
	}
}

func inForeign(w *testworld.World) int {
	return w.Count("accounta", "orders") + w.Count("accountb", "invoices")
}

func inShopQueues(w *testworld.World) (n int) {
	for _, account := range []string{"accounta", "accountb"} {
		n += w.Count(account, "shop-00") + w.Count(account, "shop-01")
	}
	return n
}

func order(i int) []byte { return fmt.Appendf(nil, `{"city":"city %d","n":%d}`, i%17, i) }

// putOrders puts so many messages into the foreign queues, every other one in base64.
func putOrders(w *testworld.World, all int) {
	w.T.Helper()
	for i := range all {
		text := order(i)
		if i%2 == 1 {
			text = []byte(base64.StdEncoding.EncodeToString(text))
		}
		if i%3 == 0 {
			w.PutText("accountb", "invoices", text)
		} else {
			w.PutText("accounta", "orders", text)
		}
	}
}

// checkOrders checks that each order was seen so as JSON, with its key, in its key's segment.
func checkOrders(t *testing.T, all int, seen ...*testworld.Seen) {
	t.Helper()
	owner := map[uint32]int{}
	var bodies []string
	for at, s := range seen {
		for _, task := range s.Order {
			var body struct {
				City string
				N    int
			}
			if err := json.Unmarshal(task.Body, &body); err != nil || string(task.Body) != string(order(body.N)) {
				t.Errorf("body %q: %v", task.Body, err)
			}
			if string(task.Key) != body.City || task.Segment != shardmap.Segment(task.Key, 64) || !task.Run.IsZero() {
				t.Errorf("key %q and segment %d of %s", task.Key, task.Segment, task.Body)
			}
			if queue, _, _ := strings.Cut(task.Foreign, "/"); (queue == "invoices") != (body.N%3 == 0) || queue != "orders" && queue != "invoices" {
				t.Errorf("%s is called %q", task.Body, task.Foreign)
			}
			if before, known := owner[task.Segment]; known && before != at {
				t.Errorf("segment %d was at work in two processors", task.Segment)
			}
			owner[task.Segment] = at
			bodies = append(bodies, string(task.Body))
		}
	}
	slices.Sort(bodies)
	if n := len(slices.Compact(slices.Clone(bodies))); n != all || len(bodies) != all {
		t.Errorf("%d different orders and %d in all, want %d of both", n, len(bodies), all)
	}
}

// inShop runs a test in a world where the processors make the workload, and checks that they leave
// the foreign queues to other programs.
func inShop(t *testing.T, test func(t *testing.T, w *testworld.World)) {
	t.Helper()
	testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		makeForeign(w)
		var touched []*azsim.Injection
		for _, queue := range []string{"orders", "invoices"} {
			for _, instance := range []string{"p", "q"} {
				touched = append(touched, w.Fault(azsim.Rule{Instance: instance, Object: queue, Fault: azsim.FailBefore}, "PutMessage", "CreateQueue", "DeleteQueue"))
			}
		}
		test(t, w)
		for _, of := range touched {
			if of.Hits() > 0 {
				t.Errorf("a foreign queue was made, deleted or put into: %v", of)
			}
		}
	})
}

// Arrays in foreign queues are tasks of the owners of their keys' segments, once, and nothing is put
// into those queues.
func TestArraysOfForeignQueuesAreTasksOfTheirOwn(t *testing.T) {
	inShop(t, func(t *testing.T, w *testworld.World) {
		seen := []*testworld.Seen{{}, {}}
		var ps []*started
		for i, instance := range []string{"p", "q"} {
			cfg := shop(w, instance)
			cfg.ForeignSplit = true
			p, err := processor.New(cfg, seen[i], processor.Options{Make: true})
			proof.Must(t, err)
			ps = append(ps, testworld.Start(w.T, p))
		}
		time.Sleep(time.Minute)
		const arrays, each = 10, 30
		for a := range arrays {
			array := []byte("[")
			for i := a * each; i < (a+1)*each; i++ {
				array = append(append(array, order(3*i+1)...), ',')
			}
			array[len(array)-1] = ']'
			w.PutText("accounta", "orders", array)
		}
		w.Within(5*time.Minute, "all are done", func() bool { return seen[0].Tasks()+seen[1].Tasks() == arrays*each })
		w.Within(time.Minute, "nothing is left", func() bool { return inForeign(w)+inShopQueues(w) == 0 })
		for _, p := range ps {
			p.End()
		}
		checkOrders(t, arrays*each, seen...)
	})
}

// Parsers of handlers, which recurse, may end their processes by deeply nested JSON: it goes into
// quarantine however it was put, and the messages beside it are done.
func TestDeeplyNestedJSONOfOtherProgramsReachesNoHandler(t *testing.T) {
	deep := func(depth int) string {
		return `{"n":` + strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1) + "}"
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(deep(200_000)))
	proof.Must(t, z.Close())
	encoded := base64.StdEncoding.EncodeToString
	well := []string{deep(512), encoded([]byte(deep(512))), "no JSON: " + strings.Repeat("[", 600), "[1," + deep(511) + ",2]"}
	bad := []string{
		deep(513), deep(20_000), strings.Repeat("[", 48<<10), "[1," + deep(513) + ",2]",
		encoded([]byte(deep(513))), encoded([]byte(deep(20_000))), encoded(packed.Bytes()),
	}
	for _, mode := range []workload.Spec{testworld.Once, testworld.Plain} {
		testworld.In(t, mode, 1, 1, nil, func(t *testing.T, w *testworld.World) {
			cfg := w.Config("p", 1)
			cfg.ForeignSplit = true
			seen := &testworld.Seen{}
			p, err := processor.New(cfg, seen, processor.Options{})
			proof.Must(t, err)
			for _, text := range append(bad, well...) {
				w.PutText("accounta", "work-00", []byte(text))
			}
			running := testworld.Start(t, p)
			w.Within(time.Minute, "all are settled", func() bool { return w.Left() == 0 })
			s := running.End()
			if s.Handled != 6 || s.Quarantined != int64(len(bad)) {
				t.Errorf("%+v", s)
			}
			for _, task := range seen.Order {
				if jsonline.TooDeep(task.Body) || len(task.Body) > 2000 {
					t.Errorf("the handler got %d bytes: %.50s", len(task.Body), task.Body)
				}
			}
			texts := w.Poisoned("accounta")
			proof.Same(t, len(texts), len(bad), "messages in quarantine")
			for _, text := range texts {
				h, err := codec.ReadHeader(text)
				proof.Must(t, err)
				if h.Cause.Reason != codec.ReasonRejected || !strings.Contains(h.Cause.Detail, "nested more than 512 deep") {
					t.Errorf("%+v", h.Cause)
				}
			}
		})
	}
}

// C5: a workload of foreign queues alone. Each message reaches the owner of its key's segment as
// JSON, once; the processors make the workload; nothing is put into the foreign queues.
func TestAWorkloadCanBeMadeOfForeignQueuesAlone(t *testing.T) {
	inShop(t, func(t *testing.T, w *testworld.World) {
		seen := []*testworld.Seen{{}, {}}
		ps := []*started{shopProcessor(w, "p", seen[0]), shopProcessor(w, "q", seen[1])}
		time.Sleep(time.Minute)
		const all = 400
		putOrders(w, all)
		w.Within(2*time.Minute, "all are done", func() bool { return seen[0].Tasks()+seen[1].Tasks() == all })
		w.Within(time.Minute, "nothing is left", func() bool { return inForeign(w) == 0 })
		var forwarded, foreign, recorded int64
		for _, p := range ps {
			s := p.End()
			forwarded, foreign, recorded = forwarded+s.Forwarded, foreign+s.Foreign, recorded+s.Recorded
		}
		checkOrders(t, all, seen...)
		if len(seen[0].Order) == 0 || len(seen[1].Order) == 0 || forwarded == 0 || foreign != all || recorded != all {
			t.Errorf("%d and %d, %d forwarded, %d foreign, %d recorded", len(seen[0].Order), len(seen[1].Order), forwarded, foreign, recorded)
		}
	})
}

// C5: copies of a message that lost answers make are one task, with a key too.
func TestMessagesOfForeignQueuesAreDoneOnceWhateverAnswersAreLost(t *testing.T) {
	inShop(t, func(t *testing.T, w *testworld.World) {
		seen := []*testworld.Seen{{}, {}}
		ps := []*started{shopProcessor(w, "p", seen[0]), shopProcessor(w, "q", seen[1])}
		time.Sleep(time.Minute)
		var lost []*azsim.Injection
		for _, instance := range []string{"p", "q"} {
			for _, op := range []string{"DeleteMessage", "PutMessage", "GetMessages"} {
				lost = append(lost, w.Fault(azsim.Rule{Instance: instance, Fault: azsim.AnswerAfter, Every: 3, First: 60}, op))
			}
			lost = append(lost, w.Fault(azsim.Rule{Instance: instance, Fault: azsim.FailBefore, Every: 2, First: 60}, "DeleteMessage"))
		}
		const all = 300
		putOrders(w, all)
		w.Within(5*time.Minute, "all are done", func() bool { return seen[0].Tasks()+seen[1].Tasks() == all })
		w.Within(10*time.Minute, "nothing is left", func() bool { return inForeign(w)+inShopQueues(w) == 0 })
		endEach(ps)
		checkOrders(t, all, seen...)
		for _, of := range lost {
			if of.Hits() == 0 {
				t.Errorf("none was lost: %v", of)
			}
		}
	})
}

// The key is the workload's: a processor whose file names another one would look for messages in
// segments whose ledgers do not know them.
func TestTheKeyOfForeignMessagesIsPinned(t *testing.T) {
	inShop(t, func(t *testing.T, w *testworld.World) {
		first := shopProcessor(w, "p", &testworld.Seen{})
		time.Sleep(10 * time.Second)
		first.End()
		cfg := shop(w, "q")
		cfg.ForeignKey = "n"
		p, err := processor.New(cfg, &testworld.Seen{}, processor.Options{UntilIdle: 30 * time.Second})
		proof.Must(t, err)
		_, err = p.Run(t.Context())
		mismatch, ok := errors.AsType[*pump.MismatchError](err)
		if !ok || mismatch.Field != "foreign.key" {
			t.Fatalf("%v", err)
		}
		cfg.ForeignKey = ""
		seen := &testworld.Seen{}
		p, err = processor.New(cfg, seen, processor.Options{UntilIdle: 30 * time.Second})
		proof.Must(t, err)
		putOrders(w, 20)
		_, err = p.Run(t.Context())
		proof.Must(t, err)
		checkOrders(t, 20, seen)
	})
}

// A workload that is there reads a foreign queue once an operator says so; its deletion leaves the
// queue, and the messages in it.
func TestAForeignQueueIsAddedAndOutlivesItsWorkload(t *testing.T) {
	inShop(t, func(t *testing.T, w *testworld.World) {
		cfg := shop(w, "p")
		cfg.Accounts[0].Foreign = nil
		seen := &testworld.Seen{}
		p, err := processor.New(cfg, seen, processor.Options{Make: true})
		proof.Must(t, err)
		running := testworld.Start(w.T, p)
		time.Sleep(30 * time.Second)
		putOrders(w, 30)
		time.Sleep(time.Minute)
		if n := w.Count("accounta", "orders"); n != 20 || seen.Tasks() != 10 {
			t.Fatalf("%d are left of 20, %d done", n, seen.Tasks())
		}
		change, err := accounts.Add(t.Context(), shop(w, "operator"), "accounta")
		if err != nil || !change.Changed {
			t.Fatalf("%+v, %v", change, err)
		}
		if again, err := accounts.Add(t.Context(), shop(w, "operator"), "accounta"); err != nil || again.Changed {
			t.Fatalf("%+v, %v", again, err)
		}
		w.Within(time.Minute, "all are done", func() bool { return seen.Tasks() == 30 })
		uses, err := accounts.List(t.Context(), shop(w, "operator"))
		if err != nil || uses[0].Queues != 2 || !slices.Equal(uses[0].Foreign, []string{"orders"}) || uses[0].State != accounts.Active {
			t.Fatalf("%+v, %v", uses, err)
		}
		running.End()
		checkOrders(t, 30, seen)
		putOrders(w, 30)
		gone, err := workloads.Delete(t.Context(), shop(w, "operator"), workloads.Options{})
		if err != nil || !gone.Deleted || !slices.Equal(gone.Foreign, []string{"accounta/orders", "accountb/invoices"}) {
			t.Fatalf("%+v, %v", gone, err)
		}
		proof.Same(t, inForeign(w), 30, "messages are left")
		if _, err := w.Queue("accounta", "shop-00").Count(t.Context()); !queues.NotThere(err) {
			t.Errorf("a queue of the workload is still there: %v", err)
		}
	})
}

// A queue that is not there is said, and made by no process that would read it.
func TestAForeignQueueIsNotMadeByThoseWhoReadIt(t *testing.T) {
	testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		seen := &testworld.Seen{}
		p := shopProcessor(w, "p", seen)
		time.Sleep(time.Minute)
		for _, queue := range []string{"accounta/orders", "accountb/invoices"} {
			if w.Logged(queue) == 0 {
				t.Errorf("nothing is said of %s", queue)
			}
		}
		proof.Must(t, proof.ErrOf(accounts.Add(t.Context(), shop(w, "operator"), "accounta")))
		for account, queue := range map[string]string{"accounta": "orders", "accountb": "invoices"} {
			if _, err := w.Queue(account, queue).Count(t.Context()); !queues.NotThere(err) {
				t.Errorf("%s/%s: %v", account, queue, err)
			}
		}
		makeForeign(w)
		putOrders(w, 10)
		w.Within(5*time.Minute, "all are done", func() bool { return seen.Tasks() == 10 })
		p.End()
		checkOrders(t, 10, seen)
	})
}
