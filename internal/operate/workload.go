package operate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/workloads"
)

func workload() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "workload",
		Short: "Show, set, pause, resume or delete a workload",
		Long: `Show, set, pause, resume or delete a workload. The first distributor makes it, of the
accounts of its configuration; what it pins then never changes: the number of segments, the
mode of delivery, and which queues an account has.`,
	}
	return cli.Group(cmd, workloadShow(), workloadSet(), workloadLog(), pauseCommand(),
		resumeCommand(), workloadDelete())
}

func workloadShow() *cobra.Command {
	return callCommand(
		"show", "Show what is pinned of a workload, where it is, and what is in it",
		`Show the workload that a configuration means: which account has its rows, what is
pinned, its accounts, and how many processes and runs it has. It is shown also if the
configuration says something else than what is pinned. A workload of the same name in
another account of the configuration is named: two over the same queues take each
other's messages for their own.`,
		`  distributor workload show --config pump.yaml
  distributor workload show --json`, cli.NoArguments(nil),
		func(cmd *cobra.Command, cfg pump.Config, _ []string) (*workloads.Info, error) {
			return workloads.Show(cmd.Context(), cfg)
		}, workloadText)
}

func workloadText(i *workloads.Info) string {
	var b strings.Builder
	line := Facts(&b, 12)
	line("workload", i.Name)
	line("incarnation", i.Incarnation)
	line("rows in", plain(i.Control))
	at := func(t time.Time) string { return t.Format(time.DateTime) + " UTC" }
	line("made", Known(i.Made, at, ""))
	if i.Deleting != nil {
		line("!", "it is being deleted, since "+at(*i.Deleting)+"; to go on: distributor workload delete")
	}
	line("delivery", i.Delivery)
	line("segments", humanize.Comma(int64(i.Segments))+If(i.Shared, ", without owners"))
	line("reducer", plain(i.Reducer))
	line("accounts", accountsText(i))
	line("map", fmt.Sprintf("version %d of %s", i.MapVersion, at(i.Changed.UTC())))
	line("retention", fmt.Sprintf("%v (this configuration's)",
		time.Duration(i.Retention*float64(time.Second))))
	line("members", cli.Plural(int64(i.Distributors), "distributor")+", "+
		cli.Plural(int64(i.Processors), "processor"))
	line("runs", runsText(i))
	for _, r := range i.Rivals {
		text := "another workload of this name is in account " + plain(r.Account)
		switch {
		case r.Problem != "":
			text += ", and its row cannot be read: " + plain(r.Problem)
		case len(r.SameQueues) > 0:
			text += ", over the same queues of " + plain(strings.Join(r.SameQueues, ", "))
		default:
			text += ", over other queues"
		}
		line("!", text)
	}
	if len(i.Unseen) > 0 {
		line("!",
			"these accounts could not be looked into for another workload of this name: "+
				plain(strings.Join(i.Unseen, ", ")))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func accountsText(i *workloads.Info) string {
	used := 0
	for _, a := range i.Accounts {
		if a.State != accounts.Unused {
			used++
		}
	}
	return fmt.Sprintf("%d, with %s in all; see: distributor accounts list", used,
		cli.Plural(int64(i.Queues), "queue"))
}

func runsText(i *workloads.Info) string {
	if len(i.Runs) == 0 {
		return "none"
	}
	var parts []string
	for _, state := range slices.Sorted(maps.Keys(i.Runs)) {
		parts = append(parts, humanize.Comma(int64(i.Runs[state]))+" "+plain(state))
	}
	return strings.Join(parts, ", ") + If(!i.AllRuns, ", and more")
}
