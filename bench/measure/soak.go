package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/bench"
	"github.com/queuepump/queuepump/internal/cli"
)

func soakCommand() *cobra.Command {
	var (
		s     = bench.Soak{Every: 5 * time.Second}
		write bool
	)
	cmd := &cobra.Command{
		Use:   "soak",
		Short: "Let both binaries work for ten minutes, and watch their memory",
		Long: `Let both binaries work on a steady stream of tasks, and look at their memory every
five seconds. The status is 1 if it grew. It needs Linux.

` + cli.ExitCodes,
		Args: cobra.NoArgs,
		RunE: cli.Command(func(cmd *cobra.Command) error {
			dir, done, err := workDir(false)
			if err != nil {
				return err
			}
			defer done()
			s.Dir = dir
			s.Log = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }
			r, err := s.Run(cmd.Context())
			if err != nil {
				return err
			}
			fmt.Fprint(cmd.OutOrStdout(), r.Section())
			if write {
				if err := rewrite(entriesFile, r.ReplaceSection); err != nil {
					return fmt.Errorf("%s: %w", entriesFile, err)
				}
			}
			return r.Flat()
		}),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.DurationVar(&s.For, "for", 10*time.Minute,
		"how long tasks come; at least a minute says something")
	flags.IntVar(&s.Rate, "rate", 20_000, "tasks a second")
	flags.StringVar(&s.Delivery, "delivery", "",
		"the delivery `MODE` of the workload (default at-least-once)")
	flags.BoolVar(&write, "write", false, "write what it came to into "+entriesFile)
	return cmd
}
