package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/loadtest/simserver"
)

func serveCommand() *cobra.Command {
	var p simserver.Program
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve simulated accounts until a signal",
		Long: `Serve simulated accounts of Azure Queue, Table and Blob storage on loopback until a
signal, and write the configuration that reaches them. azsim is this command as a
program of its own.

` + simserver.Help() + `
` + cli.ExitCodes,
		Example: `  loadtest serve --accounts 4 --queues 2 --write-config pump.yaml
  loadtest serve --limits none --queue-port 10001 --table-port 10002
  loadtest serve --azurite    # UseDevelopmentStorage=true reaches it
  loadtest serve --latency 5ms --latency-spread 2ms --limits queue=500,account=5000
  loadtest serve --fault 'lost-answer rate=0.01 op=PutMessage account=simulated1'
  loadtest serve --fault 'error rate=0.05' --fault 'dark account=simulated2 from=30s for=20s'
  loadtest serve --fault 'refuse account=simulated2' --fault 'disabled account=simulated3 from=1m'
  curl -X PUT 127.0.0.1:10003/faults -d '{"faults": [{"fault": "error", "rate": 0.1}]}'`,
		Args: cobra.NoArgs,
		RunE: cli.Command(func(cmd *cobra.Command) error {
			return usage(p.Run(cmd.Context(), cmd.OutOrStdout()))
		}),
	}
	p.AddFlags(cmd.Flags())
	return cmd
}

// usage has an error about a flag end the program as one.
func usage(err error) error {
	if wrong, ok := errors.AsType[simserver.UsageError](err); ok {
		return cli.Usage("%w", wrong.Unwrap())
	}
	return err
}
