package operate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/capacity"
	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/pump"
)

// planFlags are the flags of `distributor plan`.
type planFlags struct {
	config    string
	in        capacity.Input
	source    cli.SourceFlags
	file      *configfile.File // what --config names, or an empty one
	taskBytes float64
	ratio     float64
	tasks     int
	delivery  string
	getCosts  string
	priced    string // the currency of the configuration's prices; empty: it has none
	json      bool
}

var planLong = `Say how many accounts, queues, processors, machines and connections a rate of
tasks needs, what it makes of requests and money a day, and what is the
bottleneck. Nothing is asked of any account.

It rests on one line: throughput = handlers x processors / seconds a task takes,
until something shared is full, which is the published limit of a queue or an
account first. Those count messages, so how many tasks fit into a message is
measured: the beginning of --input (or --files, --list, --exec) is packed with the
real codec as a distributor packs it. With --task-bytes alone it is assumed that a
character of message text carries --ratio bytes of task.

Each limit is printed with the tasks a second at which it is full, the lowest
first: that one is the bottleneck, and what follows it says what comes next. Of
everything --headroom is left free. --config, --accounts and --queues ask what is
possible with what there is; the exit status is 1 if that is less than --rate.

The published 2,000 messages/s of a queue are for messages of 1 KiB; Azure does
not promise as much for full ones of 64 KiB, so try it (loadtest) before relying on it.
The CPU of packing and opening is measured on this machine, the handler's is what
--handler-cpu-seconds says. The plan counts no retries, no traffic to other regions,
no storage of what waits in queues, and no CPU of bodies in blobs. What lies in blobs
is as much as in the long run: results until an hour after --retention, if a run takes
no time, and the bodies of a day. Unless you give yours, prices are the
` + pump.Prices{}.OrPublished().Source + `.

How a rate is kept: one processor for each machine, one distributor (which is the
leader with --elected; stand-bys come on top).`

func plan() *cobra.Command {
	in := capacity.Input{Machine: capacity.DefaultMachine, Prices: pump.Prices{}.OrPublished()}
	f := planFlags{in: in}
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Say what a rate of tasks needs: accounts, machines, requests, money",
		Long:  planLong,
		Example: `  # 50,000 tasks a second like those in a file, 20 ms each
  distributor plan --rate 50000 --handler-seconds 0.02 --input tasks.jsonl --key city

  # without a sample: tasks of 200 bytes that compress 4 to 1
  distributor plan --rate 50000 --handler-seconds 0.02 --task-bytes 200 --ratio 4

  # whether the accounts that there are will do
  distributor plan --rate 50000 --handler-seconds 0.02 --input tasks.jsonl --config pump.yaml

  # what three accounts can do, on machines of 8 CPUs, as JSON
  distributor plan --rate 1e6 --handler-seconds 0.001 --input tasks.jsonl \
      --accounts 3 --vm-cpus 8 --vm-price 0.384 --json

  # a message a task, as for foreign consumers, 10 hours a day
  distributor plan --rate 3000 --handler-seconds 0.05 --task-bytes 900 --pack 1 --hours 10`,
		Args: cli.NoArguments(nil),
		RunE: cli.Command(f.run),
	}
	f.add(cmd)
	return cmd
}

