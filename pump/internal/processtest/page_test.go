package processtest

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
)

var pageURL = regexp.MustCompile(`http://\S+/page/`)

// page is the address of the page that a process serves alone.
func (p *process) page() string {
	p.t.Helper()
	p.until("it prints the page's address", func() bool { return pageURL.MatchString(p.out.String()) })
	return pageURL.FindString(p.out.String())
}

// watchUntil watches the page that a process serves until a text has come.
func watchUntil(p *process, text string) {
	p.t.Helper()
	w := watchPage(p.t, p.page())
	defer w.leave()
	p.until("the stream has "+text, func() bool { return w.has(text) })
}

// watcher is one who watches a page.
type watcher struct {
	leave  context.CancelFunc
	events chan string // as they come; the name of each, a space and its data
	seen   map[string]time.Duration
	last   map[string]string
}

func watchPage(t *testing.T, url string) *watcher {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watcher{leave: cancel, events: make(chan string, 1024), seen: map[string]time.Duration{}, last: map[string]string{}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"events", nil)
	must(t, err)
	began := time.Now()
	answer, err := http.DefaultClient.Do(r)
	must(t, err)
	go func() {
		defer answer.Body.Close()
		defer close(w.events)
		lines := bufio.NewScanner(answer.Body)
		lines.Buffer(nil, 16<<20)
		name := ""
		for lines.Scan() {
			if after, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				name = after
			} else if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				w.events <- fmt.Sprintf("%d %s %s", time.Since(began).Microseconds(), name, data)
			}
		}
	}()
	return w
}

// take takes what has come by now.
func (w *watcher) take() {
	for {
		select {
		case e, ok := <-w.events:
			if !ok {
				return
			}
			at, rest, _ := strings.Cut(e, " ")
			name, data, _ := strings.Cut(rest, " ")
			if _, before := w.seen[name]; !before {
				us, _ := strconv.Atoi(at)
				w.seen[name] = time.Duration(us) * time.Microsecond
			}
			w.last[name] = data
		default:
			return
		}
	}
}

func (w *watcher) has(text string) bool {
	w.take()
	for _, data := range w.last {
		if strings.Contains(data, text) {
			return true
		}
	}
	return false
}

// fleet writes the rows of processors that there are not.
type fleet struct {
	table  storage.Table
	member storage.Entity // that of a real one
	owners []storage.Entity
	names  []string
	of     []int // by segment
	beats  int64
}

func fleetName(i int) string { return fmt.Sprintf("worker-%03d", i) }

// newFleet takes the rows of a real processor, which is gone, for a pattern.
func newFleet(t *testing.T, table storage.Table, workload, real string, processors, segments int) *fleet {
	t.Helper()
	f := &fleet{table: table, of: make([]int, segments)}
	for e, err := range table.Query(t.Context(), storage.Query{Partition: workload}) {
		must(t, err)
		switch {
		case e.Properties["Owners0"] != nil:
			f.owners = append(f.owners, e)
		case e.Properties["Instance"] == real && e.Properties["Incarnation"] != nil:
			f.member = e
		}
	}
	if f.member.Row == "" || len(f.owners)*512 < segments {
		t.Fatalf("the rows of %q are not there: %d rows of owners", real, len(f.owners))
	}
	for i := range processors {
		f.names = append(f.names, fleetName(i))
	}
	for s := range f.of {
		f.of[s] = s % processors
	}
	return f
}

func (f *fleet) write(t *testing.T, e storage.Entity) {
	t.Helper()
	must(t, errOf(f.table.Write(t.Context(), storage.Write{Mode: storage.Upsert, Entity: e})))
}

// beat writes the row of each member, and those of owners.
func (f *fleet) beat(t *testing.T, rng *rand.Rand) {
	t.Helper()
	f.beats++
	for i, name := range f.names {
		holds := make([]byte, len(f.of)/8)
		for s, at := range f.of {
			if at == i {
				holds[s/8] |= 1 << (s % 8)
			}
		}
		e := storage.Entity{Partition: f.member.Partition, Row: strings.Replace(f.member.Row, f.member.Properties["Instance"].(string), name, 1), Properties: map[string]any{}}
		for k, v := range f.member.Properties {
			e.Properties[k] = v
		}
		e.Properties["Instance"], e.Properties["Incarnation"], e.Properties["Host"] = name, "x"+name, fmt.Sprintf("vm-%d", i/4)
		e.Properties["Holds"], e.Properties["Beats"], e.Properties["Musters"] = holds, f.beats, false
		e.Properties["Rate"], e.Properties["Seconds"], e.Properties["Pace"] = 20+5*rng.Float64(), 0.05, 0.04
		e.Properties["Tasks"], e.Properties["Queues"] = f.beats*100+int64(i), int64(5)
		e.Properties["Guessed"] = false
		e.Properties["Demand"] = fmt.Sprintf(`{"account%d":%d}`, i%100+1, 20+rng.IntN(200))
		f.write(t, e)
	}
	for i, e := range f.owners {
		next := storage.Entity{Partition: e.Partition, Row: e.Row, Properties: map[string]any{}}
		for k, v := range e.Properties {
			next.Properties[k] = v
		}
		next.Properties["Owners0"] = f.packed(i * 512)
		f.write(t, next)
	}
}

