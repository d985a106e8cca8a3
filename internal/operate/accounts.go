package operate

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/pump/accounts"
)

func accountsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "accounts",
		Short: "List, add, drain or remove the storage accounts of a workload that exists",
		Long: `The first distributor makes a workload with all the accounts of its
configuration. From then on the stored workload says which accounts are used, and
only these commands change that, while everything runs:

  unused --add--> active --drain--> draining --remove--> unused

An active account takes its share of segments. A draining one gets nothing new and is
still read until it is empty; then it can be removed. The number of segments
never changes; for another one make a new workload beside this one, under another name.`,
	}
	return cli.Group(cmd, accountsList(), accountsAdd(), accountsDrain(), accountsRemove())
}

// AccountList is what `accounts list` prints with --json.
type AccountList struct {
	Workload string         `json:"workload"`
	Accounts []accounts.Use `json:"accounts"`
}

func accountsList() *cobra.Command {
	var o operation
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the accounts of the workload and of the configuration",
		Example: `  distributor accounts list --config pump.yaml
  distributor accounts list --config pump.yaml --json`,
		Args: cli.NoArguments(nil),
		RunE: o.run(func(cmd *cobra.Command, _ []string) error {
			uses, err := accounts.List(cmd.Context(), o.cfg)
			if uses == nil {
				return err
			}
			if o.json {
				return errors.Join(printJSON(cmd.OutOrStdout(), AccountList{o.cfg.Workload, uses}), err)
			}
			printAccounts(cmd.OutOrStdout(), uses)
			return err
		}),
	}
	o.add(cmd)
	return cmd
}

func printAccounts(w io.Writer, uses []accounts.Use) {
	t := Table{Columns: Columns(
		Short("ACCOUNT", 16), Left("STATE"), Right("QUEUES"),
		Right("WEIGHT"), Right("SEGMENTS"), Short("NOTE", 8),
	)}
	for _, u := range uses {
		t.Add(plain(u.Name), u.State, number(u.Queues), fmt.Sprintf("%.4g", u.Weight), number(u.Segments),
			notes(
				If(u.Control, "control account"), If(!u.Configured, "not in this configuration"),
				If(len(u.Foreign) > 0, "reads "+strings.Join(u.Foreign, ", ")),
			))
	}
	t.Write(w, 120)
}

// change is what the commands that change accounts share.
type change struct {
	reporting
	yes  bool
	wait bool
	lost bool
}

func (c *change) addFlags(cmd *cobra.Command) {
	c.add(cmd)
	c.flags.Add(cmd, 10*time.Second)
}

func accountsAdd() *cobra.Command {
	var c change
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Use one more account, or use a draining one again",
		Long: `Let the workload use an account of the configuration: its queues are made, and it
takes its share of the segments, by its weight. Everything goes on meanwhile. If the
account is used already, its foreignQueues in the configuration are read from now on. If it was
removed with --lost and came back, the command counts its messages and says what becomes of them.

First add the account to the configuration of all distributors and processors and
restart them, one after another: the command is refused, and names them, while a
process is alive that could not read the account.`,
		Example: `  # after acct03 has been added to pump.yaml everywhere
  distributor accounts add acct03 --config pump.yaml`,
		Args: cli.OneArgument,
		RunE: c.run(func(cmd *cobra.Command, args []string) error {
			return c.apply(cmd, args[0], "", func() (accounts.Change, error) {
				return accounts.Add(cmd.Context(), c.cfg, args[0])
			})
		}),
	}
	c.addFlags(cmd)
	return cmd
}

func accountsDrain() *cobra.Command {
	var c change
	cmd := &cobra.Command{
		Use:   "drain NAME",
		Short: "Send nothing more to an account, and go on reading it",
		Long: `Give the segments of an account other homes. What is in its queues is still read.
30 seconds later at the latest nothing new is put into them. The other accounts must be able to
take the load. ` + "`accounts add`" + ` makes the account active again at any time.`,
		Example: `  distributor accounts drain acct02 --config pump.yaml
  # and wait until it is empty
  distributor accounts drain acct02 --config pump.yaml --wait --yes`,
		Args: cli.OneArgument,
		RunE: c.run(func(cmd *cobra.Command, args []string) error {
			question := "Nothing more will be sent to account %s, and its segments get other homes."
			return c.apply(cmd, args[0], question, func() (accounts.Change, error) {
				done, err := accounts.Drain(cmd.Context(), c.cfg, args[0])
				if err == nil && c.wait {
					err = accounts.WaitDrained(cmd.Context(), c.cfg, args[0], removeProgress(c.console))
				}
				return done, err
			})
		}),
	}
	c.addFlags(cmd)
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&c.wait, "wait", false, "wait until the account is empty and may be removed")
	return cmd
}