func (f *planFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.Float64Var(&f.in.Rate, "rate", 0, "tasks a second (required)")
	flags.Float64Var(&f.in.HandlerSeconds, "handler-seconds", 0,
		"how long the handler is at work for a task, in seconds (required)")
	flags.Float64Var(&f.in.HandlerCPU, "handler-cpu-seconds", 0,
		"how much of that is CPU of the machine, in seconds")
	flags.Float64Var(&f.taskBytes, "task-bytes", 0,
		"bytes of a task, where there is no input to measure")
	flags.Float64Var(&f.ratio, "ratio", 4,
		"with --task-bytes: bytes of task that a character of message text carries; "+
			"JSON lines have 3 to 6, what does not compress has 0.75")
	f.source.Add(cmd)
	flags.StringVar(&f.config, "config", "",
		"plan with the accounts, queues, segments, delivery and budget of this "+
			"configuration `FILE` (default: none)")
	flags.IntVar(&f.tasks, "sample", capacity.DefaultSampleTasks,
		"tasks of the input to measure at most, up to 64 MiB of them")
	flags.IntVar(&f.in.Concurrency, "concurrency", 256, "tasks in the handlers of one processor")
	flags.IntVar(&f.in.Pack, "pack", 0, "the most tasks in a message (default: as many as fit)")
	flags.DurationVar(&f.in.SealAge, "seal-age", 0,
		"how long a task waits for others to fill its message; -1s: as long as it takes "+
			"(default: 1s for pipes, commands and --task-bytes; files: 10s, as checkpoints have it)")
	flags.StringVar(&f.delivery, "delivery", string(pump.AtLeastOnce),
		"the delivery `MODE`: at-least-once or once")
	flags.Float64Var(&f.in.Results, "results", 0,
		"bytes of the line of a result that processors keep in blobs (default: none is kept)")
	flags.Float64Var(&f.in.ResultsRatio, "results-ratio", 4, "bytes of such lines to one that is "+
		"stored; JSON lines have 4 to 8, what does not compress has 1.2")
	flags.DurationVar(&f.in.Retention, "retention", 168*time.Hour, "how long results are kept")
	flags.Float64Var(&f.in.LargePart, "large-share", 0, "part of the tasks, 0 to 1, whose bodies go "+
		"into blobs (--blob-above); the others are as --input or --task-bytes says")
	flags.Float64Var(&f.in.LargeBytes, "large-bytes", 0, "bytes of such a body")
	flags.BoolVar(&f.in.Elected, "elected", false,
		"distributors elect one of them, as with run --every, who saves checkpoints")
	flags.IntVar(&f.in.Accounts, "accounts", 0,
		"storage accounts to use (default: as many as it takes)")
	flags.IntVar(&f.in.Queues, "queues", 0,
		"queues of each account (default: as many as it takes, and 8 at least)")
	flags.IntVar(&f.in.Segments, "segments", 0, "segments of the workload (default: 32 a queue)")
	flags.Float64Var(&f.in.Headroom, "headroom", 0.2, "part of every limit that is to be left free")
	flags.Float64Var(&f.in.AccountLimit, "account-limit", 20_000,
		"messages a second of an account; published")
	flags.Float64Var(&f.in.QueueLimit, "queue-limit", 2_000, "messages a second of a queue; published")
	flags.StringVar(&f.getCosts, "get-costs", "messages",
		"what a get counts, `WHAT`: each of its messages, or one as a request; what "+
			"is published leaves it open")
	flags.DurationVar(&f.in.Latency, "latency", 10*time.Millisecond, "of a storage request")
	flags.Float64Var(&f.in.RequestCPU, "request-cpu", 150e-6,
		"CPU that a storage request takes, in seconds")
	flags.Float64Var(&f.in.Hours, "hours", 24,
		"hours of a day in which tasks come at that rate; in the others none do")
	flags.Float64Var(&f.in.Machine.CPUs, "vm-cpus", f.in.Machine.CPUs, "CPUs of a machine")
	flags.Float64Var(&f.in.Machine.Mbits, "vm-mbits", f.in.Machine.Mbits, "its network, in Mbit/s")
	flags.Float64Var(&f.in.Machine.PerHour, "vm-price", f.in.Machine.PerHour,
		"its price an hour; by default those three are of a "+f.in.Machine.Describe)
	flags.Float64Var(&f.in.Prices.Queue, "queue-price", f.in.Prices.Queue,
		"of 10,000 requests to queues (general-purpose v1 accounts: 0.00036)")
	flags.Float64Var(&f.in.Prices.Table, "table-price", f.in.Prices.Table,
		"of 10,000 requests to tables")
	flags.StringVar(&f.in.Prices.Currency, "currency", f.in.Prices.Currency,
		"of the prices, for the printout")
	flags.Float64Var(&f.in.StoredPrice, "stored-price", 0.02,
		"of a GB (10^9 bytes) a month in blobs; 0.018 to 0.021 in US regions (hot, LRS)")
	flags.BoolVar(&f.json, "json", false, "print the plan as a JSON object")
	cli.SeldomBut(cmd, "rate", "handler-seconds", "input", "task-bytes", "config", "json")
}

