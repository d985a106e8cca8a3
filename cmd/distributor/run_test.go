package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
)

// B5: what can be read only once is refused for repeated distributions, under whatever name and
// flag.
func TestStandardInputIsKnownUnderAllItsNames(t *testing.T) {
	for _, path := range []string{"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "/dev/../dev/stdin"} {
		for _, flag := range []string{"--input", "--list"} {
			err := typed(t, "", "run", "--every", "1s", flag, path)
			proof.Says(t, err, flag+" "+path+" is standard input", flag, path)
		}
	}
	for _, path := range []string{"stdin", "/dev/fd/3", "a.jsonl"} {
		err := typed(t, "", "run", "--every", "1s", "--config", "nowhere.yaml", "--format", "jsonl", "--input", path)
		if err == nil || strings.Contains(err.Error(), "standard input") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A machine of 512 MiB does for a distributor: what is resident is the goal and up to 12 MiB more,
// which is the program itself. The goal follows the queues of the configuration, and GOMEMLIMIT
// goes before it (package service).
func TestTheMemoryGoalFollowsTheNumberOfQueues(t *testing.T) {
	for queues, want := range map[int]int64{1: 208, 400: 208, 682: 208, 1000: 237, 2500: 378} {
		cfg := pump.Config{Workload: "work", Segments: 16384}
		for left := queues; left > 0; left -= 100 {
			cfg.Accounts = append(cfg.Accounts, pump.Account{Queues: min(left, 100), ConnectionString: fmt.Sprintf(
				"DefaultEndpointsProtocol=https;AccountName=a%d;AccountKey=YWJj;EndpointSuffix=core.windows.net", left)})
		}
		d, err := distributor.New(cfg, nil, distributor.Options{})
		must(t, err)
		proof.Same(t, d.Memory()>>20, want, "MiB", queues, "queues")
	}
}

// typed runs a command line in a directory of its own, and gives its error.
func typed(t *testing.T, config string, args ...string) error {
	t.Helper()
	cmd := root()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if config != "" {
		args = append(args, "--config", config)
	}
	cmd.SetArgs(args)
	return cmd.ExecuteContext(t.Context())
}
