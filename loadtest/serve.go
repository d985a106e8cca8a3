package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/loadtest/simserver"
)

// serveFlags say what is served beside the simulated accounts, and what goes wrong.
type serveFlags struct {
	simulate                                  simulateFlags
	config                                    string
	queuePort, tablePort, blobPort, adminPort int
	azurite                                   bool
	latency, spread                           time.Duration
	faults                                    []string
}

func serveCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve simulated accounts until a signal",
		Long: `Serve simulated accounts of Azure Queue, Table and Blob storage on loopback until a
signal, and write the configuration that reaches them. Everything is in memory
and gone at the end. Any program that speaks to Azure can use them.

--limits takes published, none, a list such as queue=500,account=5000, or a FILE
that holds a JSON object of the rates to enforce, each per second, with "none"
for no limit; what is left out is as published:
  {"queue": 2000, "queueAccount": 20000, "tablePartition": 2000, "tableAccount": 20000,
   "blob": 500, "getCost": 32}
getCost is what a get of 32 messages costs, 1 or 32. In a list account stands for
queueAccount and tableAccount.

--fault FAULT makes requests go wrong, and may be given many times. It is a kind and
then name=value words. The kinds:
` + simserver.Kinds() + `
The words: account, service, op, object, partition (of a table) and client (a part of
its User-Agent) say which requests; rate, skip, first, every how many of them; from,
for, repeat when, counted from the start; status, code and retry-after what an error
answers; by how long a delay is; back=empty that an account comes back with nothing.

Faults, limits and latency change while it runs: the admin endpoint, whose address is
printed, takes them as JSON (docs/testing.md).

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
		RunE: cli.Command(func(cmd *cobra.Command) error { return f.serve(cmd) }),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	f.simulate.add(cmd)
	flags.StringVar(&f.config, "write-config", "", "write a configuration for both binaries to `FILE`")
	flags.IntVar(&f.queuePort, "queue-port", 0, "the port of the queue service (default: a free one)")
	flags.IntVar(&f.tablePort, "table-port", 0, "the port of the table service (default: a free one)")
	flags.IntVar(&f.blobPort, "blob-port", 0, "the port of the blob service (default: a free one)")
	flags.IntVar(&f.adminPort, "admin-port", 0, "the port of the admin endpoint (default: a free one)")
	flags.BoolVar(&f.azurite, "azurite", false,
		"also serve Azurite's account, by default at Azurite's ports")
	flags.DurationVar(&f.latency, "latency", 0, "how long each request takes")
	flags.DurationVar(&f.spread, "latency-spread", 0,
		"how much longer it takes at most (default: half of --latency)")
	flags.StringArrayVar(&f.faults, "fault", nil,
		"a `FAULT` such as 'lost-answer rate=0.01'; many are allowed")
	return cmd
}

// azuriteAccount and azuriteKey are published by Microsoft for every emulator; they open nothing
// else. The ports are Azurite's of its blob, its queue and its table service.
const (
	azuriteAccount = "devstoreaccount1"
	azuriteKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6" +
		"IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
	azuriteBlobPort  = 10000
	azuriteQueuePort = 10001
	azuriteTablePort = 10002
)

// start opens all ports; on an error none is open.
func (f *serveFlags) start(cmd *cobra.Command) (*simulation, *simserver.Admin, error) {
	faults := make([]simserver.Fault, len(f.faults))
	for i, text := range f.faults {
		var err error
		if faults[i], err = simserver.ParseFault(text); err != nil {
			return nil, nil, cli.Usage("--fault: %w", err)
		}
	}
	if f.azurite {
		f.simulate.more = []azsim.Account{{Name: azuriteAccount, Key: azuriteKey}}
		if !cmd.Flags().Changed("queue-port") {
			f.queuePort = azuriteQueuePort
		}
		if !cmd.Flags().Changed("table-port") {
			f.tablePort = azuriteTablePort
		}
		if !cmd.Flags().Changed("blob-port") {
			f.blobPort = azuriteBlobPort
		}
	}
	s, err := f.simulate.start(f.queuePort, f.tablePort, f.blobPort)
	if err != nil {
		return nil, nil, err
	}
	fail := func(err error) (*simulation, *simserver.Admin, error) {
		return nil, nil, errors.Join(err, s.Close())
	}
	l := azsim.Latency{Queue: f.latency, Table: f.latency, Spread: f.spread}
	if err := s.sim.SetLatency(l); err != nil {
		return fail(cli.Usage("--latency, --latency-spread: %w", err))
	}
	if err := s.sim.SetFaults(faults...); err != nil {
		return fail(cli.Usage("--fault: %w", err))
	}
	admin, err := s.sim.ListenAdmin(loopback(f.adminPort))
	if err != nil {
		return fail(err)
	}
	return s, admin, nil
}

func (f *serveFlags) serve(cmd *cobra.Command) error {
	s, admin, err := f.start(cmd)
	if err != nil {
		return err
	}
	defer s.Close()
	defer s.sim.Close()
	defer admin.Close()
	out := cmd.OutOrStdout()
	fmt.Fprint(out, s.describe())
	fmt.Fprintf(out, "%-14s %s  seed %d\n", "admin", admin.URL(), f.simulate.seed)
	for _, fault := range s.sim.CurrentFaults() {
		fmt.Fprintf(out, "%-14s %s\n", "fault", fault)
	}
	if f.config != "" {
		text, err := s.configuration()
		if err != nil {
			return err
		}
		if err := writeFile(f.config, text, 0o600); err != nil {
			return fmt.Errorf("--write-config: %w", err)
		}
		fmt.Fprintf(out, "%s is written\n", f.config)
	}
	fmt.Fprintln(out, "serving until a signal")
	<-cmd.Context().Done()
	st := s.sim.Stats()
	fmt.Fprintf(out, "%s requests served, %s of them throttled\n",
		humanize.Comma(st.Count("", "")), humanize.Comma(st.Throttled))
	return nil
}
