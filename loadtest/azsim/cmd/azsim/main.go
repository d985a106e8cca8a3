// Command azsim serves simulated accounts of Azure Queue, Table and Blob storage: for tests of any
// language, with Azure's limits and with faults that Azure has and other emulators lack.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/queuepump/queuepump/loadtest/simserver"
)

const (
	short    = "Serve simulated accounts of Azure Queue, Table and Blob storage until a signal"
	statuses = "Exit statuses: 0 it was told to end, 1 it failed, 2 a flag is wrong.\n"
	examples = `  azsim                                   # four accounts on loopback, on free ports
  azsim --azurite                         # UseDevelopmentStorage=true reaches it
  azsim --azurite --listen 0.0.0.0 --admin-port 10003      # in a container
  azsim --latency 5ms --limits queue=500,account=5000
  azsim --fault 'lost-answer rate=0.01 op=PutMessage' --fault 'dark account=simulated2 from=30s'
`
)

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // it stands beside the tests, and what it holds stays for long
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run gives the exit status.
func run(ctx context.Context, args []string, out, problems io.Writer) int {
	var p simserver.Program
	flags := pflag.NewFlagSet("azsim", pflag.ContinueOnError)
	p.AddFlags(flags)
	flags.Usage = func() {
		fmt.Fprint(out, short, ".\n\nExamples:\n", examples, "\n", simserver.Help(), "\nFlags:\n",
			flags.FlagUsages(), "\n", statuses)
	}
	err, status := flags.Parse(args), 2
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return 0
	case err == nil && flags.NArg() > 0:
		err = fmt.Errorf("%q is not a flag", flags.Arg(0))
	case err == nil:
		err = p.Run(ctx, out)
		if _, wrong := errors.AsType[simserver.UsageError](err); !wrong {
			status = 1
		}
	}
	if err == nil {
		return 0
	}
	fmt.Fprintf(problems, "azsim: %v\n", err)
	if status == 2 {
		fmt.Fprintln(problems, "azsim --help lists the flags, with examples")
	}
	return status
}
