package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/loadtest/simserver"
)

// simulateFlags say what to simulate.
type simulateFlags struct {
	accounts, queues int
	limits           string
	workload         string
	seed             uint64
	more             []azsim.Account // served beside the counted ones
}

func (f *simulateFlags) add(cmd *cobra.Command) {
	f.addAccounts(cmd)
	cmd.Flags().StringVar(&f.workload, "workload", "demo",
		"the `NAME` of the workload in the configuration")
}

// addAccounts adds the flags without that of a workload.
func (f *simulateFlags) addAccounts(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVar(&f.accounts, "accounts", 4, "how many accounts are simulated")
	flags.IntVar(&f.queues, "queues", 2, "how many queues of each account are used")
	flags.StringVar(&f.limits, "limits", "published",
		"request rates to enforce: published, none, queue=N,account=N, or a JSON `FILE`")
	flags.Uint64Var(&f.seed, "seed", 1, "decides everything that the simulator leaves to chance")
}

func (f *simulateFlags) check() error {
	switch {
	case f.accounts < 1 || f.accounts > 1000:
		return cli.Usage("--accounts: %d is out of range; use 1 to 1000", f.accounts)
	case f.queues < 1 || f.queues > 100:
		return cli.Usage("--queues: %d is out of range; use 1 to 100", f.queues)
	}
	return nil
}

// simulation is a simulator that listens.
type simulation struct {
	*azsim.Server
	sim   *simserver.Simulator
	names []string
	flags *simulateFlags
}

// start listens on loopback, for queues, tables and blobs in this order; port 0 is a free one.
func (f *simulateFlags) start(ports ...int) (*simulation, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	limits, err := parseLimits(f.limits)
	if err != nil {
		return nil, err
	}
	s := &simulation{flags: f}
	c := azsim.Config{Limits: limits, Seed: f.seed}
	for i := range f.accounts {
		name := fmt.Sprintf("simulated%d", i+1)
		s.names = append(s.names, name)
		c.Accounts = append(c.Accounts, azsim.Account{Name: name})
	}
	c.Accounts = append(c.Accounts, f.more...)
	if s.sim, err = simserver.New(c); err != nil {
		return nil, err
	}
	addrs := make([]string, len(ports))
	for i, port := range ports {
		addrs[i] = loopback(port)
	}
	s.Server, err = s.sim.Listen(addrs...)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func parseLimits(s string) (azsim.Limits, error) {
	if simserver.IsLimits(s) {
		l, err := simserver.ParseLimits(s)
		if err != nil {
			return l, cli.Usage("--limits %s: %w", s, err)
		}
		return l, nil
	}
	text, err := os.ReadFile(s)
	if err != nil {
		return azsim.Limits{}, cli.Usage("--limits: %w; use published, none, queue=N,account=N, "+
			"or a JSON file", err)
	}
	l, err := azsim.ParseLimits(text)
	if err != nil {
		return azsim.Limits{}, cli.Usage("--limits %s: %w", s, err)
	}
	return l, nil
}

// configuration is the pump.yaml that reaches the simulated accounts. Their
// keys are made of their names and open nothing else.
func (s *simulation) configuration() ([]byte, error) {
	type account struct {
		ConnectionString string `yaml:"connectionString"`
		Queues           int    `yaml:"queues"`
	}
	var c struct {
		Workload string    `yaml:"workload"`
		Accounts []account `yaml:"accounts"`
	}
	c.Workload = s.flags.workload
	for _, name := range s.names {
		c.Accounts = append(c.Accounts, account{s.ConnectionString(name), s.flags.queues})
	}
	text, err := yaml.MarshalWithOptions(c, yaml.IndentSequence(true))
	if err != nil {
		return nil, err
	}
	return append([]byte("# Simulated accounts on this machine, served by loadtest "+
		"for as long as it runs.\n"),
		text...), nil
}

// writeFile replaces a file in one step: a process that waits for it finds the whole file or none.
func writeFile(path string, text []byte, mode os.FileMode) error {
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

// describe says where everything is.
func (s *simulation) describe() string {
	var b bytes.Buffer
	names := s.names
	for _, a := range s.flags.more {
		names = append(names[:len(names):len(names)], a.Name)
	}
	for _, name := range names {
		fmt.Fprintf(&b, "%-14s queues %s  tables %s  blobs %s\n", name, s.QueueEndpoint(name),
			s.TableEndpoint(name), s.BlobEndpoint(name))
	}
	return b.String()
}
