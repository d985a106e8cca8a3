package operate

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/pump"
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

// Numbers is what `ids next` prints with --json: numbers of the range Name.
type Numbers struct {
	First string `json:"first"`
	Last  string `json:"last"`
	Name  string `json:"name"`
}

func idsNext() *cobra.Command {
	var count uint64
	cmd := callCommand(
		"next NAME", "Take the next numbers of an id range",
		`Take numbers that no other process gets, from a range of that name in the workload, which
begins with 1 and is made by the first who asks. One number is printed as it is,
several as the first and the last of them. Programs in Go take them with coordination.IDRange.`,
		`  distributor ids next orders --config pump.yaml
  seq $(distributor ids next orders --count 100 --config pump.yaml)`, cli.OneArgument,
		func(cmd *cobra.Command, cfg pump.Config, args []string) (n Numbers, err error) {
			if count == 0 {
				return n, cli.Usage("--count: 0 is out of range; use 1 or more")
			}
			// A misspelt workload would have a range of its own, with the same numbers.
			if _, err := accounts.List(cmd.Context(), cfg); err != nil {
				return n, err
			}
			t, err := gates.Table(cfg)
			if err != nil {
				return n, err
			}
			r, err := coordination.NewIDRange(t, cfg.Workload, args[0], 0)
			if err != nil {
				return n, cli.Usage("%w", err)
			}
			first, err := r.Reserve(cmd.Context(), count)
			return Numbers{fmt.Sprint(first), fmt.Sprint(first + count - 1), args[0]}, err
		}, func(n Numbers) string {
			if count == 1 {
				return n.First
			}
			return n.First + " " + n.Last
		})
	cmd.Flags().Uint64Var(&count, "count", 1, "how many numbers to take")
	return cmd
}