func (f *planFlags) run(cmd *cobra.Command) error {
	changed := cmd.Flags().Changed
	for _, required := range []string{"rate", "handler-seconds"} {
		if !changed(required) {
			return cli.Usage("--%s is missing: how %s?", required,
				map[string]string{
					"rate":            "many tasks a second are there to be",
					"handler-seconds": "long does a task take in the handler, in seconds",
				}[required])
		}
	}
	if err := f.configured(changed); err != nil {
		return err
	}
	if err := f.settings(changed); err != nil {
		return err
	}
	measured, err := f.sample(cmd.Context(), changed)
	if err != nil {
		return err
	}
	p, err := capacity.Make(f.in)
	if err != nil {
		return cli.Explain(err, nil)
	}
	f.in, _ = f.in.Defaults() // as Make has done too
	if f.json {
		err = cli.PlainJSON(cmd.OutOrStdout(), p)
	} else {
		err = printPlan(cmd.OutOrStdout(), p, &f.in, measured)
	}
	if err == nil && !p.Fits {
		err = fmt.Errorf("this is not enough for %s tasks/s: the bottleneck (%s) is full at %s",
			capacity.Short(p.Rate), p.Bottleneck, capacity.Short(p.Most))
		if p.Most >= p.Rate {
			err = fmt.Errorf("this leaves less than the headroom of %.0f %% at %s tasks/s: the "+
				"bottleneck (%s) is full at %s",
				100*f.in.Headroom, capacity.Short(p.Rate), p.Bottleneck, capacity.Short(p.Most))
		}
	}
	return err
}

// configured takes what the configuration says and no flag overrides.
func (f *planFlags) configured(changed func(string) bool) error {
	f.file = &configfile.File{}
	if f.config == "" {
		return nil
	}
	file, err := configfile.Load(f.config)
	if err != nil {
		return err
	}
	f.file = file
	c := file.Config
	queues := 0
	for _, a := range c.Accounts {
		queues += cmp.Or(a.Queues, pump.DefaultQueues)
	}
	take := func(flag string, set func()) {
		if !changed(flag) {
			set()
		}
	}
	take("accounts", func() { f.in.Accounts = len(c.Accounts) })
	take("queues", func() { f.in.Queues = queues / max(len(c.Accounts), 1) })
	take("segments", func() {
		f.in.Shared = c.Segments == pump.Shared
		f.in.Segments = max(c.Segments, 0)
	})
	take("delivery", func() { f.delivery = cmp.Or(string(c.Delivery), f.delivery) })
	take("retention", func() { f.in.Retention = cmp.Or(c.Retention, f.in.Retention) })
	take("account-limit", func() { f.in.AccountLimit = cmp.Or(c.Budget.Account, f.in.AccountLimit) })
	take("queue-limit", func() { f.in.QueueLimit = cmp.Or(c.Budget.Queue, f.in.QueueLimit) })
	if c.Prices != (pump.Prices{}) {
		given := c.Prices.OrPublished()
		take("queue-price", func() { f.in.Prices.Queue = given.Queue })
		take("table-price", func() { f.in.Prices.Table = given.Table })
		take("currency", func() { f.in.Prices.Currency = given.Currency })
		f.in.Prices.Source, f.in.Prices.Date = given.Source, given.Date
		f.priced = given.Currency
	}
	if costs := c.Budget.GetCostsMessages; costs != nil && !*costs {
		take("get-costs", func() { f.getCosts = "request" })
	}
	return nil
}

