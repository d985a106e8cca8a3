package processtest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/shardmap"
)

var foreignMessages = flag.Int("foreign.messages", 3000, "how many messages of other programs are moved under kill -9")

// newShop is a world with a queue "orders" in its first account that other programs put into, and
// with no workload yet.
func newShop(t *testing.T, accounts int) *world {
	t.Helper()
	w := newWorld(t, accounts, 2)
	text := strings.Replace(readText(t, w.config), "workload: test\n", "workload: test\ndelivery: once\nsegments: 64\nforeign: {key: city}\n", 1)
	writeText(t, w.config, strings.Replace(text, "    queues: 2\n", "    queues: 2\n    foreignQueues: [orders]\n", 1))
	must(t, w.account(w.names[0]).Queue("orders").Create(t.Context()))
	return w
}

// exampleOf gives the example of a language in docs/distributor.md.
func exampleOf(t *testing.T, language string) string {
	t.Helper()
	doc, err := proof.ReadFile("../../..", "../../../docs/distributor.md")
	must(t, err)
	for _, b := range doc.Blocks() {
		if b.Language == language && strings.Contains(b.Text(), "orders") {
			return b.Text()
		}
	}
	t.Fatalf("docs/distributor.md has no example in %s", language)
	return ""
}

// producer puts a message into orders with the SDK of a language, as docs/distributor.md shows it. It
// gives why it cannot.
func (w *world) producer(language string) (missing string) {
	w.t.Helper()
	const modules = "../../storage/storagetest/azurite/node_modules"
	const python = "/usr/bin/python3" // the one that has Debian's packages
	dir := w.t.TempDir()
	file, cmd := "", &exec.Cmd{}
	switch language {
	case "go":
		file = filepath.Join(dir, "main.go")
		cmd = exec.Command("go", "run", file)
	case "js":
		if _, err := os.Stat(modules + "/@azure/storage-queue"); err != nil {
			return "make azurite installs the SDK of JavaScript"
		}
		there, err := filepath.Abs(modules)
		if err == nil {
			err = os.Symlink(there, filepath.Join(dir, "node_modules"))
		}
		must(w.t, err)
		file = filepath.Join(dir, "put.mjs")
		cmd = exec.Command("node", file)
	case "python":
		if exec.Command(python, "-c", "import azure.storage.queue").Run() != nil {
			return "apt-get install python3-azure-storage installs the SDK of Python"
		}
		file = filepath.Join(dir, "put.py")
		cmd = exec.Command(python, file)
	}
	writeText(w.t, file, exampleOf(w.t, language))
	cmd.Env = append(os.Environ(), "SHOP1="+w.server.ConnectionString(w.names[0]))
	startAs(w.t, language, cmd).succeeds()
	return ""
}

func (w *world) orders() *azqueue.QueueClient {
	w.t.Helper()
	q, err := azqueue.NewQueueClientFromConnectionString(w.server.ConnectionString(w.names[0]), "orders", nil)
	must(w.t, err)
	return q
}

