package operate

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/gates"
)

func ids() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ids", Short: "Take unique numbers from an id range", Hidden: true,
	}
	return cli.Group(cmd, idsNext())
}

func idsNext() *cobra.Command {
	var o operation
	var count uint64
	cmd := &cobra.Command{
		Use:   "next NAME",
		Short: "Take the next numbers of an id range",
		Long: `Take numbers that no other process gets, from a range of that name in the workload, which
begins with 1 and is made by the first who asks. One number is printed as it is,
several as the first and the last of them. Programs in Go take them with coordination.IDRange.`,
		Example: `  distributor ids next orders --config pump.yaml
  seq $(distributor ids next orders --count 100 --config pump.yaml)`,
		Args: cli.OneArgument,
		RunE: o.run(func(cmd *cobra.Command, args []string) error {
			if count == 0 {
				return cli.Usage("--count: 0 is out of range; use 1 or more")
			}
			// A misspelt workload would have a range of its own, with the same numbers.
			if _, err := accounts.List(cmd.Context(), o.cfg); err != nil {
				return err
			}
			t, err := gates.Table(o.cfg)
			if err != nil {
				return err
			}
			r, err := coordination.NewIDRange(t, o.cfg.Workload, args[0], 0)
			if err != nil {
				return cli.Usage("%w", err)
			}
			first, err := r.Reserve(cmd.Context(), count)
			if err != nil {
				return err
			}
			last := first + count - 1
			switch {
			case o.json:
				// As texts: most readers of JSON take numbers for floats.
				return printJSON(cmd.OutOrStdout(), map[string]string{
					"name": args[0], "first": fmt.Sprint(first), "last": fmt.Sprint(last),
				})
			case count == 1:
				_, err = fmt.Fprintln(cmd.OutOrStdout(), first)
			default:
				_, err = fmt.Fprintln(cmd.OutOrStdout(), first, last)
			}
			return err
		}),
	}
	o.add(cmd)
	cmd.Flags().Uint64Var(&count, "count", 1, "how many numbers to take")
	return cmd
}