// settings takes the flags that are words.
func (f *planFlags) settings(changed func(string) bool) error {
	switch f.delivery {
	case string(pump.AtLeastOnce):
	case string(pump.Once):
		f.in.Once = true
	default:
		return cli.Usage("--delivery: %q is not a delivery mode; use at-least-once or once", f.delivery)
	}
	if f.in.LargePart > 0 && !(f.in.LargeBytes > 0 && f.in.Once) {
		return cli.Usage("--large-share needs --large-bytes and --delivery once")
	}
	switch f.getCosts {
	case "messages":
		f.in.GetPerMsg = true
	case "request":
	default:
		return cli.Usage("--get-costs: %q is not a way to count; use messages or request", f.getCosts)
	}
	if f.in.Machine.CPUs != capacity.DefaultMachine.CPUs ||
		f.in.Machine.Mbits != capacity.DefaultMachine.Mbits {
		f.in.Machine.Describe = fmt.Sprintf("%g CPUs, %g Mbit/s", f.in.Machine.CPUs, f.in.Machine.Mbits)
	}
	if err := f.oneCurrency(changed); err != nil {
		return err
	}
	if changed("sample") && f.tasks < 1 {
		return cli.Usage("--sample: %d is out of range; use 1 or more", f.tasks)
	}
	return nil
}

// oneCurrency refuses prices in several currencies: prices that are not given are in the published
// currency, or in the configuration's.
func (f *planFlags) oneCurrency(changed func(string) bool) error {
	is, published := f.in.Prices.Currency, pump.Prices{}.OrPublished().Currency
	requests := cmp.Or(f.priced, published)
	for _, price := range []struct{ flag, currency string }{
		{"queue-price", requests},
		{"table-price", requests},
		{"vm-price", published},
		{"stored-price", published},
	} {
		unused := price.flag == "stored-price" && f.in.Results+f.in.LargePart == 0
		if is != price.currency && !changed(price.flag) && !unused {
			return cli.Usage("--%s is missing: the plan is in %.12q, and this price in %s unless "+
				"you give it; 0 leaves it out",
				price.flag, is, price.currency)
		}
	}
	if changed("queue-price") || changed("table-price") || changed("vm-price") ||
		changed("stored-price") {
		if f.in.Prices.Source = "as given"; is == published {
			f.in.Prices.Source += ", the others " + pump.Prices{}.OrPublished().Source
		}
	}
	return nil
}

// sample measures the input or assumes one, and says what was measured.
func (f *planFlags) sample(
	ctx context.Context, changed func(string) bool,
) (measured string, err error) {
	input := slices.ContainsFunc([]string{"input", "files", "list", "exec"}, changed)
	switch {
	case input && (changed("task-bytes") || changed("ratio")):
		return "", cli.Usage("--task-bytes and --ratio are for when there is no input to measure")
	case !input && !changed("task-bytes"):
		return "", cli.Usage("nothing says how large tasks are; " +
			"give --input (or --files, --list, --exec) to measure some, or --task-bytes")
	case !input && (f.taskBytes < 0 || f.taskBytes > 44<<10):
		return "",
			cli.Usage("--task-bytes: %v is out of range; use 0 to %d, as a task has to fit into a message",
				f.taskBytes, 44<<10)
	case !input && !(f.ratio >= 0.5 && f.ratio <= 700):
		return "", cli.Usage("--ratio: %v is out of range; use 0.5 to 700", f.ratio)
	case !input:
		f.in.Sample = capacity.Assumed(f.taskBytes, f.ratio, f.in.Pack)
		return "", nil
	}
	src, err := f.source.Source()
	if err != nil {
		return "", err
	}
	f.source.Hide(src, f.file)
	if f.in.SealAge == 0 && f.source.Repeatable() {
		f.in.SealAge = fileSealAge
	}
	f.in.Sample, err = capacity.Measure(ctx, src, f.tasks, f.in.Pack)
	if err != nil {
		return "", err
	}
	what := "the first tasks of the input"
	if f.in.Sample.Whole {
		what = "all of the input"
	}
	return what, nil
}

// fileSealAge is how long a message is filled at most if the input can be read again: until a
// checkpoint has waited for it for its 10 s.
const fileSealAge = 10 * time.Second
