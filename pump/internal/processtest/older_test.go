package processtest

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
)

// beside is a workload of today's programs, and the program of another version beside them.
type beside struct {
	*world
	table storage.Table
}

// besideOlder gives tests of -chaos.older such a workload, with tasks in its queues.
func besideOlder(t *testing.T) (b *beside, run string) {
	t.Parallel()
	if *chaosOlder == "" {
		t.Skip("make play-mixed names the programs of another version")
	}
	b = &beside{world: newWorld(t, 1, 2)}
	b.once()
	b.table = b.account("account1").Table(row.TableName)
	writeTasks(t, b.path("tasks.jsonl"), 40)
	return b, b.sends(b.config, b.path("tasks.jsonl")).Run
}

// older starts a program of the other version.
func (b *beside) older(program string, args ...string) *process {
	return startCommand(b.t, nil, program, filepath.Join(*chaosOlder, program), append(args, "--config", b.config)...)
}

// processor starts an older processor whose handler writes its tasks into a file.
func (b *beside) processor(args ...string) *process {
	return b.older("processor", append([]string{"run", "--out", b.path("done.jsonl"), "--beat", "500ms", "--lease", "3s"}, args...)...)
}

// TestAnOlderVersionLeavesWhatANewerOneWrote plants an envelope and rows of newer formats. The older
// processor says what it met and leaves it, and does all when it is of its own format again.
func TestAnOlderVersionLeavesWhatANewerOneWrote(t *testing.T) {
	for what, c := range map[string]struct {
		partition, row string
		ends           bool // the processor does not start
	}{
		"workload":    {"test", "workload", true},
		"owners":      {"test", "owner.", false},
		"run":         {"test.runs", "RUN", false},
		"ledger head": {"test.ledger.00", "head.", false},
		"envelope":    {},
	} {
		t.Run(what, func(t *testing.T) {
			b, run := besideOlder(t)
			if what == "ledger head" || what == "owners" { // there are some when a processor was here
				b.processor("--until-idle", "1s").succeeds()
				run = b.sends(b.config, b.path("tasks.jsonl")).Run
			}
			mend, says := b.plantEnvelope, "message of a newer format"
			if c.row != "" {
				says = "is 99: this program reads "
				mend = func() func() { return b.plantRows(c.partition, strings.Replace(c.row, "RUN", run, 1)) }
			}
			undo := mend()
			before := b.sim.Stats().Count("", "")
			p := b.processor()
			p.says(says)
			if c.ends {
				proof.Same(t, p.wait(), 1, "status", p.cmd.ProcessState)
			} else {
				time.Sleep(5 * time.Second)
				stop(p)
			}
			if n := b.sim.Stats().Count("", "") - before; n > 1500 {
				t.Errorf("%d requests in five seconds", n)
			}
			undo()
			b.sim.SetClockOffset(10 * time.Minute) // what was put back is there again
			b.processor("--until-idle", "1s").succeeds()
			requireEachOnceNamed(t, b.didOf(run), 40)
			_, poison := b.inQueues()
			proof.Same(t, poison, 0, "messages in quarantine")
		})
	}
}

// didOf is what is written of a run's tasks.
func (b *beside) didOf(run string) (did []done) {
	for _, d := range readDone(b.t, b.path("done.jsonl")) {
		if d.Run == run {
			did = append(did, d)
		}
	}
	return did
}

