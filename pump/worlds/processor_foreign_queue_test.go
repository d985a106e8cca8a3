package worlds

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/workloads"
	"github.com/queuepump/queuepump/shardmap"
)

// shop is a configuration of a workload that no distributor has made, with queues that other
// programs put into: orders in the first account, invoices in the second.
func (w *world) shop(instance string) pump.Config {
	cfg := w.Config(instance, 2)
	cfg.Workload, cfg.Segments, cfg.ForeignKey = "shop", 64, "city"
	cfg.Accounts[0].Foreign, cfg.Accounts[1].Foreign = []string{"orders"}, []string{"invoices"}
	return cfg
}

func (w *world) shopProcessor(instance string, h pump.Handler) *started {
	w.T.Helper()
	p, err := processor.New(w.shop(instance), h, processor.Options{Make: true})
	must(w.T, err)
	return w.start(p)
}

// makeForeign makes the queues of the other programs.
func (w *world) makeForeign() {
	w.T.Helper()
	for account, queue := range map[string]string{"accounta": "orders", "accountb": "invoices"} {
		must(w.T, w.Queue(account, queue).Create(w.T.Context()))
	}
}

func (w *world) inForeign() int {
	return w.Count("accounta", "orders") + w.Count("accountb", "invoices")
}

func (w *world) inShopQueues() (n int) {
	for _, account := range []string{"accounta", "accountb"} {
		n += w.Count(account, "shop-00") + w.Count(account, "shop-01")
	}
	return n
}

func order(i int) []byte { return fmt.Appendf(nil, `{"city":"city %d","n":%d}`, i%17, i) }

