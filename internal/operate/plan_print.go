package operate

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"

	"github.com/queuepump/queuepump/internal/admin"
	"github.com/queuepump/queuepump/internal/capacity"
	"github.com/queuepump/queuepump/internal/cli"
)

// money writes an amount with the digits that show its size.
func money(v float64, currency string) string {
	text := fmt.Sprintf("%.2f", v)
	switch {
	case v >= 100:
		text = humanize.Comma(int64(math.Round(v)))
	case v > 0 && v < 0.01:
		text = fmt.Sprintf("%.1g", v)
	}
	return text + " " + currency
}

// printPlan prints a plan for people: what is needed, why, and which limit is reached first.
func printPlan(w io.Writer, p *capacity.Plan, in *capacity.Input, measured string) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s tasks/s of %s s each\n\n", capacity.Short(p.Rate),
		capacity.Short(in.HandlerSeconds))
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name, value string, why ...string) {
		fmt.Fprintf(t, "%s\t%s\t%s\n", name, value, strings.Join(why, "; "))
	}
	row("accounts", fmt.Sprint(p.Accounts),
		fmt.Sprintf("with %s each, %d in all, and %d segments",
			cli.Plural(int64(p.QueuesPerAccount), "queue"), p.Queues, p.Segments))
	row("processors", fmt.Sprint(p.Processors),
		fmt.Sprintf("with --concurrency %d; %s handlers are at work on average",
			p.Concurrency, capacity.Short(p.Rate*in.HandlerSeconds)))
	row("distributors", fmt.Sprint(p.Distributors))
	row("machines", fmt.Sprint(p.VMs), p.Machine.Describe)
	row("connections", humanize.Comma(int64(p.Connections)), "at once, of all processes")
	row("tasks a message", capacity.Short(p.Packing.Tasks), packedBy(p, in))
	row("messages", capacity.Short(p.Packing.Messages)+"/s",
		fmt.Sprintf("of %s, each of which counts %s against the limits: put 1, get %s, delete 1",
			cli.Bytes(int64(p.Packing.Bytes)), capacity.Short(p.Packing.Counts),
			capacity.Short(p.Packing.Counts-2)))
	r := &p.Requests
	row("requests", capacity.Short(r.Put+r.Get+r.Delete+r.Renew+r.Table)+"/s",
		fmt.Sprintf("put %s, get %s, delete %s, renew %s, tables %s; %s for a thousand tasks; %s a day",
			capacity.Short(r.Put), capacity.Short(r.Get), capacity.Short(r.Delete),
			capacity.Short(r.Renew), capacity.Short(r.Table),
			capacity.Short(r.PerThousand), capacity.Short(r.PerDay)))
	c := p.Prices.Currency
	row("money a day", money(p.Money.Total, c),
		fmt.Sprintf("queues %s, tables %s, machines %s; %s for a million tasks",
			money(p.Money.Queues, c), money(p.Money.Tables, c), money(p.Money.VMs, c),
			money(p.Money.PerMillion, c)))
	blobRows(p, in, row)
	_ = t.Flush()

	fmt.Fprintf(&b, "\nbottleneck: %s, full at %s tasks/s. What moves it: %s.\n\n",
		p.Bottleneck, capacity.Short(p.Most), p.Limits[0].Remedy)
	t = tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "full at tasks/s\tused\tlimit\thow it comes about")
	for _, l := range p.Limits {
		fmt.Fprintf(t, "%s\t%.3g %%\t%s\t%s\n", capacity.Short(l.Tasks), 100*l.Used, l.Name, l.What)
	}
	_ = t.Flush()

	fmt.Fprintln(&b)
	if s := &p.Sample; measured != "" {
		fmt.Fprintf(&b, "Measured on %s, %s of %s bytes: %s bytes of text a task, 1 for %s; %s keys.\n",
			measured, cli.Plural(int64(s.Tasks), "task"), capacity.Short(s.Body), capacity.Short(s.Text),
			capacity.Short(s.Ratio), humanize.Comma(int64(s.Keys)))
		if s.Messages == 0 {
			fmt.Fprintln(&b,
				"They do not fill a message, so what a full one holds is extrapolated; "+
					"more of the input says more.")
		}
		if s.BadLines > 0 {
			fmt.Fprintf(&b, "%s were left out: they cannot be tasks.\n",
				cli.Plural(int64(s.BadLines), "line"))
		}
		if s.Large > 0 {
			fmt.Fprintf(&b, "%s of those fit no message. With --blob-above 40KiB their bodies go into "+
				"blobs: a put and a get of 10,000 cost %s. --large-share plans with them.\n",
				cli.Plural(int64(s.Large), "line"),
				moneyText(1e4*(p.Prices.Of("put-blob")+p.Prices.Of("get-blob")), p.Prices.Currency))
		}
	} else {
		fmt.Fprintf(&b, "Assumed, not measured: %s characters of text a task, 1 for %s bytes. "+
			"--input measures it on your own.\n", capacity.Short(s.Text), capacity.Short(s.Ratio))
	}
	fmt.Fprintf(&b, "Prices: %s.\n", p.Prices.Source)
	_, err := w.Write(b.Bytes())
	return err
}

// blobRows prints what is put into blobs and lies there.
func blobRows(p *capacity.Plan, in *capacity.Input, row func(name, value string, why ...string)) {
	c := p.Prices.Currency
	stored := func(bytes float64) string {
		return fmt.Sprintf("%s GB lie stored in the long run: %s a month", capacity.Short(bytes/1e9),
			money(bytes/1e9*in.StoredPrice, c))
	}
	if n := p.Requests.Objects; n > 0 {
		row("results", capacity.Short(n)+" objects/s",
			fmt.Sprintf("puts of blobs: %s of the money a day; %s of lines a day, %s to 1 compressed",
				money(p.Money.Results, c), cli.Bytes(int64(p.Rate*in.Results*in.Hours*3600)),
				capacity.Short(in.ResultsRatio)), stored(p.StoredResults))
	}
	if n := p.Requests.Bodies; n > 0 {
		row("bodies", capacity.Short(n)+"/s", fmt.Sprintf("puts and gets of blobs: %s of the money a day",
			money(p.Money.Bodies, c)), stored(p.StoredBodies))
	}
}

// packedBy says in words what keeps messages from being larger.
func packedBy(p *capacity.Plan, in *capacity.Input) string {
	full := capacity.Short(p.Sample.PerFull)
	switch p.Packing.By {
	case "bodies":
		return fmt.Sprintf("%s %% of the tasks have bodies in blobs, each in a message of its own",
			capacity.Short(100*in.LargePart))
	case "pack":
		return "by --pack"
	case "handling":
		return fmt.Sprintf("as many as %d handlers do in 5 s; %s would fit", in.Concurrency, full)
	case "memory":
		return fmt.Sprintf("by the distributor's memory for %d segments; %s would fit: "+
			"fewer --segments fill more",
			p.Segments, full)
	case "seal-age":
		return fmt.Sprintf("as many as come for one of %d segments in %v; "+
			"%s would fit: a longer --seal-age, or fewer --segments, fill more",
			p.Segments, in.SealAge, full)
	default:
		return "as many as fit"
	}
}

// moneyText is an amount with its currency; a small amount has as many digits as matter.
func moneyText(x float64, currency string) string {
	return admin.Amount(x, plain(currency))
}