func base64Of(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// order is what a child is given.
type order struct {
	Run     string
	Segment uint32
	Key     string
	Foreign string
	Body    json.RawMessage
}

// TestWhatEachProducerPutsReachesAChildAsJSON runs the examples of docs/distributor.md with the real
// SDKs, and puts what Functions are documented to put, from JSON with all that XML and JSON escape.
func TestWhatEachProducerPutsReachesAChildAsJSON(t *testing.T) {
	t.Parallel()
	w := newShop(t, 2)
	const strange = `{"city":"<Malmö> & \"Co\" 'x' \u0001 🙂","from":"all that is escaped","text":"a\r\nb\t]]> &amp; 漢字"}`
	want := map[string]string{
		"Go": "Oslo", "Functions": "Oslo", "all that is escaped": "<Malmö> & \"Co\" 'x' \x01 🙂", "the same in base64": "<Malmö> & \"Co\" 'x' \x01 🙂",
	}
	for language, from := range map[string]string{"js": "JavaScript", "python": "Python"} {
		if missing := w.producer(language); missing != "" {
			t.Logf("left out: %s", missing)
			continue
		}
		want[from] = "Oslo"
	}
	w.producer("go")
	for _, text := range []string{
		base64Of(`{"city":"Oslo","from":"Functions"}`), strange,
		base64Of(strings.Replace(strange, "all that is escaped", "the same in base64", 1)),
	} {
		must(t, proof.ErrOf(w.orders().EnqueueMessage(t.Context(), text, nil)))
	}
	seen := w.path("seen.jsonl")
	child := fmt.Sprintf(`python3 -c 'import json,sys
for line in sys.stdin:
  open(%q,"a").write(line)
  print(json.dumps({"seq":json.loads(line)["seq"],"ok":True}),flush=True)'`, seen)
	start(t, "processor", "run", "--config", w.config, "--make-workload", "--exec", child, "--children", "1", "--until-idle", "3s").succeeds()
	got := map[string]string{}
	for line := range strings.Lines(readText(t, seen)) {
		var o order
		var body struct{ City, From, Text string }
		must(t, json.Unmarshal([]byte(line), &o))
		if err := json.Unmarshal(o.Body, &body); err != nil {
			t.Errorf("the child got %s: %v", line, err)
			continue
		}
		got[body.From] = o.Key
		if o.Key != body.City || o.Segment != shardmap.Segment([]byte(body.City), 64) || !strings.HasPrefix(o.Foreign, "orders/") {
			t.Errorf("the child got %s", line)
		}
		if body.Text != "" && body.Text != "a\r\nb\t]]> &amp; 漢字" {
			t.Errorf("the text became %q", body.Text)
		}
	}
	proof.Same(t, fmt.Sprint(got), fmt.Sprint(want), "the child", got, want)
	proof.Same(t, w.messages(w.names[0], "orders"), 0, "messages are left")
}

// TestMessagesOfOtherProgramsAreRecordedOnceUnderKills moves messages out of one foreign queue into
// two accounts while processors are killed with signal 9, and counts them in the ledger's
// transactions: each counts once. make play WHAT=foreign does it with 100,000.
func TestMessagesOfOtherProgramsAreRecordedOnceUnderKills(t *testing.T) {
	proof.Only(t)
	t.Parallel()
	all := *foreignMessages
	w := newShop(t, 2)
	args := []string{"run", "--config", w.config, "--make-workload", "--count-by", "city", "--sum", "n", "--visibility", "5s", "--beat", "1s", "--json"}
	const hands = 3
	var crew [hands]*process
	for i := range crew {
		crew[i] = start(t, "processor", args...)
	}
	began := time.Now()
	put := make(chan error, 1)
	go func() { put <- w.putOrders(t.Context(), all) }()
	kills := 0
	dice := rand.New(rand.NewPCG(13, 2))
	for left, quiet := int64(all), 0; quiet < 2; {
		if time.Since(began) > 6*patience {
			t.Fatalf("%d messages are left", left)
		}
		pause := time.Duration(1500+dice.IntN(1500)) * time.Millisecond
		if all > 10_000 { // else the processors would do little but take over
			pause *= 3
		}
		time.Sleep(pause)
		select {
		case err := <-put:
			must(t, err)
			put = nil
		default:
		}
		left = w.inAll()
		t.Logf("after %v and %d kills: %d messages are in the queues", time.Since(began).Round(time.Second), kills, left)
		if put == nil && left == 0 {
			quiet++
			continue
		}
		quiet = 0
		i := dice.IntN(hands)
		crew[i].kill()
		crew[i] = start(t, "processor", args...)
		kills++
	}
	took := time.Since(began)
	for _, p := range crew {
		p.kill()
	}
	counts := start(t, "distributor", "counts", "--config", w.config, "--json")
	counts.succeeds()
	w.checkCounts(counts.out.String(), all)
	t.Logf("%d messages of other programs under %d kills in %v: %.0f a second, each recorded once", all, kills, took.Round(time.Second), rate(all, took))
	if kills < 3 {
		t.Errorf("only %d kills", kills)
	}
}

const towns = 97

// putOrders puts messages as Functions and as today's SDKs do, in turn.
func (w *world) putOrders(ctx context.Context, all int) error {
	q := w.orders()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for n := range all {
		g.Go(func() error {
			text := fmt.Sprintf(`{"city":"town %d","n":%d}`, n%towns, n)
			if n%2 == 1 {
				text = base64Of(text)
			}
			_, err := q.EnqueueMessage(ctx, text, nil)
			return err
		})
	}
	return g.Wait()
}

// inAll is how many messages are in all queues.
func (w *world) inAll() (n int64) {
	w.t.Helper()
	for _, name := range w.names {
		queues, err := w.account(name).Queues(w.t.Context(), "")
		must(w.t, err)
		n += w.messages(name, queues...)
	}
	return n
}

// checkCounts compares what the ledger counted with what was put.
func (w *world) checkCounts(text string, all int) {
	w.t.Helper()
	want := map[string][2]int64{}
	for n := range all {
		key := fmt.Sprintf("town %d", n%towns)
		want[key] = [2]int64{want[key][0] + 1, want[key][1] + int64(n)}
	}
	var wrong []string
	for line := range strings.Lines(text) {
		var c struct {
			Key        string
			Count, Sum int64
		}
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			w.t.Fatalf("%q: %v", line, err)
		}
		if want[c.Key] != [2]int64{c.Count, c.Sum} {
			wrong = append(wrong, fmt.Sprintf("%s: %d with the sum %d, want %v", c.Key, c.Count, c.Sum, want[c.Key]))
		}
		delete(want, c.Key)
	}
	slices.Sort(wrong)
	if len(wrong) > 0 || len(want) > 0 {
		w.t.Errorf("counts are wrong: %q; %d keys are missing", wrong, len(want))
	}
}