// packed are the owners of 512 segments as their row has them: docs/formats.md.
func (f *fleet) packed(from int) []byte {
	of := f.of[from:min(from+512, len(f.of))]
	text := func(b []byte, s string) []byte { return append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	index, names, entries := map[int]uint64{}, []byte(nil), []byte(nil)
	for _, at := range of {
		if index[at] == 0 {
			index[at] = uint64(len(index) + 1)
			names = text(text(names, f.names[at]), "x"+f.names[at])
		}
		entries = binary.AppendUvarint(binary.AppendUvarint(entries, index[at]), 7)
	}
	out := append(binary.AppendUvarint(nil, uint64(len(index))), names...)
	return append(binary.AppendUvarint(out, uint64(len(of))), entries...)
}

// TestThePageOfALargeWorkload: 200 processors and 1,000 queues, whose rows and messages a generator
// writes. A viewer who opens the page sees its first parts within a second. The process that serves
// it takes a CPU-second a minute at most, and bounded memory. make play WHAT=page-scale measures that for two
// minutes.
func TestThePageOfALargeWorkload(t *testing.T) {
	proof.Only(t)
	processors, accounts, span := sized(40, 200), sized(25, 125), time.Duration(sized(20, 120))*time.Second
	w := newWorldOf(t, azsim.Config{Limits: azsim.NoLimits()}, accounts, 8)
	w.once()
	appendText(t, w.config, fmt.Sprintf("segments: %d\n", sized(1024, 4096)))
	w.fill(4000, "--key", "city", "--admin", "off")
	one := start(t, "processor", "run", "--config", w.config, "--out", os.DevNull, "--concurrency", "1", "--beat", "1s")
	one.until("it owns segments", func() bool {
		var st struct{ Cluster struct{ Missing, Held int } }
		_, body := ask(t, one.admin(), "/state")
		return decodes(body, &st) && st.Cluster.Held > 0 && st.Cluster.Missing == 0
	})
	var st struct{ Instance string }
	_, body := ask(t, one.admin(), "/state")
	decodes(body, &st)
	one.kill()
	f := newFleet(t, w.account(w.names[0]).Table(row.TableName), "test", st.Instance, processors, sized(1024, 4096))
	gone := storage.Write{Mode: storage.Remove, Entity: storage.Entity{Partition: f.member.Partition, Row: f.member.Row}}
	must(t, errOf(f.table.Write(t.Context(), gone)))
	rng := rand.New(rand.NewPCG(1, 2))
	f.beat(t, rng)
	for i, name := range w.names {
		for q := range 8 {
			for range rng.IntN(4) {
				if _, err := w.account(name).Queue(fmt.Sprintf("test-%02d", q)).Put(t.Context(), []byte("m"), 0); err != nil {
					t.Fatal(i, err)
				}
			}
		}
	}

	server := start(t, "distributor", "page", "--config", w.config)
	seen := watchPage(t, server.page())
	defer seen.leave()
	server.until("all parts have come", func() bool {
		seen.take()
		return seen.last["queues"] != "" && seen.last["owners"] != "" && seen.last["processes"] != ""
	})
	if first := max(seen.seen["head"], seen.seen["owners"], seen.seen["processes"], seen.seen["accounts"]); first > time.Second && *scale {
		t.Errorf("the first figures came after %v", first)
	} else {
		t.Logf("first figures after %v", first.Round(time.Millisecond))
	}
	if want := fmt.Sprintf(`"processors":%d,`, processors); !seen.has(want) {
		t.Errorf("the head has no %s: %.600s", want, seen.last["head"])
	}
	time.Sleep(5 * time.Second) // what it takes to begin is no part of a minute
	cpu, began := server.cpu(), time.Now()
	for time.Since(began) < span {
		for range 20 { // hand-overs
			f.of[rng.IntN(len(f.of))] = rng.IntN(processors)
		}
		f.beat(t, rng)
		time.Sleep(4 * time.Second)
		seen.take()
	}
	took := (server.cpu() - cpu).Seconds() / time.Since(began).Minutes()
	rss, most := server.memory()
	t.Logf("%d processors, %d queues, %d segments: %.2f CPU-seconds a minute, %d MiB of memory, %d MiB at most",
		processors, 8*accounts, len(f.of), took, rss>>20, most>>20)
	if *scale && took > 1 {
		t.Errorf("%.2f CPU-seconds a minute", took)
	}
	if most > 256<<20 {
		t.Errorf("%d MiB of memory", most>>20)
	}
	h, want := struct{ Totals struct{ Looked int } }{}, min(8*accounts, int(span.Seconds())*5)
	all := func() bool {
		return decodes(seen.last["head"], &h) && h.Totals.Looked >= want && seen.handOver()
	}
	if *scale && !all() { // what it does in the time is measured by make play WHAT=page-scale
		t.Errorf("%d queues were looked at, want %d; %.300s", h.Totals.Looked, want, seen.last["owners"])
	}
	server.until("it has looked enough", func() bool { seen.take(); return all() })
}

// handOver reports whether a segment went from one of the fleet to another.
func (w *watcher) handOver() bool {
	return strings.Contains(w.last["owners"], `"from":"worker-`)
}

// cpu is how long a process has computed so far.
func (p *process) cpu() time.Duration {
	p.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		p.t.Skip("how much a process computes can be read on Linux only")
	}
	fields := strings.Fields(string(stat)[strings.LastIndex(string(stat), ")")+1:])
	ticks := 0
	for _, i := range []int{11, 12} { // user and system, in hundredths of a second (proc_pid_stat(5))
		n, _ := strconv.Atoi(fields[i])
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// memory is how many bytes a process has in memory, and had at most.
func (p *process) memory() (now, most int64) {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	must(p.t, err)
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, ":")
		kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		switch name {
		case "VmRSS":
			now = kib << 10
		case "VmHWM":
			most = kib << 10
		}
	}
	return now, most
}

func decodes(text string, into any) bool { return json.Unmarshal([]byte(text), into) == nil }
