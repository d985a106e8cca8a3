package main

import (
	"fmt"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
)

func serveCommand() *cobra.Command {
	var (
		f                    simulateFlags
		config               string
		queuePort, tablePort int
	)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve simulated accounts until a signal",
		Long: `Serve simulated accounts of Azure Queue and Table storage on loopback until a
signal, and write the configuration that reaches them. Everything is in memory
and gone at the end. Any program that speaks to Azure can use them.

--limits FILE holds a JSON object of the rates to enforce, each per second, with
"none" for no limit; what is left out is as published:
  {"queue": 2000, "queueAccount": 20000, "tablePartition": 2000, "tableAccount": 20000, "getCost": 32}
getCost is what a get of 32 messages costs, 1 or 32.

` + cli.ExitCodes,
		Example: `  loadtest serve --accounts 4 --queues 2 --write-config pump.yaml
  loadtest serve --limits none --queue-port 10001 --table-port 10002`,
		Args: cobra.NoArgs,
		RunE: cli.Command(func(cmd *cobra.Command) error {
			s, err := f.start(queuePort, tablePort)
			if err != nil {
				return err
			}
			defer s.Close()
			out := cmd.OutOrStdout()
			fmt.Fprint(out, s.describe())
			if config != "" {
				text, err := s.configuration()
				if err != nil {
					return err
				}
				if err := writeFile(config, text, 0o600); err != nil {
					return fmt.Errorf("--write-config: %w", err)
				}
				fmt.Fprintf(out, "%s is written\n", config)
			}
			fmt.Fprintln(out, "serving until a signal")
			<-cmd.Context().Done()
			st := s.sim.Stats()
			fmt.Fprintf(out, "%s requests served, %s of them throttled\n", humanize.Comma(st.Count("", "")), humanize.Comma(st.Throttled))
			return nil
		}),
	}
	cmd.Flags().SortFlags = false
	f.add(cmd)
	cmd.Flags().StringVar(&config, "write-config", "", "write a configuration for both binaries to `FILE`")
	cmd.Flags().IntVar(&queuePort, "queue-port", 0, "the port of the queue service (default: a free one)")
	cmd.Flags().IntVar(&tablePort, "table-port", 0, "the port of the table service (default: a free one)")
	return cmd
}
