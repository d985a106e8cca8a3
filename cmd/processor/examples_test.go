package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/proof"
)

// Every example of every help is typed, as if a signal had come at once: none is a slip. Those that
// the distributor has too are tried there on simulated accounts.
func TestEveryExampleOfEveryHelpCanBeTyped(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("TOKEN", "a token")
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	const config = "workload: test\naccounts:\n  - connectionString: DefaultEndpointsProtocol=http;AccountName=a1;AccountKey=YWJj;" +
		"QueueEndpoint=http://127.0.0.1:1/a1;TableEndpoint=http://127.0.0.1:1/a1\n"
	for name, text := range map[string]string{
		"pump.yaml": config, "sample.jsonl": "{}\n", "python3": "#!/bin/sh\n", "worker": "#!/bin/sh\n", "work": "#!/bin/sh\n", "convert.sh": "#!/bin/sh\n", "fetch-city": "#!/bin/sh\n",
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	examples := 0
	var try func(cmd *cobra.Command)
	try = func(cmd *cobra.Command) {
		example := strings.ReplaceAll(cmd.Example, ":9090", ":0")
		for _, c := range (proof.Document{Lines: strings.Split("```sh\n"+example+"\n```", "\n")}).Commands() {
			argv, at := c.Typed[1:], slices.IndexFunc(c.Typed[1:], func(w string) bool { return w[0] == '>' })
			if c.Typed[0] != "processor" {
				continue
			}
			if at >= 0 {
				argv = argv[:at]
			}
			examples++
			if status, said := cli.Run(ctx, root(), argv, io.Discard); status == 2 && !strings.Contains(said, "needs a terminal") {
				t.Errorf("%s: %s", strings.Join(argv, " "), said)
			}
		}
		for _, sub := range cmd.Commands() {
			try(sub)
		}
	}
	try(root())
	if examples < 35 {
		t.Errorf("only %d examples", examples)
	}
}
