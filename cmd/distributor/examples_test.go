package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/proof"
)

// must ends a test with an error.
var must = proof.Must

// notSlips are what an example is refused for here although nothing is wrong with it.
var notSlips = regexp.MustCompile(`needs a terminal|is not a terminal|--yes names "orders"|called "acct03"`)

// filled is what a shell fills in.
var filled = regexp.MustCompile(`\$\(.*?\)|\$\w+`)

// Every example of every help is typed, on simulated accounts with a workload that has a run: none
// is a slip. Files that an example reads need not be there.
func TestEveryExampleOfEveryHelpCanBeTyped(t *testing.T) {
	d := newDesk(t)
	config, err := os.ReadFile(filepath.Join(d.dir, "pump.yaml"))
	must(t, err)
	must(t, os.WriteFile("pump.yaml", append(config, "delivery: once\n"...), 0o600))
	var sent struct{ Run string }
	text, err := printed(t, words("run --input tasks.jsonl --key city --quiet --json"))
	must(t, json.Unmarshal([]byte(text), &sent))
	must(t, err)
	ids := strings.NewReplacer("0123456789ab", sent.Run, "3f2a", sent.Run[:4], "6f3a", sent.Run[:4])
	examples := 0
	var try func(cmd *cobra.Command)
	try = func(cmd *cobra.Command) {
		example := filled.ReplaceAllString(ids.Replace(cmd.Example), sent.Run)
		for _, c := range (proof.Document{Lines: strings.Split("```sh\n"+example+"\n```", "\n")}).Commands() {
			argv, at := c.Typed[1:], slices.IndexFunc(c.Typed[1:], func(w string) bool { return w[0] == '>' })
			if c.Typed[0] != "distributor" {
				continue
			}
			if at >= 0 {
				argv = argv[:at]
			}
			examples++
			ctx, cancel := context.WithCancel(t.Context())
			if slices.ContainsFunc(argv, func(w string) bool {
				return slices.Contains([]string{"page", "doctor", "wait", "--wait", "--every", "--cron", "serve"}, w)
			}) {
				cancel() // it would go on and on
			}
			if status, said := cli.Run(ctx, root(), argv, io.Discard); status == 2 && !notSlips.MatchString(said) {
				t.Errorf("%s: %s", strings.Join(argv, " "), said)
			}
			cancel()
		}
		for _, sub := range cmd.Commands() {
			try(sub)
		}
	}
	try(root())
	if examples < 60 {
		t.Errorf("only %d examples", examples)
	}
}
