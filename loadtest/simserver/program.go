package simserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/queuepump/queuepump/loadtest/azsim"
)

// Accounts says which accounts are simulated.
type Accounts struct {
	Count, Queues int    // 1 to 1000 accounts; 1 to 100 queues of each in the configuration
	Limits        string // published, none, a list such as queue=500, or a file of JSON
	Workload      string // the workload's name in the configuration
	Seed          uint64 // decides everything that the simulator leaves to chance
	Azurite       bool   // Azurite's account beside them

	TLS *tls.Config // has them served by https
}

// Azurite's account and key are published by Microsoft for every emulator; they open nothing else.
const (
	azuriteAccount = "devstoreaccount1"
	azuriteKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6" +
		"IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// UsageError is an error about a flag.
type UsageError struct{ error }

// Unwrap gives the cause.
func (e UsageError) Unwrap() error { return e.error }

func usage(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// AddFlags adds --accounts, --queues, --limits and --seed.
func (a *Accounts) AddFlags(flags *pflag.FlagSet) {
	flags.IntVar(&a.Count, "accounts", 4, "how many accounts are simulated")
	flags.IntVar(&a.Queues, "queues", 2, "how many queues of each account are used")
	flags.StringVar(&a.Limits, "limits", "published",
		"the `RATES` of requests to enforce: published, none, queue=N,account=N, or a file of JSON")
	flags.Uint64Var(&a.Seed, "seed", 1, "decides everything that the simulator leaves to chance")
}

// AddWorkload adds --workload.
func (a *Accounts) AddWorkload(flags *pflag.FlagSet) {
	flags.StringVar(&a.Workload, "workload", "demo",
		"the `NAME` of the workload in the configuration")
}

// Check says what is wrong with the numbers, as a [UsageError].
func (a *Accounts) Check() error {
	switch {
	case a.Count < 1 || a.Count > 1000:
		return usage("--accounts: %d is out of range; use 1 to 1000", a.Count)
	case a.Queues < 1 || a.Queues > 100:
		return usage("--queues: %d is out of range; use 1 to 100", a.Queues)
	}
	return nil
}

// ReadLimits reads what Limits says. An error is a [UsageError].
func (a *Accounts) ReadLimits() (l azsim.Limits, err error) {
	if IsLimits(a.Limits) {
		l, err = ParseLimits(a.Limits)
	} else {
		var text []byte
		if text, err = os.ReadFile(a.Limits); err != nil {
			return l, usage("--limits: %w; use published, none, queue=N,account=N, or a JSON file",
				err)
		}
		l, err = azsim.ParseLimits(text)
	}
	if err != nil {
		return l, usage("--limits %s: %w", a.Limits, err)
	}
	return l, nil
}

// Served is a simulator that listens.
type Served struct {
	*azsim.Server
	Sim   *Simulator
	Names []string // of the accounts, without Azurite's
	of    *Accounts
}

// Serve listens for queues, tables and blobs, at ports of an address in this order. Port 0, and one
// that is left out, is a free one. An error of what a says is a [UsageError].
func (a *Accounts) Serve(address string, ports ...int) (*Served, error) {
	if err := a.Check(); err != nil {
		return nil, err
	}
	limits, err := a.ReadLimits()
	if err != nil {
		return nil, err
	}
	s := &Served{of: a}
	c := azsim.Config{Limits: limits, Seed: a.Seed, Public: !onLoopback(address), TLS: a.TLS}
	for i := range a.Count {
		s.Names = append(s.Names, fmt.Sprintf("simulated%d", i+1))
		c.Accounts = append(c.Accounts, azsim.Account{Name: s.Names[i]})
	}
	if a.Azurite {
		c.Accounts = append(c.Accounts, azsim.Account{Name: azuriteAccount, Key: azuriteKey})
	}
	if s.Sim, err = New(c); err != nil {
		return nil, err
	}
	addrs := make([]string, len(ports))
	for i, port := range ports {
		addrs[i] = net.JoinHostPort(address, strconv.Itoa(port))
	}
	s.Server, err = s.Sim.Listen(addrs...)
	return s, err
}

// WriteConfig replaces a file by the pump.yaml that reaches the simulated accounts, in one step: a
// process that waits for it finds the whole file or none.
func (s *Served) WriteConfig(path string) error {
	var b strings.Builder
	b.WriteString("# Simulated accounts, for as long as their simulator runs.\n")
	fmt.Fprintf(&b, "workload: %s\naccounts:\n", s.of.Workload)
	for _, name := range s.Names {
		fmt.Fprintf(&b, "  - connectionString: %s\n    queues: %d\n",
			s.ConnectionString(name), s.of.Queues)
	}
	return WriteFile(path, []byte(b.String()), 0o600)
}

// WriteFile replaces a file in one step.
func WriteFile(path string, text []byte, mode os.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(text)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return err
}

// Program is a program that serves simulated accounts until its context ends.
type Program struct {
	Accounts
	config, listen, cert, key                 string
	queuePort, tablePort, blobPort, adminPort int
	latency, spread                           time.Duration
	faults                                    []string
	flags                                     *pflag.FlagSet
}

// Help is what a Program does, for its help text.
func Help() string {
	return `Everything is in memory and gone at the end. Any program that speaks to Azure can use
the accounts, as it can use Azurite.

--limits takes published, none, a list such as queue=500,account=5000, or a FILE
that holds a JSON object of the rates to enforce, each per second, with "none"
for no limit; what is left out is as published:
  {"queue": 2000, "queueAccount": 20000, "tablePartition": 2000, "tableAccount": 20000,
   "blob": 500, "getCost": 32}
getCost is what a get of 32 messages costs, 1 or 32. In a list account stands for
queueAccount and tableAccount.

--fault FAULT makes requests go wrong, and may be given many times. It is a kind and
then name=value words. The kinds:
` + Kinds() + `
The words: account, service, op, object, partition (of a table) and client (a part of
its User-Agent) say which requests; rate, skip, first, every how many of them; from,
for, repeat when, counted from the start; status, code and retry-after what an error
answers; by how long a delay is; back=empty that an account comes back with nothing.

Faults, limits and latency change while it runs: the admin endpoint, whose address is
printed, takes them as JSON (docs/testing.md). GET /healthz says that all is served.
`
}

// AddFlags adds all flags of the program.
func (p *Program) AddFlags(flags *pflag.FlagSet) {
	p.flags = flags
	flags.SortFlags = false
	p.Accounts.AddFlags(flags)
	p.AddWorkload(flags)
	flags.StringVar(&p.config, "write-config", "", "write a configuration for both binaries to `FILE`")
	flags.StringVar(&p.listen, "listen", "127.0.0.1",
		"the `ADDRESS` to listen on; 0.0.0.0: for everybody, the admin endpoint included")
	flags.StringVar(&p.cert, "tls-cert", "",
		"serve https with the certificate in `FILE`, as tokens of Entra need it")
	flags.StringVar(&p.key, "tls-key", "", "the `FILE` with the key of --tls-cert; both are PEM")
	flags.IntVar(&p.queuePort, "queue-port", 0, "the port of the queue service (default: a free one)")
	flags.IntVar(&p.tablePort, "table-port", 0, "the port of the table service (default: a free one)")
	flags.IntVar(&p.blobPort, "blob-port", 0, "the port of the blob service (default: a free one)")
	flags.IntVar(&p.adminPort, "admin-port", 0, "the port of the admin endpoint (default: a free one)")
	flags.BoolVar(&p.Azurite, "azurite", false,
		"also serve Azurite's account, by default at Azurite's ports")
	flags.DurationVar(&p.latency, "latency", 0, "how long each request takes")
	flags.DurationVar(&p.spread, "latency-spread", 0,
		"how much longer it takes at most (default: half of --latency)")
	flags.StringArrayVar(&p.faults, "fault", nil,
		"a `FAULT` such as 'lost-answer rate=0.01'; many are allowed")
}

// start opens all ports; on an error none is open.
func (p *Program) start() (*Served, *Admin, error) {
	faults := make([]Fault, len(p.faults))
	for i, text := range p.faults {
		var err error
		if faults[i], err = ParseFault(text); err != nil {
			return nil, nil, usage("--fault: %w", err)
		}
	}
	if _, err := netip.ParseAddr(p.listen); err != nil {
		return nil, nil, usage("--listen: %w; give an address such as 127.0.0.1 or 0.0.0.0", err)
	}
	if p.cert != "" || p.key != "" {
		pair, err := tls.LoadX509KeyPair(p.cert, p.key)
		if err != nil {
			return nil, nil, usage("--tls-cert, --tls-key: %w; give two files of PEM", err)
		}
		p.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	}
	for i, port := range []*int{&p.blobPort, &p.queuePort, &p.tablePort} {
		name := []string{"blob-port", "queue-port", "table-port"}[i]
		if p.Azurite && !p.flags.Changed(name) {
			*port = 10000 + i // Azurite's
		}
	}
	s, err := p.Serve(p.listen, p.queuePort, p.tablePort, p.blobPort)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("%w; end what listens there, or give other ports", err)
	}
	if err != nil {
		return nil, nil, err
	}
	l := azsim.Latency{Queue: p.latency, Table: p.latency, Spread: p.spread}
	if err = s.Sim.SetLatency(l); err != nil {
		err = usage("--latency, --latency-spread: %w", err)
	} else if err = s.Sim.SetFaults(faults...); err != nil {
		err = usage("--fault: %w", err)
	}
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	admin, err := s.Sim.ListenAdmin(net.JoinHostPort(p.listen, strconv.Itoa(p.adminPort)))
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	return s, admin, nil
}

// Run serves until ctx ends, and says where everything is. An error of a flag is a [UsageError].
func (p *Program) Run(ctx context.Context, out io.Writer) error {
	s, admin, err := p.start()
	if err != nil {
		return err
	}
	defer s.Close()
	defer s.Sim.Close()
	defer admin.Close()
	for _, name := range s.Sim.Accounts() {
		fmt.Fprintf(out, "%-14s queues %s  tables %s  blobs %s\n", name, s.QueueEndpoint(name),
			s.TableEndpoint(name), s.BlobEndpoint(name))
	}
	fmt.Fprintf(out, "%-14s %s  seed %d\n", "admin", admin.URL(), p.Seed)
	for _, fault := range s.Sim.CurrentFaults() {
		fmt.Fprintf(out, "%-14s %s\n", "fault", fault)
	}
	if p.config != "" {
		if err := s.WriteConfig(p.config); err != nil {
			return fmt.Errorf("--write-config: %w", err)
		}
		fmt.Fprintf(out, "%s is written\n", p.config)
	}
	fmt.Fprintln(out, "serving until a signal")
	<-ctx.Done()
	st := s.Sim.Stats()
	fmt.Fprintf(out, "%d requests served, %d of them throttled\n", st.Count("", ""), st.Throttled)
	return nil
}