func accountsRemove() *cobra.Command {
	var c change
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Take an account that is drained out of the workload",
		Long: `Take an account out of the workload. It must have been draining for 40 seconds, and
every queue of it must be empty, that of quarantined messages too; otherwise the
command says what is left, or waits with --wait. The queues themselves stay where they are,
the workload's anchor goes. If the account's table does not answer, the command says so: run it
again. Only after that take the account out of the configuration. The control account, which
holds the workload's rows, cannot be removed.

An account that is gone for good cannot be counted. --lost removes it ten minutes after the
drain, unless one of its queues can be counted with the credentials of the configuration. The
command first says what may be lost: with delivery: once the tasks of each run that are not
done, with at-least-once what was last counted. Without --yes it then asks. distributor runs
repair puts again what is missing. If the account comes back, accounts add takes it in again.`,
		Example: `  distributor accounts remove acct02 --config pump.yaml
  distributor accounts remove acct02 --config pump.yaml --wait --yes

  # its account was deleted
  distributor accounts drain acct02 --config pump.yaml --yes
  distributor accounts remove acct02 --config pump.yaml --lost --wait`,
		Args: cli.OneArgument,
		RunE: c.run(func(cmd *cobra.Command, args []string) error {
			question := "Account %s will not be read any more."
			if c.lost {
				l, err := accounts.Lost(cmd.Context(), c.cfg, args[0])
				if err != nil {
					return err
				}
				question = "What is in account %s is given up."
				for _, line := range l.Text(time.Now()) {
					fmt.Fprintln(cmd.ErrOrStderr(), plain(line))
				}
			}
			return c.apply(cmd, args[0], question, func() (accounts.Change, error) {
				return accounts.Remove(cmd.Context(), c.cfg, args[0], accounts.RemoveOptions{
					Wait: c.wait, Lost: c.lost, Progress: removeProgress(c.console),
				})
			})
		}),
	}
	c.addFlags(cmd)
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&c.wait, "wait", false, "wait until the account may be removed")
	cmd.Flags().BoolVar(&c.lost, "lost", false, "the account is gone for good: give up what is in it")
	return cmd
}

func removeProgress(console *cli.Console) func(accounts.Progress) {
	return func(p accounts.Progress) {
		text := cli.Plural(p.Messages(), "message") + " left"
		if p.Noticing > 0 {
			text += fmt.Sprintf(", writers may take another %.0f s to notice", p.Noticing.Seconds())
		}
		if p.Noticing > 0 && p.Left == nil { // an account that is gone has no counts
			text = fmt.Sprintf("it may answer again for another %.0f s", p.Noticing.Seconds())
		}
		console.Progress(0, 0, text, "messages", p.Messages(), "queues", len(p.Left), "noticing",
			p.Noticing.Round(time.Second))
	}
}

// apply makes a change, after asking if there is a question, and tells the result.
func (c *change) apply(
	cmd *cobra.Command, name, question string, do func() (accounts.Change, error),
) error {
	if question != "" && !c.yes {
		if err := confirm(cmd, fmt.Sprintf(question, plain(name))); err != nil {
			return err
		}
	}
	quiet := c.saySlow(c.console.Log)
	done, err := do()
	quiet()
	c.console.Done()
	if done.Account != "" { // a wait may have failed after the change
		err = cmp.Or(err, c.tell(cmd.OutOrStdout(), done, c.text(done)+"\n"))
	}
	return err
}

func (c *change) text(d accounts.Change) string {
	name := plain(d.Account)
	if !d.Changed {
		return fmt.Sprintf("account %s was %s already (map version %d)", name, d.State, d.MapVersion)
	}
	text := fmt.Sprintf("account %s is %s now (map version %d)", name, d.State, d.MapVersion)
	if d.Moved > 0 {
		text += fmt.Sprintf("; %s moved", cli.Plural(int64(d.Moved), "segment"))
	}
	switch {
	case d.Members == 0:
	case d.Nudged == d.Members:
		text += "; all running processes were told"
	default:
		text += fmt.Sprintf("; %d of %d processes were told, the others see it at their next beat",
			d.Nudged, d.Members)
	}
	switch {
	case d.State == accounts.Draining && !c.wait:
		text += fmt.Sprintf("\nwhen it is empty: distributor accounts remove %s --config %s",
			name, plain(c.config))
	case d.Lost != nil:
		text += "\nwhat was in it is given up; it can be taken out of the configuration"
	case d.State == accounts.Unused:
		text += "\nits queues are empty and stay where they are; it can be taken out of the configuration"
	}
	if d.Copies != nil {
		text += "\n" + d.Copies.Text()
	}
	return text
}

// confirm asks at a terminal. A script must confirm by a flag.
func confirm(cmd *cobra.Command, statement string) error {
	if !terminal(cmd) {
		return cli.Usage("nothing was done, because standard input is not a terminal. "+
			"%s Give --yes to do that without being asked", statement)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s Go on? [y/N] ", statement)
	answer, _ := bufio.NewReader(io.LimitReader(cmd.InOrStdin(), 100)).ReadString('\n')
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return cli.Usage("nothing was done")
	}
	return nil
}

// terminal reports whether there is a user to ask.
func terminal(cmd *cobra.Command) bool {
	in, ok := cmd.InOrStdin().(*os.File)
	return ok && term.IsTerminal(int(in.Fd()))
}