// plantRows has rows be of a newer format, until undone: then each is what it was.
func (b *beside) plantRows(partition, begins string) (undo func()) {
	ctx, was := b.t.Context(), map[string]storage.Entity{}
	for e, err := range b.table.Query(ctx, storage.Query{Partition: partition, From: begins, To: begins + "~"}) {
		must(b.t, err)
		was[e.Row] = e
		_, err = b.table.Write(ctx, storage.Write{Mode: storage.Merge, Entity: storage.Entity{
			Partition: partition, Row: e.Row, ETag: e.ETag, Properties: map[string]any{row.FormatProperty: int64(99), "Novel": "yes"},
		}})
		must(b.t, err)
	}
	if len(was) == 0 {
		b.t.Fatalf("no row begins with %s/%s", partition, begins)
	}
	return func() {
		for key, e := range was {
			now, err := b.table.Read(ctx, partition, key)
			must(b.t, err)
			if now.Properties["Novel"] == nil || now.Properties[row.FormatProperty] != int64(99) {
				b.t.Errorf("row %s/%s was written over: %v", partition, key, now.Properties)
			}
			e.ETag = now.ETag
			must(b.t, errOf(b.table.Write(ctx, storage.Write{Mode: storage.Replace, Entity: e})))
		}
	}
}

// plantEnvelope puts a message of a newer format; undone, it must be there, and goes.
func (b *beside) plantEnvelope() (undo func()) {
	ctx, q := b.t.Context(), b.account("account1").Queue("test-00")
	seen, err := q.Peek(ctx, 1)
	must(b.t, err)
	bytes, err := base64.StdEncoding.DecodeString(string(seen[0].Text))
	must(b.t, err)
	bytes[21] = codec.Version + 1
	head := bytes[:12+int(bytes[10])+int(bytes[11])<<8]
	binary.LittleEndian.PutUint32(head[len(head)-4:], crc32.ChecksumIEEE(head[:len(head)-4]))
	text := base64.StdEncoding.EncodeToString(bytes)
	must(b.t, errOf(q.Put(ctx, []byte(text), 0)))
	return func() {
		b.sim.SetClockOffset(5 * time.Minute)
		ms, err := q.Get(ctx, storage.MaxGet, time.Minute)
		must(b.t, err)
		if len(ms) != 1 || string(ms[0].Text) != text {
			b.t.Fatalf("%d messages are left, want the one of a newer format", len(ms))
		}
		must(b.t, q.Delete(ctx, ms[0].Receipt))
	}
}

// TestAnOlderVersionWorksOnWhatANewerOneUses has today's programs use what the other version may not
// know: settings, limits by key, results. No task is lost or done twice, and its commands work. What
// becomes of settings and results it logs.
func TestAnOlderVersionWorksOnWhatANewerOneUses(t *testing.T) {
	b, _ := besideOlder(t)
	const tasks = 200
	b.processor("--until-idle", "1s").succeeds() // of the run without keys
	writeTasks(t, b.path("keyed.jsonl"), tasks)
	var s sent
	p := start(t, "distributor", "run", "--config", b.config, "--input", b.path("keyed.jsonl"), "--key", "city", "--id", "id", "--pack", "1", "--json", "--quiet")
	p.succeeds()
	p.summary(&s)
	start(t, "distributor", "workload", "set", "max-attempts=9", "--config", b.config).succeeds()
	newer := start(t, "processor", "run", "--config", b.config, "--exec-each", "cat", "--results", "--per-key-concurrent", "1", "--max-rate", "20", "--beat", "500ms", "--lease", "3s")
	newer.until("it has done some", func() bool { return b.results(s.Run) > 20 })
	stop(newer)
	had := b.results(s.Run)
	b.processor("--until-idle", "2s").succeeds()
	proof.Same(t, requireEachOnceNamed(t, b.didOf(s.Run), tasks-had), 0, "tasks were done twice")
	for _, args := range [][]string{{"status"}, {"runs", "list"}, {"workload", "show"}, {"doctor"}, {"workload", "pause"}, {"workload", "resume"}} {
		p := b.older("distributor", args...)
		proof.Same(t, p.wait(), 0, args, p.log.String())
	}
	t.Logf("the older one did %d tasks; of %d results %d are left; the settings: %s", tasks-had, had, b.results(s.Run), b.prints("distributor", "workload", "set"))
}

// results is how many tasks of a run have results.
func (b *beside) results(run string) (n int) {
	p := start(b.t, "distributor", "results", run, "--config", b.config)
	p.succeeds()
	return strings.Count(p.out.String(), "\n")
}