// putOrders puts so many messages into the foreign queues, every other one in base64.
func (w *world) putOrders(all int) {
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
func inShop(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	inOnceWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		w.makeForeign()
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
	inShop(t, func(t *testing.T, w *world) {
		seen := []*testworld.Seen{{}, {}}
		var ps []*started
		for i, instance := range []string{"p", "q"} {
			cfg := w.shop(instance)
			cfg.ForeignSplit = true
			p, err := processor.New(cfg, seen[i], processor.Options{Make: true})
			must(t, err)
			ps = append(ps, w.start(p))
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
		w.Within(time.Minute, "nothing is left", func() bool { return w.inForeign()+w.inShopQueues() == 0 })
		for _, p := range ps {
			p.End()
		}
		checkOrders(t, arrays*each, seen...)
	})
}

// C5: a workload of foreign queues alone. Each message reaches the owner of its key's segment as
// JSON, once; the processors make the workload; nothing is put into the foreign queues.
func TestAWorkloadCanBeMadeOfForeignQueuesAlone(t *testing.T) {
	inShop(t, func(t *testing.T, w *world) {
		seen := []*testworld.Seen{{}, {}}
		ps := []*started{w.shopProcessor("p", seen[0]), w.shopProcessor("q", seen[1])}
		time.Sleep(time.Minute)
		const all = 400
		w.putOrders(all)
		w.Within(2*time.Minute, "all are done", func() bool { return seen[0].Tasks()+seen[1].Tasks() == all })
		w.Within(time.Minute, "nothing is left", func() bool { return w.inForeign() == 0 })
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
	inShop(t, func(t *testing.T, w *world) {
		seen := []*testworld.Seen{{}, {}}
		ps := []*started{w.shopProcessor("p", seen[0]), w.shopProcessor("q", seen[1])}
		time.Sleep(time.Minute)
		var lost []*azsim.Injection
		for _, instance := range []string{"p", "q"} {
			for _, op := range []string{"DeleteMessage", "PutMessage", "GetMessages"} {
				lost = append(lost, w.Fault(azsim.Rule{Instance: instance, Fault: azsim.AnswerAfter, Every: 3, First: 60}, op))
			}
			lost = append(lost, w.Fault(azsim.Rule{Instance: instance, Fault: azsim.FailBefore, Every: 2, First: 60}, "DeleteMessage"))
		}
		const all = 300
		w.putOrders(all)
		w.Within(5*time.Minute, "all are done", func() bool { return seen[0].Tasks()+seen[1].Tasks() == all })
		w.Within(10*time.Minute, "nothing is left", func() bool { return w.inForeign()+w.inShopQueues() == 0 })
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
	inShop(t, func(t *testing.T, w *world) {
		first := w.shopProcessor("p", &testworld.Seen{})
		time.Sleep(10 * time.Second)
		first.End()
		cfg := w.shop("q")
		cfg.ForeignKey = "n"
		p, err := processor.New(cfg, &testworld.Seen{}, processor.Options{UntilIdle: 30 * time.Second})
		must(t, err)
		_, err = p.Run(t.Context())
		mismatch, ok := errors.AsType[*pump.MismatchError](err)
		if !ok || mismatch.Field != "foreign.key" {
			t.Fatalf("%v", err)
		}
		cfg.ForeignKey = ""
		seen := &testworld.Seen{}
		if p, err = processor.New(cfg, seen, processor.Options{UntilIdle: 30 * time.Second}); err != nil {
			t.Fatal(err)
		}
		w.putOrders(20)
		if _, err = p.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		checkOrders(t, 20, seen)
	})
}

// A workload that is there reads a foreign queue once an operator says so; its deletion leaves the
// queue, and the messages in it.
func TestAForeignQueueIsAddedAndOutlivesItsWorkload(t *testing.T) {
	inShop(t, func(t *testing.T, w *world) {
		cfg := w.shop("p")
		cfg.Accounts[0].Foreign = nil
		seen := &testworld.Seen{}
		p, err := processor.New(cfg, seen, processor.Options{Make: true})
		must(t, err)
		running := w.start(p)
		time.Sleep(30 * time.Second)
		w.putOrders(30)
		time.Sleep(time.Minute)
		if n := w.Count("accounta", "orders"); n != 20 || seen.Tasks() != 10 {
			t.Fatalf("%d are left of 20, %d done", n, seen.Tasks())
		}
		change, err := accounts.Add(t.Context(), w.shop("operator"), "accounta")
		if err != nil || !change.Changed {
			t.Fatalf("%+v, %v", change, err)
		}
		if again, err := accounts.Add(t.Context(), w.shop("operator"), "accounta"); err != nil || again.Changed {
			t.Fatalf("%+v, %v", again, err)
		}
		w.Within(time.Minute, "all are done", func() bool { return seen.Tasks() == 30 })
		uses, err := accounts.List(t.Context(), w.shop("operator"))
		if err != nil || uses[0].Queues != 2 || !slices.Equal(uses[0].Foreign, []string{"orders"}) || uses[0].State != accounts.Active {
			t.Fatalf("%+v, %v", uses, err)
		}
		running.End()
		checkOrders(t, 30, seen)
		w.putOrders(30)
		gone, err := workloads.Delete(t.Context(), w.shop("operator"), workloads.Options{})
		if err != nil || !gone.Deleted || !slices.Equal(gone.Foreign, []string{"accounta/orders", "accountb/invoices"}) {
			t.Fatalf("%+v, %v", gone, err)
		}
		if n := w.inForeign(); n != 30 {
			t.Errorf("%d messages are left, want 30", n)
		}
		if _, err := w.Queue("accounta", "shop-00").Count(t.Context()); !queues.NotThere(err) {
			t.Errorf("a queue of the workload is still there: %v", err)
		}
	})
}

// A message of a foreign queue that was brought home, and whose delete was lost, may come again
// when its reader can read the queue again. The owner of its segment is another process, whose
// queues all answer. It must know the message's name until then.
func TestNoNameGoesForItsAgeWhileAnotherProcessorCannotReadAForeignQueue(t *testing.T) {
	inOnceWorld(t, 2, 1, nil, func(t *testing.T, w *world) {
		foreign := []string{"orders-1", "orders-2"} // neighbours by name have different readers
		m := w.ChangeMap(func(shards []shardmap.Shard) []shardmap.Shard {
			for _, queue := range foreign {
				must(t, w.Queue("accountb", queue).Create(t.Context()))
				shards = append(shards, shardmap.Shard{Account: "accountb", Queue: queue, State: shardmap.Foreign})
			}
			return shards
		})
		w.fillNames(ledger.MaxForeign)
		for range 3 {
			account, queue := w.Home(testworld.Greeted)
			w.PutText(account, queue, testworld.Greeting)
		}
		h := &testworld.Seen{}
		ps := []*started{w.start(w.processorOf("p", h, processor.Options{Grace: 5 * time.Second})), w.start(w.processorOf("q", h, processor.Options{Grace: 5 * time.Second}))}
		time.Sleep(time.Minute)
		v := w.View()
		var dark, puts *azsim.Injection
		for i, s := range m.Shards {
			switch {
			case s.State != shardmap.Foreign:
			case v.Sweeper(i) != v.Owners[testworld.Greeted].Instance:
				// It is told to slow down, for which no other one takes its place.
				dark = w.Sim.Inject(azsim.Rule{
					Account: s.Account, Object: s.Queue, Fault: azsim.Answer, Operations: []string{"GetMessages"},
					Instance: v.Sweeper(i),
				})
			default: // what waits there is put back again and again, and never anew
				for range 3 {
					w.PutText(s.Account, s.Queue, testworld.Greeting)
				}
				puts = w.Fault(azsim.Rule{Account: s.Account, Object: s.Queue, Fault: azsim.FailBefore}, "PutMessage")
			}
		}
		time.Sleep(2 * namesKept)
		h.Expect(t, 0, 0)
		dark.Remove()
		w.Within(namesKept+10*time.Minute, "all are handled", func() bool { return h.Tasks() == 6 && w.Left() == 0 })
		endEach(ps)
		h.Expect(t, 6, 6)
		if dark.Hits() == 0 || puts.Hits() > 0 {
			t.Errorf("%v; %v", dark, puts)
		}
	})
}

// A queue that is not there is said, and made by no process that would read it.
func TestAForeignQueueIsNotMadeByThoseWhoReadIt(t *testing.T) {
	inOnceWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		seen := &testworld.Seen{}
		p := w.shopProcessor("p", seen)
		time.Sleep(time.Minute)
		for _, queue := range []string{"accounta/orders", "accountb/invoices"} {
			if w.Logged(queue) == 0 {
				t.Errorf("nothing is said of %s", queue)
			}
		}
		if _, err := accounts.Add(t.Context(), w.shop("operator"), "accounta"); err != nil {
			t.Error(err)
		}
		for account, queue := range map[string]string{"accounta": "orders", "accountb": "invoices"} {
			if _, err := w.Queue(account, queue).Count(t.Context()); !queues.NotThere(err) {
				t.Errorf("%s/%s: %v", account, queue, err)
			}
		}
		w.makeForeign()
		w.putOrders(10)
		w.Within(5*time.Minute, "all are done", func() bool { return seen.Tasks() == 10 })
		p.End()
		checkOrders(t, 10, seen)
	})
}
